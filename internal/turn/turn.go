// Package turn has callers wait for their turn, each as long as its context lets it. A channel with as
// many elements as there may be at a time does the same, with 350 instructions instead of 24 where nobody waits.
package turn

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync/atomic"
)

// Turns are so many at a time. Those who wait get them in the order in which they began to.
type Turns struct {
	most   int32
	handed chan struct{} // turns on their way from who had one to who waits

	// wanted is who has a turn and who waits for one, together: beyond most, all turns are had or
	// handed, and whoever gives one up hands it on. So somebody who waits may leave as long as there
	// are more than most; else the one that is handed on is there for it to take.
	wanted atomic.Int32
}

// New gives turns of which most can be had at a time, but one at least.
func New(most int) *Turns {
	most = min(max(most, 1), math.MaxInt32/2) // so that those who wait can be counted too
	return &Turns{most: int32(most), handed: make(chan struct{}, most)}
}

// ErrOver says that what a wait was bounded by is over.
var ErrOver = errors.New("nobody waits for turns any more")

// Take waits for a turn. An error is the context's cause; without having to wait there is none. All that
// was done before a Give that makes room can be seen after it.
func (t *Turns) Take(ctx context.Context) error { return t.TakeUntil(ctx, nil) }

// Try takes a turn if there is one without a wait, and reports whether it did.
func (t *Turns) Try() bool {
	for {
		n := t.wanted.Load()
		if n >= t.most {
			return false
		}
		if t.wanted.CompareAndSwap(n, n+1) { // as in Take
			return true
		}
	}
}

// TakeUntil is Take whose wait ends also when over is closed, with [ErrOver].
func (t *Turns) TakeUntil(ctx context.Context, over <-chan struct{}) error {
	if t.wanted.Add(1) <= t.most { // which orders it after the Add of the Give before
		return nil
	}
	return t.wait(ctx, over)
}

func (t *Turns) wait(ctx context.Context, over <-chan struct{}) (err error) {
	select {
	case <-t.handed:
		return nil
	case <-over:
		err = ErrOver
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	t.leave()
	return err
}

// leave ends a wait without a turn.
func (t *Turns) leave() {
	for {
		if n := t.wanted.Load(); n > t.most {
			if t.wanted.CompareAndSwap(n, n-1) {
				return
			}
			continue
		}
		select {
		case <-t.handed:
			t.Give()
			return
		default: // who has counted itself off already is about to hand it on
			runtime.Gosched()
		}
	}
}

// Give ends a turn. It never waits.
func (t *Turns) Give() {
	if t.wanted.Add(-1) >= t.most {
		t.handed <- struct{}{} // there is room: no more than most are had and handed
	}
}
