package link

import (
	"context"
	"runtime"
	"sync/atomic"
)

// turn is a lock that a context can end the wait for. Those who wait get it in the order in
// which they came. A channel of one element does the same, at ten times the instructions.
type turn struct {
	// wanted is who has it and who waits for it, together. It belongs to whoever makes it 1, and
	// then to who takes what is handed on, which happens once for each time that it is given back
	// while others are counted: so who is counted is either handed it or, as long as somebody
	// else is counted too, can still leave.
	wanted atomic.Int32
	handed chan struct{}
}

func newTurn() turn { return turn{handed: make(chan struct{}, 1)} }

func (t *turn) take(ctx context.Context) error {
	if t.wanted.Add(1) == 1 { // after the stores of who had it before: its Add in give comes first
		return nil
	}
	return t.wait(ctx)
}

func (t *turn) wait(ctx context.Context) error {
	select {
	case <-t.handed:
		return nil
	case <-ctx.Done():
	}
	for {
		if n := t.wanted.Load(); n > 1 {
			if t.wanted.CompareAndSwap(n, n-1) {
				return context.Cause(ctx)
			}
			continue
		}
		select {
		case <-t.handed: // there is nobody else whom it could be for
			t.give()
			return context.Cause(ctx)
		default: // it is about to be handed on, by who has counted down already
			runtime.Gosched()
		}
	}
}

func (t *turn) give() {
	if t.wanted.Add(-1) > 0 {
		t.handed <- struct{}{} // there is room: only who has the turn puts one there
	}
}
