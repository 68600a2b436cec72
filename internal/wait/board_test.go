package wait

import (
	"sync/atomic"
	"testing"
)

// A message's bytes, at any place and of any length, concern the sleepers for a word with one of
// them in it, and no others.
func TestConcerns(t *testing.T) {
	const word, size = 32, 4
	for _, origin := range []uint64{0, 1 << 40, ^uint64(0) - word - 1} { // places may go round
		b := board(new(atomic.Uint32))
		sign := b.add(&Cond{Addr: origin + word})
		for at := uint64(1); at < 2*word; at++ {
			for n := uint64(1); n <= word; n++ {
				want := at < word+size && word < at+n
				if got := b.Concerns(origin+at, int(n)); got != want {
					t.Errorf("%d bytes at %d, a word at %d: %v", n, at, word, got)
				}
			}
		}
		b.remove(sign)
	}
}
