package shm

import (
	"sync/atomic"
	"unsafe"
)

// WordSize is the size in bytes of a VMMC word (vmmc_WordSize).
const WordSize = 4

// Word returns the word of b at byte offset off, as an atomic. Last words, states and counts are
// accessed only this way, by both processes: Go's atomics are sequentially consistent, and "store
// the word, then check for a sleeper" needs just that. The caller has checked the bounds and that
// the word is aligned in memory. b's owner stays reachable while the word is used.
func Word(b []byte, off int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(unsafe.SliceData(b[off : off+4])))
}

// Word64 returns the 64-bit word of b at byte offset off, as [Word]. The caller has checked
// [Aligned64].
func Word64(b []byte, off int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(b[off : off+8])))
}

// Aligned64 reports whether b begins at a 64-bit boundary in memory.
func Aligned64(b []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%8 == 0 }

// Addr returns the address of the byte of b at off, by which it differs from all other bytes of
// this process.
func Addr(b []byte, off int) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))) + uintptr(off))
}

// Aligned reports whether b begins at a word boundary in memory.
func Aligned(b []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%WordSize == 0
}

// LastWord reads the last four bytes of b, at any alignment.
func LastWord(b []byte) uint32 {
	return *(*uint32)(unsafe.Pointer(&b[len(b)-WordSize]))
}

// SetLastWord writes the last four bytes of b, at any alignment.
func SetLastWord(b []byte, v uint32) {
	*(*uint32)(unsafe.Pointer(&b[len(b)-WordSize])) = v
}

// Overlap reports whether two pieces of memory share a byte.
func Overlap(a, b []byte) bool {
	pa, pb := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return len(a) > 0 && len(b) > 0 && pa < pb+uintptr(len(b)) && pb < pa+uintptr(len(a))
}

// Within returns the offset at which b lies in a. ok is false if b does not lie in a as a whole.
func Within(a, b []byte) (off int, ok bool) {
	pa, pb := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	if len(b) == 0 || pb < pa || pb+uintptr(len(b)) > pa+uintptr(len(a)) {
		return 0, false
	}
	return int(pb - pa), true
}
