package mesh

import (
	"encoding/binary"
	"fmt"
)

// key decides what the messages of a sender to a receiver hold.
type key uint64

func (h *Mesh) key(from, to int) key {
	return key(mix(mix(h.seed^uint64(from)<<32) ^ uint64(to)))
}

// base is what the last words of the messages are counted from.
func (k key) base() uint32 { return uint32(k >> 32) }

// content is what one message holds. Its last word is a count, so that each differs
// from the one before it at the same place; the others are drawn from all that the
// message is told by.
type content struct {
	start uint64
	last  uint32
}

func (k key) at(i uint32) content {
	return content{mix(uint64(k) + uint64(i)), k.base() + i + 1}
}

func (c content) fill(b []byte) {
	n := len(b) - 4
	for i := 0; i < n; i += 4 {
		binary.LittleEndian.PutUint32(b[i:], c.word(i))
	}
	binary.LittleEndian.PutUint32(b[n:], c.last)
}

func (c content) check(b []byte) error {
	n := len(b) - 4
	for i := 0; i < n; i += 4 {
		if got := binary.LittleEndian.Uint32(b[i:]); got != c.word(i) {
			return wrong(i, len(b), got, c.word(i))
		}
	}
	if got := binary.LittleEndian.Uint32(b[n:]); got != c.last {
		return wrong(n, len(b), got, c.last)
	}
	return nil
}

func wrong(at, size int, got, want uint32) error {
	return fmt.Errorf("word %d of %d is %#x, sent was %#x", at/4, size/4, got, want)
}

// word is cheap, as it is computed twice for each word of a run, and yet no two
// words next to each other, nor at one place in two messages, are alike by rule.
func (c content) word(at int) uint32 {
	x := (c.start + uint64(at)) * 0x9e3779b97f4a7c15
	return uint32(x>>32) ^ uint32(x)
}

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
