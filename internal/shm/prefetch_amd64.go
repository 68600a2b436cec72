//go:build !race

package shm

import "unsafe"

// prefetch is PREFETCHW, which waits for nothing, stores nothing and faults nowhere; processors of this architecture that do not have it take
// it for no operation.
//
//go:noescape
func prefetch(p unsafe.Pointer)

// Prefetch asks for the cache line of the byte of mem at off, which is about to be written. An exchange asks for its line only when
// all before it is done, and who polls the line has it till then.
func Prefetch(mem []byte, off int) {
	if uint(off) < uint(len(mem)) {
		prefetch(unsafe.Add(unsafe.Pointer(unsafe.SliceData(mem)), off))
	}
}
