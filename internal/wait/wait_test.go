package wait

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// board is one that only this process reads.
func board(count *atomic.Uint32) Board {
	b := Board{Count: count, Any: new(atomic.Uint32)}
	for i := range b.Words {
		b.Words[i] = new(atomic.Uint64)
	}
	return b
}

// asleep waits until n goroutines sleep.
func asleep(s *Sleepers, n uint32) {
	for s.Board.Count.Load() != n {
		runtime.Gosched()
	}
}

func TestWakeUpsAreNotLost(t *testing.T) {
	var word, count atomic.Uint32
	s := &Sleepers{Board: board(&count)}
	done := make(chan error)
	const rounds, sleepers = 2000, 3
	for range sleepers {
		go func() {
			for i := range uint32(rounds) {
				if _, err := s.Sleep(context.Background(), &Cond{Word: &word, Old: i}, nil, 0); err != nil {
					done <- err
					return
				}
				for word.Load() != i+1 { // the others have to see it too
					runtime.Gosched()
				}
				done <- nil
			}
		}()
	}
	for range rounds {
		word.Add(1)
		s.Wake()
		for range sleepers {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
	}
	asleep(s, 0)
}

func TestSleepEnds(t *testing.T) {
	var word, count atomic.Uint32
	s := &Sleepers{Board: board(&count)}
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := make(chan struct{})
	var broken atomic.Bool
	errs := make(chan error)
	look := Cond{Word: &word, Failed: &broken}
	go func() { _, err := s.Sleep(ctx, &look, stop, 0); errs <- err }()
	asleep(s, 1)
	cancel(why)
	if err := <-errs; !errors.Is(err, why) {
		t.Errorf("with its context: %v", err)
	}
	go func() { _, err := s.Sleep(t.Context(), &look, stop, 0); errs <- err }()
	asleep(s, 1)
	close(stop)
	if err := <-errs; !errors.Is(err, ErrStopped) {
		t.Errorf("when stopped: %v", err)
	}
	go func() { _, err := s.Sleep(t.Context(), &look, nil, 0); errs <- err }()
	asleep(s, 1)
	broken.Store(true)
	s.Wake()
	if err := <-errs; err != nil {
		t.Errorf("when broken: %v", err)
	}
	asleep(s, 0)
}

func TestLook(t *testing.T) {
	var word atomic.Uint32
	var broken atomic.Bool
	for name, c := range map[string]struct {
		l    Cond
		want bool
	}{
		"nothing":        {Cond{}, false},
		"the same word":  {Cond{Word: &word}, false},
		"another word":   {Cond{Word: &word, Old: 1}, true},
		"not yet":        {Cond{Until: func() bool { return false }}, false},
		"until":          {Cond{Word: &word, Until: func() bool { return true }}, true},
		"not broken yet": {Cond{Failed: &broken}, false},
	} {
		if got := c.l.Done(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	broken.Store(true)
	if l := (Cond{Word: &word, Failed: &broken}); !l.Done() {
		t.Error("broken: false")
	}
}

// A yield that comes back late says something only if nothing had come meanwhile.
func TestLateYields(t *testing.T) {
	var b Budget
	late := func(found bool) time.Duration {
		s := b.Begin(false)
		s.yields, s.lastLate = 1, true
		if found {
			s.Restart()
		}
		s.Next(0)
		s.End()
		return b.limit()
	}
	if late(true) != maxBudget {
		t.Error("a late yield that brought something makes the budget smaller")
	}
	for was, i := maxBudget, 0; i < 20; i++ {
		if is := late(false); is < minBudget || is >= was && was > minBudget {
			t.Errorf("after a late yield the budget is %v, it was %v", is, was)
		} else {
			was = is
		}
	}
	for i := 0; b.limit() < maxBudget; i++ {
		s := b.Begin(false)
		s.yields = 1
		s.End()
		if i == 100 {
			t.Fatalf("after %d yields in time the budget is %v", i, b.limit())
		}
	}
	s := b.Begin(false)
	s.End()
	if b.limit() != maxBudget {
		t.Error("a wait without a yield changes the budget")
	}
}

// Every phase of looking ends, and not between a yield and the look after it.
func TestLookingEnds(t *testing.T) {
	for _, shared := range []bool{false, true} {
		var b Budget
		b.shared.Store(shared)
		s := b.Begin(false)
		for yields := 0; s.Next(ownLooks); yields = s.yields {
			if s.yields == yields {
				t.Fatal("a look that cost as much as many was not followed by a yield")
			}
			s.lastLate = false
		}
		s.End()
	}
}

// A wait for something long may look for as many budgets, and as a budget shrinks, so does that.
func TestLongWaitsLookLonger(t *testing.T) {
	for _, budget := range []time.Duration{maxBudget, minBudget} {
		for long, times := range map[bool]time.Duration{false: 1, true: longBudgets} {
			var b Budget
			b.ns.Store(int64(budget))
			s := b.Begin(long)
			for s.limit == 0 {
				s.Next(1)
			}
			if s.limit != times*budget {
				t.Errorf("long %v: it looks for %v, want %d times %v", long, s.limit, times, budget)
			}
		}
	}
}

// OnSleep is called when a sleeper is counted, and before its last look.
func TestOnSleep(t *testing.T) {
	var count, word atomic.Uint32
	s := &Sleepers{Board: board(&count)}
	asleep := false
	s.OnSleep = func() {
		asleep = s.Asleep()
		word.Store(1) // what came with it
	}
	found, err := s.Sleep(t.Context(), &Cond{Word: &word}, nil, 0)
	if err != nil || !found || !asleep {
		t.Errorf("found: %v, %v; a sleeper was known: %v", found, err, asleep)
	}
}

// Arrivals do not wake a sleeper whose condition has NotArrivals.
func TestNotArrivals(t *testing.T) {
	var word, looks, count atomic.Uint32
	s := &Sleepers{Board: board(&count)}
	over := make(chan bool)
	l := Cond{Until: func() bool {
		found := word.Load() != 0 // before the look is counted
		looks.Add(1)
		return found
	}, NotArrivals: true}
	go func() {
		found, err := s.Sleep(context.Background(), &l, nil, time.Hour)
		over <- found && err == nil
	}()
	for looks.Load() == 0 { // its last look before it sleeps
		runtime.Gosched()
	}
	word.Store(1)
	s.Arrived()
	select {
	case <-over:
		t.Fatal("it was woken by what is not for it")
	case <-time.After(20 * time.Millisecond):
	}
	s.Wake()
	if !<-over {
		t.Error("it was woken, and has not found what it slept for")
	}
}
