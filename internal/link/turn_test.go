package link

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// One at a time has the turn, and it is never lost, though many give up waiting at just the
// moment when it is handed to them.
func TestTurnIsOneAtATime(t *testing.T) {
	const goroutines, rounds = 8, 3000
	for _, patience := range []time.Duration{0, time.Microsecond, 50 * time.Microsecond, time.Minute} {
		o := newTurn()
		var inside atomic.Int32
		var had, left atomic.Int64
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				for range rounds {
					ctx, stop := context.WithTimeout(t.Context(), patience)
					if err := o.take(ctx); err != nil {
						if !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("waiting for the turn ended in %v", err)
						}
						left.Add(1)
					} else {
						if inside.Add(1) != 1 {
							t.Error("two have the turn")
						}
						had.Add(1)
						inside.Add(-1)
						o.give()
					}
					stop()
				}
			})
		}
		wg.Wait()
		if n := o.wanted.Load(); n != 0 || len(o.handed) != 0 {
			t.Errorf("at the end %d are counted and %d handed", n, len(o.handed))
		}
		if patience == time.Minute && left.Load() > 0 {
			t.Errorf("%d gave up within a minute", left.Load())
		}
		t.Logf("patience %v: %d had it, %d gave up", patience, had.Load(), left.Load())
	}
}

// Who waits has the turn in the order of coming.
func TestTurnIsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTurn()
		if err := o.take(t.Context()); err != nil {
			t.Fatal(err)
		}
		const waiting = 5
		order := make(chan int, waiting)
		for i := range waiting {
			go func() {
				if err := o.take(t.Context()); err != nil {
					t.Error(err)
				}
				order <- i
				o.give()
			}()
			synctest.Wait()
		}
		o.give()
		for i := range waiting {
			if k := <-order; k != i {
				t.Fatalf("the %d. to have the turn was who came as the %d.", i+1, k+1)
			}
		}
	})
}

// Who gives up waiting is not waited for, and the turn is there for others.
func TestTurnIsGivenUp(t *testing.T) {
	o := newTurn()
	if err := o.take(t.Context()); err != nil {
		t.Fatal(err)
	}
	why := errors.New("enough")
	ctx, stop := context.WithCancelCause(t.Context())
	stop(why)
	if err := o.take(ctx); !errors.Is(err, why) {
		t.Fatalf("take = %v, want %v", err, why)
	}
	o.give()
	if err := o.take(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.give()
}
