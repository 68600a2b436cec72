package chaos

import (
	"encoding/binary"
	"math/rand/v2"
)

// The topology: process s sends to the three after it, one of which is on its node.
const (
	nodes     = 3
	processes = 12
	targets   = 3
)

// The buffer of a conversation: a head, a ring of slots, and a place for long messages. A
// message lies at the end of its place, so that its last word is where the receiver waits.
const (
	counterAt  = 0    // the sender's own atomic counter
	consumedAt = 8    // messages that the receiver is done with
	echoAt     = 1024 // of the sender alone
	echoSize   = 2048
	ringAt     = 4096
	ring       = 64
	slot       = 16 << 10
	longAt     = ringAt + ring*slot
	longMost   = 512 << 10
	bufferSize = longAt + longMost

	sharedID = 1 // a buffer with a counter that all senders of a process add to
)

// pair names a conversation: lives of a sending and of a receiving process.
type pair struct{ from, fromLife, to, toLife int }

// id is the number of the receiver's buffer.
func (c pair) id() uint32 { return uint32(c.from+1)<<20 | uint32(c.fromLife) }

// planned is message n of a conversation, as both sides know it without being told.
type planned struct {
	n                   uint32
	off, size           int
	notify, async, long bool
	seed                uint32
}

func (p planned) end() int { return p.off + p.size } // its last word is before

func (c pair) plan(n uint32) planned {
	mixed := uint64(c.from)<<48 ^ uint64(c.fromLife)<<36 ^ uint64(c.to)<<32 ^ uint64(c.toLife)<<20
	r := rand.New(rand.NewPCG(mixed, uint64(n)))
	p := planned{n: n, notify: r.IntN(5) == 0, async: r.IntN(3) == 0, seed: r.Uint32()}
	words, end := 1, ringAt+int(n%ring)*slot+slot
	switch d := r.IntN(100); {
	case d < 25:
	case d < 50:
		words = 16
	case d < 83:
		words = 2 + r.IntN(256)
	case d < 98:
		words = 1 + r.IntN(slot/4)
	default:
		words, end, p.long = (64<<10+r.IntN(longMost-64<<10))/4, bufferSize, true
	}
	p.size, p.off = 4*words, end-4*words
	return p
}

// fill writes the message's contents: every word tells it from others, the last is its number.
func (p planned) fill(b []byte) {
	for i := 0; i < p.size-4; i += 4 {
		binary.LittleEndian.PutUint32(b[i:], p.word(i))
	}
	binary.LittleEndian.PutUint32(b[p.size-4:], p.n)
}

func (p planned) word(i int) uint32 { return p.seed + uint32(i)*2654435761 }

// wrong is the offset of the first byte that is not the message's, or -1.
func (p planned) wrong(b []byte) int {
	for i := 0; i < p.size-4; i += 4 {
		if binary.LittleEndian.Uint32(b[i:]) != p.word(i) {
			return i
		}
	}
	return -1
}

// notes are how many of the messages 1 to n are to notify.
func (c pair) notes(n uint32) (count uint64) {
	for i := uint32(1); i <= n; i++ {
		if c.plan(i).notify {
			count++
		}
	}
	return count
}
