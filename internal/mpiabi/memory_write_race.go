//go:build race

package mpiabi

import (
	"unsafe"

	"github.com/vmmc-go/vmmc/internal/shm"
)

// write writes a value of memory that stays as it is. The race detector runs atomic operations on a stack
// of C, from which a fault cannot be recovered. So another thread's change at the same time is lost here.
func write(p *uint32) {
	var v [4]byte
	b := unsafe.Slice((*byte)(unsafe.Pointer(p)), len(v))
	shm.CopyUnchecked(v[:], b)
	shm.CopyUnchecked(b, v[:])
}
