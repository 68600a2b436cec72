package link

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/wire"
)

// What is kept of messages until they are acknowledged, on links that survive their
// connection. A short message's frame is made in memory that is kept, and written to the
// socket from there, so it is copied once, as without that. Longer ones, and
// asynchronous ones, stay where they are: their senders wait, or the request is not over.

// The bounds of what copies take.
const (
	keptByLink   = 1 << 20
	keptByEngine = 32 << 20
	keptMessages = 4 * maxQueue // that stay where they are
)

// segment holds frames, one after another.
type segment struct {
	buf  []byte
	end  int
	last uint64 // number of the last message in it
	big  bool
}

const (
	smallSegment = 16 << 10
	bigSegment   = 128 << 10
	bigFrame     = smallSegment / 4 // from here on they go to big segments
)

// store is what all links of an engine take their segments from.
type store struct {
	taken      atomic.Int64
	small, big sync.Pool
}

func (s *store) get(big bool) *segment {
	pool, size := &s.small, smallSegment
	if big {
		pool, size = &s.big, bigSegment
	}
	if s.taken.Add(int64(size)) > keptByEngine {
		s.taken.Add(-int64(size))
		return nil
	}
	if g, ok := pool.Get().(*segment); ok {
		return g
	}
	return &segment{buf: make([]byte, size), big: big}
}

func (s *store) put(g *segment) {
	s.taken.Add(-int64(len(g.buf)))
	g.end, g.last = 0, 0
	if g.big {
		s.big.Put(g)
	} else {
		s.small.Put(g)
	}
}

// kept is what an importing side keeps; with tmu.
type kept struct {
	from     *store
	segments []*segment
	open     [2]*segment // of each size, the one that is being filled
	bytes    int
	messages fifo[outgoing] // those that stay where they are, in the order of their numbers
}

// room gives memory for a frame of n bytes, nil when there is none. All up to acked need
// not be kept any more.
func (k *kept) room(n int, acked uint64) *segment {
	i := 0
	if n > bigFrame {
		i = 1
	}
	if g := k.open[i]; g != nil {
		if g.end+n <= len(g.buf) {
			return g
		}
		if g.last <= acked { // again, while it is in the processor's cache
			g.end = 0
			return g
		}
	}
	k.trim(acked)
	size := smallSegment
	if i == 1 {
		size = bigSegment
	}
	if k.bytes+size > keptByLink {
		return nil
	}
	g := k.from.get(i == 1)
	if g == nil {
		return nil
	}
	k.bytes += size
	k.segments = append(k.segments, g)
	k.open[i] = g
	return g
}

// trim gives back what all up to acked took.
func (k *kept) trim(acked uint64) {
	k.segments = slices.DeleteFunc(k.segments, func(g *segment) bool {
		if g.last > acked {
			return false
		}
		for i := range k.open {
			if k.open[i] == g {
				k.open[i] = nil
			}
		}
		k.bytes -= len(g.buf)
		k.from.put(g)
		return true
	})
	k.drop(acked)
}

// drop forgets messages whose memory is their senders' again.
func (k *kept) drop(acked uint64) {
	for k.messages.len() > 0 && k.messages.at(0).seq <= acked {
		k.messages.pop()
	}
}

// of gives message seq if it is one that stays where it is.
func (k *kept) of(seq uint64) *outgoing {
	all := k.messages.items[k.messages.head:]
	i, ok := slices.BinarySearchFunc(all, seq, func(q outgoing, seq uint64) int {
		switch {
		case q.seq < seq:
			return -1
		case q.seq > seq:
			return 1
		}
		return 0
	})
	if !ok {
		return nil
	}
	return &all[i]
}

// frames calls f for each frame of which there is a copy, of messages after number seq.
func (k *kept) frames(seq uint64, f func(seq uint64, frame []byte)) {
	le := binary.LittleEndian
	for _, g := range k.segments {
		for b := g.buf[:g.end]; len(b) > 0; {
			n := wire.HeaderSize + int(le.Uint32(b[32:]))
			if s := le.Uint64(b[8:]); s > seq {
				f(s, b[:n:n])
			}
			b = b[n:]
		}
	}
}
