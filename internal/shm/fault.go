package shm

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Guard runs f, and gives [ErrForbidden] where it comes to memory that cannot be accessed: memory
// that a program has lent or exported and that it has unmapped or protected since, or whose file is
// shorter now. f holds no lock when it gets there. The program would end without that, since the
// goroutine is not one that the memory's owner could prepare. It costs some 50 instructions.
func Guard(f func()) (err error) {
	was := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(was)
		if r := recover(); r != nil {
			fault, ok := r.(interface {
				runtime.Error
				Addr() uintptr
			})
			if !ok { // a fault of the program's own, as a nil pointer is
				panic(r)
			}
			err = fmt.Errorf("%w at %#x", ErrForbidden, fault.Addr())
		}
	}()
	f()
	return nil
}

// Readable says whether all of b can be read now.
func Readable(b []byte) error { return Guard(func() { Touch(b) }) }

// Touch reads a byte of each page of b, without the race detector's knowledge: it is for nothing
// but the fault. What it returns keeps the loads from being left out.
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

// TryCopyUnchecked is [Deposit] into memory that may not be there any more.
func TryCopyUnchecked(dst, src []byte) error { return Guard(func() { CopyUnchecked(dst, src) }) }
