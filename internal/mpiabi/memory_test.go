//go:build linux

package mpiabi

import (
	"os"
	"syscall"
	"testing"
	"unsafe"
)

// cMemory is memory as a C program has it: Go's garbage collector does not know it.
type cMemory struct {
	t    testing.TB
	b    []byte
	used int
}

func newMemory(t testing.TB) *cMemory {
	t.Helper()
	b, err := syscall.Mmap(-1, 0, 1<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(b); err != nil {
			t.Error(err)
		}
	})
	return &cMemory{t: t, b: b}
}

// place copies values to C memory, and returns their address.
func place[T any](m *cMemory, values ...T) uint64 {
	m.t.Helper()
	var one T
	from := (m.used + 15) &^ 15
	size := len(values) * int(unsafe.Sizeof(one))
	if from+size > len(m.b) {
		m.t.Fatal("the test's memory is full")
	}
	m.used = from + size
	addr := uint64(uintptr(unsafe.Pointer(&m.b[from])))
	copy(slice[T](addr, len(values)), values)
	return addr
}

// forbidden is the address of a page that cannot be accessed.
func forbidden(t testing.TB) uint64 {
	t.Helper()
	b, err := syscall.Mmap(-1, 0, os.Getpagesize(), syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(b); err != nil {
			t.Error(err)
		}
	})
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}
