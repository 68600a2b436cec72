package pacing

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/wire"
)

// Only a burst that was full and took no time makes the next one larger, and one that took long
// makes it smaller.
func TestBurstGrows(t *testing.T) {
	quick, slow := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	b := Burst{LowRTT: true}
	full := func(at time.Time, size, want int) {
		t.Helper()
		n := 1
		for b.AddPart(n, size) {
			n++
		}
		if !b.FullSince.IsZero() {
			b.FullSince = at
		}
		b.Written()
		if got := b.MaxParts(); got != want {
			t.Errorf("after a burst of %d parts of %d bytes the next has %d, want %d", n, size, got, want)
		}
	}
	const long = 64<<10 - 4
	for _, want := range []int{8, 16, 16} {
		full(quick, long, want)
	}
	b.AddPart(1, Chunk)
	b.Written()
	if b.MaxParts() != MaxParts {
		t.Error("a burst that was not full changes the next")
	}
	for _, want := range []int{8, 4, 4} {
		full(slow, long, want)
	}
	for range 3 {
		full(quick, 1<<10, MinParts)
	}
	b = Full()
	full(slow, 1<<10, MaxParts)
	b = Burst{}
	for range 3 {
		if b.AddPart(MinParts, Chunk) || !b.AddPart(MinParts-1, Chunk) || !b.FullSince.IsZero() {
			t.Fatal("without a low RTT a burst does not stay the same")
		}
		b.Written()
	}
}

// A frame to a low-RTT peer is as long as the burst has room for, one to another peer no longer
// than a chunk. A burst weighs its chunks.
func TestFrameFillsBurst(t *testing.T) {
	b := Burst{LowRTT: true}
	for _, c := range []struct {
		count, size int
		more        bool
		most        int
	}{{1, Chunk / 2, true, MinParts*Chunk - Chunk/2}, {2, 3 * Chunk, true, Chunk}, {3, Chunk/2 - 4, false, Chunk}} {
		if more := b.AddPart(c.count, c.size); more != c.more || b.MaxPayload() != c.most {
			t.Errorf("after part %d, of %d bytes: another %t, of %d bytes, want %t, %d", c.count, c.size, more, b.MaxPayload(), c.more, c.most)
		}
	}
	b.Bytes += 4
	if w := b.Weight(3); w != 4 {
		t.Errorf("three frames of %d bytes weigh %d chunks, want 4", b.Bytes, w)
	}
	if w := b.Weight(9); w != 9 {
		t.Errorf("nine frames weigh %d chunks", w)
	}
	b.FullSince = time.Time{}
	b.Written()
	if b.MaxPayload() != MinParts*Chunk {
		t.Errorf("after a burst a frame may have %d bytes, want %d", b.MaxPayload(), MinParts*Chunk)
	}
	if b = Full(); b.MaxPayload() != wire.MaxChunk {
		t.Errorf("a frame that is the largest burst may have %d bytes, want %d", b.MaxPayload(), wire.MaxChunk)
	}
	b.LowRTT = false
	if b.AddPart(1, Chunk); b.MaxPayload() != Chunk {
		t.Errorf("without a low RTT a frame may have %d bytes, want %d", b.MaxPayload(), Chunk)
	}
}

// The bytes in flight are those written and not acknowledged, as far as the sizes are remembered.
func TestInFlightBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var f InFlight
		sizes := map[uint64]uint64{}
		seq := uint64(0)
		for range rng.IntN(60) {
			seq += 1 + rng.Uint64N(3) // those between are short
			sizes[seq] = 1 + rng.Uint64N(1<<20)
			f.Add(seq, int(sizes[seq]))
			acked, want, n := rng.Uint64N(seq+1), uint64(0), 0
			for s := seq; s > acked; s-- {
				if size := sizes[s]; size > 0 && n < len(f.recent)-1 {
					want += size
					n++
				}
			}
			if got := f.After(acked); got < want || n < len(f.recent)-1 && got != want {
				t.Fatalf("%d bytes beyond %d of %d messages up to %d, want %d", got, acked, f.n, seq, want)
			}
		}
	}
}
