package sendbuf

import (
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// TestMain checks that the tests leave no goroutine and no descriptor behind.
func TestMain(m *testing.M) { testutil.Main(m) }

// add builds the frame of message seq with a payload of n bytes, and reports whether there was
// memory for it.
func add(b *Buffer, seq uint64, n int, acked uint64) bool {
	g := b.Reserve(wire.HeaderSize+n, acked)
	if g == nil {
		b.Trim(acked)
		if g = b.Grow(wire.HeaderSize + n); g == nil {
			return false
		}
	}
	h := wire.Header{Type: wire.Data, Seq: seq, Chunk: uint32(n)}
	h.Put(g.Free(), uint32(seq))
	g.Add(wire.HeaderSize+n, seq)
	return true
}

// Frames are there until their messages are acknowledged, and their memory is given back then.
func TestFramesStayUntilAcknowledged(t *testing.T) {
	var p Pool
	b := Buffer{Pool: &p}
	const last = 1000
	for seq := uint64(1); seq <= last; seq++ {
		if !add(&b, seq, []int{8, 300, 5000}[seq%3], 0) {
			t.Fatalf("there is no memory for message %d", seq)
		}
		if seq%50 == 0 { // all of them do not fit
			b.Trim(seq - 20)
		}
	}
	found := map[uint64]int{}
	b.EachFrame(last-20, func(seq uint64, frame []byte) { found[seq] = len(frame) })
	for seq := uint64(last - 19); seq <= last; seq++ {
		if want := wire.HeaderSize + []int{8, 300, 5000}[seq%3]; found[seq] != want {
			t.Errorf("the frame of message %d has %d bytes, want %d", seq, found[seq], want)
		}
	}
	if len(found) != 20 {
		t.Errorf("%d frames are to be sent again, want 20", len(found))
	}
	if b.Trim(last); p.Allocated.Load() != 0 {
		t.Errorf("%d bytes are kept of acknowledged messages", p.Allocated.Load())
	}
}

// A link has no more memory than its part, and all links together no more than the pool's.
func TestMemoryIsBounded(t *testing.T) {
	var p Pool
	var links []*Buffer
	seq := uint64(0)
	for full := false; !full; {
		b := &Buffer{Pool: &p}
		links = append(links, b)
		n := 0
		for seq++; add(b, seq, 16<<10, 0); seq++ {
			n += 16 << 10
		}
		if full = p.Allocated.Load() == MaxPerPool; n > MaxPerLink || !full && n < MaxPerLink/2 {
			t.Fatalf("link %d has memory for %d bytes", len(links), n)
		}
	}
	if n := p.Allocated.Load(); n > MaxPerPool {
		t.Errorf("the links have %d bytes", n)
	}
	for _, b := range links {
		b.Trim(seq)
	}
	if n := p.Allocated.Load(); n != 0 {
		t.Errorf("%d bytes are not given back", n)
	}
}
