// Package semaphore has callers wait for their turn, each as long as its context lets it. A channel with as
// many elements as there may be at a time does the same, with 350 instructions instead of 24 where nobody waits.
package semaphore

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync/atomic"
)

// Semaphore are so many at a time. Those who wait get them in the order in which they began to.
type Semaphore struct {
	limit   int32
	handoff chan struct{} // turns on their way from who had one to who waits

	// count is who has a turn and who waits for one, together: beyond most, all turns are had or
	// handed, and whoever gives one up hands it on. So somebody who waits may leave as long as there
	// are more than most; else the one that is handed on is there for it to take.
	count atomic.Int32
}

// New gives turns of which most can be had at a time, but one at least.
func New(limit int) *Semaphore {
	limit = min(max(limit, 1), math.MaxInt32/2) // so that those who wait can be counted too
	return &Semaphore{limit: int32(limit), handoff: make(chan struct{}, limit)}
}

// ErrStopped says that what a wait was bounded by is over.
var ErrStopped = errors.New("the wait was stopped")

// Acquire waits for a turn. An error is the context's cause; without having to wait there is none. All that
// was done before a Give that makes room can be seen after it.
func (t *Semaphore) Acquire(ctx context.Context) error { return t.AcquireUntil(ctx, nil) }

// TryAcquire takes a turn if there is one without a wait, and reports whether it did.
func (t *Semaphore) TryAcquire() bool {
	for {
		n := t.count.Load()
		if n >= t.limit {
			return false
		}
		if t.count.CompareAndSwap(n, n+1) { // as in Take
			return true
		}
	}
}

// AcquireUntil is Take whose wait ends also when over is closed, with [ErrStopped].
func (t *Semaphore) AcquireUntil(ctx context.Context, over <-chan struct{}) error {
	if t.count.Add(1) <= t.limit { // which orders it after the Add of the Give before
		return nil
	}
	return t.wait(ctx, over)
}

func (t *Semaphore) wait(ctx context.Context, over <-chan struct{}) (err error) {
	select {
	case <-t.handoff:
		return nil
	case <-over:
		err = ErrStopped
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	t.abandon()
	return err
}

// abandon ends a wait without a turn.
func (t *Semaphore) abandon() {
	for {
		if n := t.count.Load(); n > t.limit {
			if t.count.CompareAndSwap(n, n-1) {
				return
			}
			continue
		}
		select {
		case <-t.handoff:
			t.Release()
			return
		default: // who has counted itself off already is about to hand it on
			runtime.Gosched()
		}
	}
}

// Release ends a turn. It never waits.
func (t *Semaphore) Release() {
	if t.count.Add(-1) >= t.limit {
		t.handoff <- struct{}{} // there is room: no more than most are had and handed
	}
}
