package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/mpi"
)

// untilWaiters returns when so many ranks wait for the lock of rank 0's memory.
func untilWaiters(t *testing.T, w *mpi.Win[int64], n int) {
	t.Helper()
	for ctx := within(t); ; time.Sleep(time.Millisecond) {
		got, err := w.LockWaiters(0)
		if err != nil {
			t.Fatal(err)
		}
		if got == n {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%d ranks wait, want %d", got, n)
		}
	}
}

// Ranks get a lock in the order in which they came, whichever types they want: a stream of sharers does not
// keep one out that wants it alone. Sharers that follow each other have it at the same time.
func TestLockOrder(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			const size = 7
			world := job(t, w, size)
			ws := windows[int64](t, world, 1)
			kinds := []mpi.LockType{
				0, mpi.LockExclusive, mpi.LockShared, mpi.LockShared, mpi.LockExclusive, mpi.LockShared, mpi.LockExclusive,
			}
			if err := ws[0].Lock(within(t), mpi.LockShared, 0); err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var order []int
			var wg sync.WaitGroup
			var both sync.WaitGroup
			both.Add(2)
			for rank := 1; rank < size; rank++ {
				wg.Go(func() {
					ctx, w := within(t), ws[rank]
					if err := w.Lock(ctx, kinds[rank], 0); err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					order = append(order, rank)
					mu.Unlock()
					if rank == 2 || rank == 3 { // until both have it
						both.Done()
						both.Wait()
					}
					if err := w.Unlock(ctx, 0); err != nil {
						t.Error(err)
					}
				})
				untilWaiters(t, ws[0], rank)
			}
			if err := ws[0].Unlock(within(t), 0); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			if len(order) == size-1 && order[1] > order[2] {
				order[1], order[2] = order[2], order[1]
			}
			if err := differs("order", order, []int{1, 2, 3, 4, 5, 6}); err != nil {
				t.Error(err)
			}
			untilWaiters(t, ws[0], 0)
		})
	}
}

// Ranks lock memory in all ways at random, and some give up. A rank that has it alone is alone, and none is
// left waiting.
func TestLockModel(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			world := job(t, w, 5)
			ws := windows[int64](t, world, 2)
			var alone [5]int64
			each(t, world, func(ctx context.Context, c *mpi.Comm) error {
				w, random := ws[c.Rank()], rand.New(rand.NewPCG(uint64(c.Rank()), 7))
				for range 60 {
					kind := mpi.LockShared
					if random.IntN(2) == 0 {
						kind = mpi.LockExclusive
					}
					short, stop := ctx, context.CancelFunc(func() {})
					if random.IntN(3) == 0 {
						short, stop = context.WithTimeout(ctx, time.Duration(random.IntN(300))*time.Microsecond)
					}
					err := w.Lock(short, kind, 0)
					stop()
					if errors.Is(err, mpi.ErrCanceled) && ctx.Err() == nil {
						continue
					}
					if err != nil {
						return err
					}
					pair := make([]int64, 2)
					if err := w.Get(ctx, pair, 0, 0); err != nil {
						return err
					}
					if pair[0] != pair[1] {
						return fmt.Errorf("half of a change: %v: %w", pair, errWrong)
					}
					if kind == mpi.LockExclusive {
						alone[c.Rank()]++
						for i := range pair { // not at once
							if err := w.Put(ctx, []int64{pair[i] + 1}, 0, i); err != nil {
								return err
							}
						}
					}
					if err := w.Unlock(ctx, 0); err != nil {
						return err
					}
				}
				return nil
			})
			want := int64(0)
			for _, n := range alone {
				want += n
			}
			if err := differs("changes", ws[0].Values(), []int64{want, want}); err != nil {
				t.Error(err)
			}
			untilWaiters(t, ws[0], 0)
		})
	}
}

// A rank that is killed matters for a lock only if it had it.
func TestKilledMatters(t *testing.T) {
	for _, w := range ways {
		for _, does := range []string{"nothing", "waits", "shares and waits", "shared"} {
			t.Run(w.name+", it "+does, func(t *testing.T) {
				killedMatters(t, w, does)
			})
		}
	}
}

func killedMatters(t *testing.T, w way, does string) {
	cs, ws, last := windowJob(t, w, 4, does)
	ctx := within(t)
	waiters := 2
	kind := mpi.LockExclusive // of rank 0
	if does == "shared" {
		kind = mpi.LockShared
	}
	if err := ws[0].Lock(ctx, kind, 0); err != nil {
		t.Fatal(err)
	}
	if does == "waits" || does == "shares and waits" { // it is before the others
		if err := mpi.Send(ctx, cs[0], []int{0}, 3, ready); err != nil {
			t.Fatal(err)
		}
		untilWaiters(t, ws[0], 1)
		waiters++
	}
	got := make(chan error, 2)
	for i, kind := range []mpi.LockType{mpi.LockExclusive, mpi.LockShared} {
		w := ws[i+1]
		go func() {
			err := w.Lock(ctx, kind, 0)
			if err == nil {
				err = w.Unlock(ctx, 0)
			}
			got <- err
		}()
		untilWaiters(t, ws[0], waiters-1+i)
	}
	last.Kill()
	if does == "shared" { // the one that wants it alone fails, and so the other one has it
		a, b := <-got, <-got
		if a == nil {
			a, b = b, a
		}
		if !errors.Is(a, mpi.ErrProcFailed) || b != nil {
			t.Errorf("a rank that is gone shared the lock: %v, %v", a, b)
		}
	}
	// The end is known, and rank 0 has the lock still.
	for cs[0].GetFailed().Size() == 0 {
		if ctx.Err() != nil {
			t.Fatal("the end is not known")
		}
		time.Sleep(time.Millisecond)
	}
	if does != "shared" {
		select {
		case err := <-got:
			t.Errorf("a rank has not waited for one that lives: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err := ws[0].Unlock(ctx, 0); err != nil {
		t.Fatal(err)
	}
	if does != "shared" {
		if err := errors.Join(<-got, <-got); err != nil {
			t.Errorf("a rank that is gone, and had no lock: %v", err)
		}
		// The lock goes on, also for those that come later.
		each(t, cs, func(ctx context.Context, c *mpi.Comm) error {
			w := ws[c.Rank()]
			for range 5 {
				for _, kind := range []mpi.LockType{mpi.LockExclusive, mpi.LockShared} {
					if err := w.Lock(ctx, kind, 0); err != nil {
						return err
					}
					if err := w.Unlock(ctx, 0); err != nil {
						return err
					}
				}
			}
			return nil
		})
	} else if err := ws[2].Lock(ctx, mpi.LockExclusive, 0); !errors.Is(err, mpi.ErrProcFailed) {
		t.Errorf("a lock that a rank shared which is gone: %v", err)
	}
	endAll(t, cs)
}
