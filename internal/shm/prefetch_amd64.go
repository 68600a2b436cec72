//go:build !race

package shm

import "unsafe"

// prefetch is PREFETCHW, which waits for nothing, stores nothing and never faults. amd64 CPUs
// without it execute it as no operation.
//
//go:noescape
func prefetch(p unsafe.Pointer)

// Prefetch requests the cache line of the byte of mem at off, which is about to be written. An
// exchange requests its line only when all before it is done, and until then a reader that polls
// the line has it.
func Prefetch(mem []byte, off int) {
	if uint(off) < uint(len(mem)) {
		prefetch(unsafe.Add(unsafe.Pointer(unsafe.SliceData(mem)), off))
	}
}
