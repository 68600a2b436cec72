package unix

import (
	"sync/atomic"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// A store to any of several words wakes the thread that sleeps on them, and a store before the
// sleep is never missed.
func TestWordSet(t *testing.T) {
	testutil.Require(t, CanSleepOnWords(), "futex_waitv needs Linux 5.16, and a sandbox that knows it")
	const words, rounds = 3, 3000
	var w [words]atomic.Uint32
	seen := make(chan int)
	go func() {
		defer close(seen)
		var s WordSet
		for last := [words]uint32{}; ; {
			s.Clear()
			at := -1
			for i := range w {
				if v := w[i].Load(); v != last[i] {
					last[i], at = v, i
				}
				s.Add(&w[i], last[i])
			}
			if at >= 0 {
				if last[at] == rounds {
					return
				}
				seen <- at
				continue
			}
			if which, err := s.Sleep(); err != nil || which >= words {
				t.Errorf("slept: %d, %v", which, err)
				return
			}
		}
	}()
	for i := range uint32(rounds) {
		at := int(i) % words
		w[at].Store(i + 1)
		Rouse(&w[at])
		if got, open := <-seen; open && got != at || !open && i+1 != rounds {
			t.Fatalf("round %d: word %d (%v), want %d", i, got, open, at)
		}
	}
}

func TestWordSetErrors(t *testing.T) {
	testutil.Require(t, CanSleepOnWords(), "futex_waitv needs Linux 5.16, and a sandbox that knows it")
	var s WordSet
	if _, err := s.Sleep(); err == nil {
		t.Error("slept on no word")
	}
	w := new(atomic.Uint32)
	s.Add(w, 1)
	if which, err := s.Sleep(); which != -1 || err != nil {
		t.Errorf("on a word of another value: %d, %v", which, err)
	}
}
