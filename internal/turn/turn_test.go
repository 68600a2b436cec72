package turn_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/turn"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// No more than may have one at a time do, and none is lost, though many give up waiting at just the
// moment when it is handed to them.
func TestTurnsAreSoMany(t *testing.T) {
	const goroutines, rounds = 8, 2000
	for most := int32(1); most < 4; most++ {
		for _, patience := range []time.Duration{0, time.Microsecond, 50 * time.Microsecond, time.Hour} {
			turns := turn.New(int(most))
			var inside atomic.Int32
			var had, left atomic.Int64
			var wg sync.WaitGroup
			for range goroutines {
				wg.Go(func() {
					for range rounds {
						ctx, stop := context.WithTimeout(t.Context(), patience)
						if err := turns.Take(ctx); err != nil {
							if !errors.Is(err, context.DeadlineExceeded) {
								t.Errorf("waiting ended in %v", err)
							}
							left.Add(1)
						} else {
							if n := inside.Add(1); n > most {
								t.Errorf("%d have a turn, %d may", n, most)
							}
							had.Add(1)
							inside.Add(-1)
							turns.Give()
						}
						stop()
					}
				})
			}
			wg.Wait()
			all(t, turns, int(most))
			if patience == time.Hour && left.Load() > 0 {
				t.Errorf("%d gave up within an hour", left.Load())
			}
			t.Logf("%d at a time, patience %v: %d had one, %d gave up", most, patience, had.Load(), left.Load())
		}
	}
}

// all takes all that there should be, and looks whether there is one more.
func all(t *testing.T, turns *turn.Turns, most int) {
	t.Helper()
	over, stop := context.WithCancel(t.Context())
	stop()
	for range most {
		if err := turns.Take(over); err != nil {
			t.Fatalf("a turn is missing: %v", err)
		}
	}
	if turns.Take(over) == nil {
		t.Fatal("there is a turn too many")
	}
	for range most {
		turns.Give()
	}
}

func TestTurnsAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, waiting = 2, 6
		turns := turn.New(most)
		for range most {
			if err := turns.Take(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		order := make(chan int, waiting)
		for i := range waiting {
			go func() {
				if err := turns.Take(t.Context()); err != nil {
					t.Error(err)
				}
				order <- i
			}()
			synctest.Wait()
		}
		for i := range waiting {
			turns.Give()
			if k := <-order; k != i {
				t.Fatalf("the %d. turn went to who asked as the %d.", i+1, k+1)
			}
		}
	})
}

// Who gives up is not waited for, and says why.
func TestTurnIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := turn.New(1)
		if err := turns.Take(t.Context()); err != nil {
			t.Fatal(err)
		}
		why := errors.New("enough")
		ctx, stop := context.WithCancelCause(t.Context())
		went := make(chan error)
		go func() { went <- turns.Take(ctx) }()
		synctest.Wait()
		stop(why)
		if err := <-went; !errors.Is(err, why) {
			t.Fatalf("Take = %v, want %v", err, why)
		}
		turns.Give()
		all(t, turns, 1)
	})
}

// The end of what a wait is bounded by ends it, and nothing else.
func TestTurnIsWaitedForUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := turn.New(1)
		over := make(chan struct{})
		if err := turns.TakeUntil(t.Context(), over); err != nil {
			t.Fatal(err)
		}
		went := make(chan error)
		go func() { went <- turns.TakeUntil(t.Context(), over) }()
		synctest.Wait()
		close(over)
		if err := <-went; !errors.Is(err, turn.ErrOver) {
			t.Fatalf("TakeUntil = %v, want %v", err, turn.ErrOver)
		}
		turns.Give()
		all(t, turns, 1)
	})
}
