package shm

import "unsafe"

// takeBlocks takes words over as long as all of a block differ, and says how many
// bytes. Both sides begin at a multiple of 16, n is of whole blocks. Each word is
// loaded once, and not in parts: no processor tears an aligned vector within a word.
//
//go:noescape
func takeBlocks(near, copied unsafe.Pointer, n int) int

// putPast copies whole blocks by stores that go past the caches: memory that is only
// written need not be read first, which is a third of what much data costs. They are
// over, for all other processors too, when it returns. Both sides begin at a multiple of 16.
//
//go:noescape
func putPast(dst, src unsafe.Pointer, n int)

// nonTemporalMin is from where putPast is worth it: less may be in the reader's cache, and is
// to stay there.
const nonTemporalMin = 64 << 10
