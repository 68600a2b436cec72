package shm

import "unsafe"

// takeBlocks copies words to the copy while all of a block differ, and returns the number of bytes.
// Both sides begin at a multiple of 16; n is of whole blocks. Each word is loaded once and whole:
// no CPU tears an aligned vector within a word.
//
//go:noescape
func takeBlocks(near, copied unsafe.Pointer, n int) int

// putPast copies whole blocks by non-temporal stores, which bypass the caches: memory that is only
// written need not be read first, which is a third of the cost of much data. The stores are
// complete, for all CPUs, when it returns. Both sides begin at a multiple of 16.
//
//go:noescape
func putPast(dst, src unsafe.Pointer, n int)

// nonTemporalMin is the size from which putPast is worthwhile. Less data may be in the reader's
// cache and should stay there.
const nonTemporalMin = 64 << 10
