package shm

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Guard runs f and returns [ErrForbidden] if f accesses memory that cannot be accessed: memory that
// a program has lent or exported and has unmapped or protected since, or whose file is shorter now.
// f holds no lock at that point. Without Guard the program would end, because the memory's owner
// cannot prepare this goroutine for the fault. It costs some 50 instructions.
func Guard(f func()) (err error) {
	was := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(was)
		if r := recover(); r != nil {
			fault, ok := r.(interface {
				runtime.Error
				Addr() uintptr
			})
			if !ok { // a fault of the program's own, such as a nil pointer
				panic(r)
			}
			err = fmt.Errorf("%w at %#x", ErrForbidden, fault.Addr())
		}
	}()
	f()
	return nil
}

// Readable returns an error if b cannot be read now.
func Readable(b []byte) error { return Guard(func() { Touch(b) }) }

// Touch reads a byte of each page of b, hidden from the race detector, only for the fault. Its
// result keeps the loads from being optimized away.
//
//go:norace
//go:noinline
func Touch(b []byte) (v byte) {
	if len(b) == 0 {
		return 0
	}
	v = b[len(b)-1]
	for i := 0; i < len(b); i += PageSize {
		v |= b[i]
	}
	return v
}

// TryCopyUnchecked is [CopyUnchecked] with memory that may no longer be mapped.
func TryCopyUnchecked(dst, src []byte) error { return Guard(func() { CopyUnchecked(dst, src) }) }
