package mpiabi

import (
	"fmt"
	"unsafe"

	"github.com/vmmc-go/vmmc/internal/shm"
)

// Memory of a program lies between these addresses. Go takes a fault below the first for a nil pointer
// of its own.
const (
	lowestAddress  = 4096
	highestAddress = 1 << 56
)

// badAddress is the panic of an address where no memory can be. [shm.Guard] makes an error of it, as of
// a fault.
type badAddress uint64

func (b badAddress) Error() string { return fmt.Sprintf("no memory can be at %#x", uint64(b)) }

// RuntimeError makes it one of the errors that the kernel's faults become.
func (badAddress) RuntimeError() {}

// Addr is the address.
func (b badAddress) Addr() uintptr { return uintptr(b) }

// checkAddress panics unless memory can be at an address: n values of some bytes each.
func checkAddress(addr uint64, n int, size uintptr) {
	if addr < lowestAddress || addr > highestAddress || n < 0 ||
		size > 0 && uint64(n) > (highestAddress-addr)/uint64(size) {
		panic(badAddress(addr))
	}
}

// pointer is the pointer to an address of C memory. The conversion goes through memory, as Go's rules
// for unsafe.Pointer are about Go's own memory.
func pointer(addr uint64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// at is the value of C memory at an address, and nil for address 0.
func at[T any](addr uint64) *T {
	if addr != 0 {
		var one T
		checkAddress(addr, 1, unsafe.Sizeof(one))
	}
	return (*T)(pointer(addr))
}

// slice are n values of C memory from an address on, and nil for address 0.
func slice[T any](addr uint64, n int) []T {
	if addr == 0 {
		return nil
	}
	var one T
	checkAddress(addr, n, unsafe.Sizeof(one))
	return unsafe.Slice((*T)(pointer(addr)), n)
}

// touch accesses each page of memory, for the fault. It writes to the first and to the last one if
// the memory is to be written: pages between are of the same mapping, nearly always, and a write to
// each would give memory to pages that a program has allocated and never uses.
func touch(b []byte, written bool) {
	if len(b) == 0 {
		return
	}
	shm.Touch(b)
	if written {
		for _, p := range []*byte{&b[0], &b[len(b)-1]} {
			write((*uint32)(pointer(address(p) &^ 3)))
		}
	}
}

// address is where a value is that C is told of. The caller pins it.
func address[T any](v *T) uint64 { return uint64(uintptr(unsafe.Pointer(v))) }

// as is memory as values of another type, which has no pointers. Bytes that are no whole value are left out.
func as[T any](b []byte) []T {
	var one T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(one)))
}
