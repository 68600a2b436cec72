package lock

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
)

// Once has one process run a function, until one has succeeded.
//
// Experimental: it may change in any release.
type Once struct {
	*client
	done atomic.Bool
}

// OpenOnce opens the Once that is hosted under a name. Errors as [Open].
//
// Experimental: it may change in any release.
func OpenOnce(ctx context.Context, p *vmmc.Process, name string) (*Once, error) {
	c, err := open(ctx, p, name, kindOnce)
	if err != nil {
		return nil, err
	}
	return &Once{client: c}, nil
}

// Do runs f if no process has run its function with success, and none runs it. While another one
// does, it waits: if that succeeds, Do returns nil, and if it fails or dies, the next one of those
// that wait runs its own. So what a dead process has done in part may be there when f begins. When
// f has returned nil, Do fences the process, and all others learn that it is done; what f has sent
// has arrived then. Once that is known here, Do is a load.
//
// Do returns nil when the host knows that a function has succeeded. No other function runs then,
// also if this process is killed.
//
// Errors: that of f, which another process may run then; those of [Mutex.Lock]; and, when f has
// succeeded, [vmmc.ErrPeerGone] and [vmmc.ErrRevoked] if the host cannot be told, and those of the
// context. If it ends before what f has sent has arrived, f counts as failed. If it ends later, the
// host is told, but may not know yet, and the error is also [vmmc.ErrOutcomeUnknown]: another call
// of Do finds out. f must not call Do.
//
// Experimental: it may change in any release.
func (o *Once) Do(ctx context.Context, f func(context.Context) error) error {
	if o.done.Load() {
		return nil
	}
	if err := o.acquire(ctx, "do"); err != nil {
		return err
	}
	if o.done.Load() {
		o.turn.Release()
		return nil
	}
	v, err := o.request(ctx, opRequest)
	if err != nil {
		return o.callError("do", err)
	}
	defer o.turn.Release()
	if o.isClosed() { // another process may run its function
		return closedError(o.op("do"))
	}
	switch v {
	case answerDone:
		o.done.Store(true)
		return nil
	case answerYours:
		return o.run(ctx, f)
	}
	return protocolError(o.op("do"), o.lane.Exporter(), "the host answers what was not asked")
}

// run runs f, and tells the host whether that succeeded.
func (o *Once) run(ctx context.Context, f func(context.Context) error) error {
	ended := false
	defer func() {
		if !ended { // f panics
			_ = o.giveBack(pair.NoWait, o.seq, false, nil)
		}
	}()
	pair.At("once.runs")
	err := f(ctx)
	if err == nil {
		pair.At("once.ran")
		if err = o.fence(ctx); err != nil {
			err = fmt.Errorf("%s: %w", o.op("do"), err)
		}
		pair.At("once.fenced")
	}
	ended = true
	tell := o.giveBack(ctx, o.seq, err == nil, nil)
	if err != nil {
		return err
	}
	if tell == nil { // if this process dies before it has arrived, another one runs its function
		if tell = o.lane.Fence(ctx); tell != nil && ctx.Err() != nil && o.lane.Err() == nil {
			tell = fmt.Errorf("%w (%w)", tell, vmmc.ErrOutcomeUnknown)
		}
	}
	if tell != nil {
		return o.callError("do", tell)
	}
	pair.At("once.told")
	o.done.Store(true)
	return nil
}

// Done reports whether this process knows that a function has succeeded.
//
// Experimental: it may change in any release.
func (o *Once) Done() bool { return o.done.Load() }

// Close leaves: calls that wait fail with [vmmc.ErrClosed]. A function of this process that runs
// counts as failed. Otherwise as [Mutex.Close].
//
// Experimental: it may change in any release.
func (o *Once) Close(ctx context.Context) error {
	return o.closeCall(ctx, func() bool { return false })
}
