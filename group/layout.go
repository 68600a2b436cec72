package group

import (
	"encoding/binary"

	"github.com/vmmc-go/vmmc"
)

// The block is what a member exports for the others, with words that lie apart so that two writers
// share no cache line:
//
//	  64  slot[r]    the sequence that the in-partner of round r has reached
//	 832  failure[i] the least failure that partner i knows
//	2368  notice[i]  rank+1 of a dead member, with a notification
//	3904  left[i]    1: partner i leaves in order
//	4096  cell[parity][j], of Exchange: the value of the member j ranks before this one
//
// Edge r is the in-partner of round r, and maxRounds+r the out-partner. Each word and cell has one
// writer. Sequences are compared by their difference: a writer is at most one ahead, because the
// next collective ends only after this member has entered it.
const (
	maxRounds = 12
	line      = 64

	slotsAt    = 64
	failuresAt = slotsAt + maxRounds*line
	noticesAt  = failuresAt + 2*maxRounds*line
	leftAt     = noticesAt + 2*maxRounds*line
	cellsAt    = 4096

	valueSize = 240 // then the fingerprint of its type and the sequence
	cellSize  = 256

	wordSize = 4
)

func slotAt(round int) int   { return slotsAt + round*line }
func failureAt(edge int) int { return failuresAt + edge*line }
func noticeAt(edge int) int  { return noticesAt + edge*line }
func leaveAt(edge int) int   { return leftAt + edge*wordSize }

// cellAt is where cell j of sequence s lies. Two parities suffice: a member that writes for s+2 has
// ended s+1, so that all have entered it and have read what was sent for s.
func (g *Group) cellAt(s uint32, j int) int { return cellsAt + (int(s&1)*g.size+j)*cellSize }

func (g *Group) blockSize() int {
	if g.size == 1 {
		return cellsAt
	}
	return cellsAt + 2*g.size*cellSize
}

// label names the block, so that a member of another group, or of another version, is refused.
func label(size, rank int) []byte {
	b := append(make([]byte, 0, 14), "group\x01"...)
	b = binary.LittleEndian.AppendUint32(b, uint32(size))
	return binary.LittleEndian.AppendUint32(b, uint32(rank))
}

// takeWords finds the words that this member waits for.
func (g *Group) takeWords() (err error) {
	word := func(off int) (w vmmc.Word) {
		if err == nil {
			w, err = g.block.Word(off)
		}
		return w
	}
	for r := range g.rounds {
		g.slots = append(g.slots, word(slotAt(r)))
		for _, edge := range []int{r, maxRounds + r} {
			g.failures[edge] = word(failureAt(edge))
			g.watches = append(g.watches, vmmc.Watch{Word: g.failures[edge]})
		}
	}
	for edge := range g.left {
		g.left[edge] = word(leaveAt(edge))
	}
	return err
}

func wordBytes(w uint32) []byte { return binary.NativeEndian.AppendUint32(nil, w) }

const sequenceBits = 19

// word is a failure as a word, which is not 0.
func (f *failure) word() uint32 {
	return uint32(f.rank+1)<<sequenceBits | f.seq&(1<<sequenceBits-1)
}

// failureOf reads a failure word near sequence s.
func failureOf(w, s uint32) failure {
	const up = 32 - sequenceBits
	return failure{rank: int(w>>sequenceBits) - 1, seq: s + uint32(int32(w<<up-s<<up)>>up)}
}

// MaxSize is how many members a group may have.
//
// Experimental: it may change in any release.
const MaxSize = 4096
