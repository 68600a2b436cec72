package semaphore_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmmc-go/vmmc/internal/semaphore"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// No more than may have one at a time do, and none is lost, though many give up waiting at just the
// moment when it is handed to them.
func TestLimit(t *testing.T) {
	const goroutines, rounds = 8, 2000
	for most := int32(1); most < 4; most++ {
		for _, patience := range []time.Duration{0, time.Microsecond, 50 * time.Microsecond, time.Hour} {
			turns := semaphore.New(int(most))
			var inside atomic.Int32
			var had, left atomic.Int64
			var wg sync.WaitGroup
			for range goroutines {
				wg.Go(func() {
					for range rounds {
						ctx, stop := context.WithTimeout(t.Context(), patience)
						if err := turns.Acquire(ctx); err != nil {
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
							turns.Release()
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
func all(t *testing.T, turns *semaphore.Semaphore, most int) {
	t.Helper()
	over, stop := context.WithCancel(t.Context())
	stop()
	for range most {
		if err := turns.Acquire(over); err != nil {
			t.Fatalf("a turn is missing: %v", err)
		}
	}
	if turns.Acquire(over) == nil {
		t.Fatal("there is a turn too many")
	}
	for range most {
		turns.Release()
	}
}

func TestFIFO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, waiting = 2, 6
		turns := semaphore.New(most)
		for range most {
			if err := turns.Acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		order := make(chan int, waiting)
		for i := range waiting {
			go func() {
				if err := turns.Acquire(t.Context()); err != nil {
					t.Error(err)
				}
				order <- i
			}()
			synctest.Wait()
		}
		for i := range waiting {
			turns.Release()
			if k := <-order; k != i {
				t.Fatalf("admission %d went to waiter %d", i+1, k+1)
			}
		}
	})
}

// A waiter that gives up is not waited for, and returns the cause.
func TestContextEndsAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := semaphore.New(1)
		if err := turns.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		why := errors.New("enough")
		ctx, stop := context.WithCancelCause(t.Context())
		went := make(chan error)
		go func() { went <- turns.Acquire(ctx) }()
		synctest.Wait()
		stop(why)
		if err := <-went; !errors.Is(err, why) {
			t.Fatalf("Take = %v, want %v", err, why)
		}
		turns.Release()
		all(t, turns, 1)
	})
}

// The end of what a wait is bounded by ends it, and nothing else.
func TestAcquireUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := semaphore.New(1)
		over := make(chan struct{})
		if err := turns.AcquireUntil(t.Context(), over); err != nil {
			t.Fatal(err)
		}
		went := make(chan error)
		go func() { went <- turns.AcquireUntil(t.Context(), over) }()
		synctest.Wait()
		close(over)
		if err := <-went; !errors.Is(err, semaphore.ErrStopped) {
			t.Fatalf("TakeUntil = %v, want %v", err, semaphore.ErrStopped)
		}
		turns.Release()
		all(t, turns, 1)
	})
}
