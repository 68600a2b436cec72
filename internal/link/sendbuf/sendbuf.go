// Package sendbuf holds copies of frames until their messages are acknowledged, on links that
// survive their connection. A frame is built in the buffer and written to the socket from there, so
// it is copied once, as without the buffer.
package sendbuf

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/wire"
)

// Bounds of the memory for copies.
const (
	MaxPerLink = 1 << 20
	MaxPerPool = 32 << 20
)

const (
	smallSegment = 16 << 10
	bigSegment   = 128 << 10
	bigFrame     = smallSegment / 4 // Frames from this size on go to big segments.
)

// Segment holds frames, one after another.
type Segment struct {
	buf     []byte
	end     int
	lastSeq uint64 // Number of the last message in it.
	big     bool
}

// Free returns the memory for the next frame.
func (g *Segment) Free() []byte { return g.buf[g.end:] }

// Add records that a frame of n bytes, of message seq, was built there.
func (g *Segment) Add(n int, seq uint64) { g.end, g.lastSeq = g.end+n, seq }

// Pool provides the segments of all links of a process.
type Pool struct {
	Allocated  atomic.Int64 // Bytes of the segments in use.
	small, big sync.Pool
}

func (p *Pool) get(big bool) *Segment {
	pool, size := &p.small, smallSegment
	if big {
		pool, size = &p.big, bigSegment
	}
	if p.Allocated.Add(int64(size)) > MaxPerPool {
		p.Allocated.Add(-int64(size))
		return nil
	}
	if g, ok := pool.Get().(*Segment); ok {
		return g
	}
	return &Segment{buf: make([]byte, size), big: big}
}

func (p *Pool) put(g *Segment) {
	p.Allocated.Add(-int64(len(g.buf)))
	g.end, g.lastSeq = 0, 0
	if g.big {
		p.big.Put(g)
	} else {
		p.small.Put(g)
	}
}

// Buffer holds the frames of one link. It has no lock of its own.
type Buffer struct {
	Pool     *Pool
	segments []*Segment
	filling  [2]*Segment // The segment being filled, of each size.
	bytes    int
}

func sizeClass(n int) int {
	if n > bigFrame {
		return 1
	}
	return 0
}

// Reserve returns the segment being filled if it has memory for a frame of n bytes, or nil.
// Messages up to acked need not be retained any more.
func (b *Buffer) Reserve(n int, acked uint64) *Segment {
	g := b.filling[sizeClass(n)]
	if g == nil || g.end+n > len(g.buf) && !g.reuse(acked) {
		return nil
	}
	return g
}

// reuse empties a segment while it is in the CPU's cache, if all its messages are acknowledged.
func (g *Segment) reuse(acked uint64) bool {
	if g.lastSeq > acked {
		return false
	}
	g.end = 0
	return true
}

// Grow returns another segment with memory for a frame of n bytes, or nil where no more may be
// retained.
func (b *Buffer) Grow(n int) *Segment {
	i := sizeClass(n)
	size := smallSegment
	if i == 1 {
		size = bigSegment
	}
	if b.bytes+size > MaxPerLink {
		return nil
	}
	g := b.Pool.get(i == 1)
	if g == nil {
		return nil
	}
	b.bytes += size
	b.segments = append(b.segments, g)
	b.filling[i] = g
	return g
}

// Trim releases the memory of all messages up to acked.
func (b *Buffer) Trim(acked uint64) {
	b.segments = slices.DeleteFunc(b.segments, func(g *Segment) bool {
		if g.lastSeq > acked {
			return false
		}
		for i := range b.filling {
			if b.filling[i] == g {
				b.filling[i] = nil
			}
		}
		b.bytes -= len(g.buf)
		b.Pool.put(g)
		return true
	})
}

// EachFrame calls f for each frame of messages after number seq.
func (b *Buffer) EachFrame(seq uint64, f func(seq uint64, frame []byte)) {
	le := binary.LittleEndian
	for _, g := range b.segments {
		for b := g.buf[:g.end]; len(b) > 0; {
			n := wire.HeaderSize + int(le.Uint32(b[32:]))
			if s := le.Uint64(b[8:]); s > seq {
				f(s, b[:n:n])
			}
			b = b[n:]
		}
	}
}
