package mpiabi

import "unsafe"

// pointer is the pointer to an address of C memory. The conversion goes through memory, as Go's rules
// for unsafe.Pointer are about Go's own memory.
func pointer(addr uint64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// at is the value of C memory at an address, and nil for address 0.
func at[T any](addr uint64) *T { return (*T)(pointer(addr)) }

// slice are n values of C memory from an address on, and nil for address 0.
func slice[T any](addr uint64, n int) []T {
	if addr == 0 {
		return nil
	}
	return unsafe.Slice((*T)(pointer(addr)), n)
}

// address is where a value is that C is told of. The caller pins it.
func address[T any](v *T) uint64 { return uint64(uintptr(unsafe.Pointer(v))) }

// as is memory as values of another type, which has no pointers. Bytes that are no whole value are left out.
func as[T any](b []byte) []T {
	var one T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(one)))
}
