package shm

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// Piece is the longest run of bytes copied without a point at which the garbage collector can stop
// the goroutine: memmove has none. 256 KiB take some 10-30 µs.
const Piece = 256 << 10

// Copy copies src to dst in pieces. dst is at least as long as src.
func Copy(dst, src []byte) {
	for len(src) > Piece {
		copyPiece(dst[:Piece], src[:Piece])
		dst, src = dst[Piece:], src[Piece:]
	}
	move(dst, src)
}

// copyPiece is a function with a frame of its own, not inlined, because its prologue is where a
// stop is noticed. A loop of plain copies was measured to hold the world up for 0.3-0.6 s, this one
// for 65 µs.
//
//go:noinline
func copyPiece(dst, src []byte) {
	var frame [64]byte
	keepFrame(&frame)
	move(dst, src)
}

//go:noinline
func keepFrame(*[64]byte) {}

// Put writes a message: all but its last word in any order, then the last word by an atomic
// exchange. So a reader that sees that word sees the rest (design, D2), and what the caller loads
// next is loaded after it. dst is aligned. dst and src have the same length, a positive number of
// whole words.
func Put(dst, src []byte) (last uint32) {
	n := len(src) - WordSize
	last = LastWord(src)
	switch {
	case n == WordSize:
		SetLastWord(dst[:n], LastWord(src[:n]))
	case len(src) >= Bulk || n > Piece:
		Copy(dst[:n], src[:n])
	case n > 0:
		copy(dst[:n], src[:n])
	}
	Word(dst, n).Swap(last)
	return last
}

// Short is the longest message that [PutShort] takes.
const Short = 2 * WordSize

// PutShort is [Put] of one or two words into mem at off, which lies within it. Choosing how to
// copy, and a call, would be much of the cost of such a message. It is small enough to be inlined.
func PutShort(mem []byte, off int, src []byte) {
	if off < 0 || off > len(mem)-len(src) {
		panic("shm: a message beyond the memory")
	}
	dst, from := unsafe.Add(unsafe.Pointer(unsafe.SliceData(mem)), off), unsafe.Pointer(unsafe.SliceData(src))
	last := LastWord(src) // load before anything is stored, maybe where src is
	if len(src) == Short {
		*(*uint32)(dst) = *(*uint32)(from)
		dst = unsafe.Add(dst, WordSize)
	}
	(*atomic.Uint32)(dst).Swap(last)
}

// PutShortBefore is to [PutBefore] what [PutShort] is to Put.
func PutShortBefore(mem []byte, off int, src []byte) (last uint32) {
	if off < 0 || off > len(mem)-len(src) {
		panic("shm: a message beyond the memory")
	}
	dst, from := unsafe.Add(unsafe.Pointer(unsafe.SliceData(mem)), off), unsafe.Pointer(unsafe.SliceData(src))
	last = LastWord(src)
	if len(src) == Short {
		*(*uint32)(dst) = *(*uint32)(from)
		dst = unsafe.Add(dst, WordSize)
	}
	if runtime.GOARCH == "amd64" { // the caller's atomic store orders it, see PutBefore
		*(*uint32)(dst) = last
	} else {
		(*atomic.Uint32)(dst).Swap(last)
	}
	return last
}

// PutPiece is [Put] of more than one word, less than [Bulk] and at most [Piece] bytes. Like
// [PutShort] it is inlined.
func PutPiece(mem []byte, off int, src []byte) {
	n, last := len(src)-WordSize, LastWord(src)
	copy(mem[off:off+n], src)
	Word(mem, off+n).Swap(last)
}

// PutBulk is [Put] of at least [Bulk] and at most [Piece] bytes. Its call costs little beside its
// copy.
//
//go:noinline
func PutBulk(mem []byte, off int, src []byte) {
	n, last := len(src)-WordSize, LastWord(src)
	move(mem[off:off+n], src[:n])
	Word(mem, off+n).Swap(last)
}

// PutBefore is Put for a message that the caller announces at once by an atomic store elsewhere,
// which then orders what the caller loads next. A CPU that keeps stores in order needs no exchange
// for the last word. The exchange would wait until the other CPU's cache has given up the line
// before the line of the announcement is requested.
func PutBefore(dst, src []byte) (last uint32) {
	if runtime.GOARCH != "amd64" {
		return Put(dst, src)
	}
	last = LastWord(src)
	if n := len(src) - WordSize; n > 0 {
		Copy(dst[:n], src[:n])
	}
	SetLastWord(dst[:len(src)], last)
	return last
}

// PutSignal is [Put] of data whose last word, also called a signal, lies elsewhere: all of src into
// mem at off in any order, then word at at.
func PutSignal(mem []byte, off int, src []byte, at int, word uint32) {
	if dst := mem[off : off+len(src)]; len(src) < Bulk {
		copy(dst, src)
	} else {
		Copy(dst, src)
	}
	Word(mem, at).Swap(word)
}

// Take reads a message: the last word first, so a reader that finds a flag there finds the data
// that was stored before it.
func Take(dst, src []byte) {
	n := len(dst) - WordSize
	last := Word(src, n).Load()
	if n > 0 {
		Copy(dst[:n], src[:n])
	}
	SetLastWord(dst, last)
}
