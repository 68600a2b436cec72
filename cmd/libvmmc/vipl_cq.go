//go:build linux && cgo

package main

// #include "boundary.h"
import "C"

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/via"
)

// viplCQ is a VIP_CQ_HANDLE.
type viplCQ struct {
	nic    *viplNIC
	c      *via.CompletionQueue
	handle C.uint64_t
	ended  atomic.Bool // reports whether it is destroyed
	poll   *viplPoll   // what C polls. Guarded by viplNIC.mu.
}

func (l *library) cqOf(r *record, op string) (*viplCQ, error) {
	return known(&l.vipl.cqs, r.in[0], op, "completion queue")
}

func (l *library) vipNewCQ(_ context.Context, r *record) error {
	const op = "create a completion queue"
	v, err := l.nic(r, op)
	if err != nil {
		return err
	}
	c, err := v.n.NewCompletionQueue(int(min(r.in[1], 1<<62)))
	if err != nil {
		return err
	}
	x := &viplCQ{nic: v, c: c}
	if x.handle, err = l.vipl.cqs.add(x); err != nil {
		return errors.Join(&via.Error{Op: op, Code: via.ErrResource, Err: err}, c.Destroy())
	}
	if !v.keep(func() {
		v.cqs[c] = x
		x.show(l)
	}) {
		l.vipl.cqs.remove(x.handle)
		return stale(op, "NIC")
	}
	r.out[1] = x.handle
	return nil
}

func (l *library) vipEndCQ(ctx context.Context, r *record) error {
	x, err := l.cqOf(r, "destroy a completion queue")
	if err != nil {
		return err
	}
	if err := x.c.Destroy(); err != nil {
		return err
	}
	l.vipl.cqs.remove(x.handle)
	x.nic.mu.Lock()
	delete(x.nic.cqs, x.c)
	x.hide(l)
	x.nic.mu.Unlock()
	x.ended.Store(true)
	l.vipl.streams[C.VMMCB_VIP_NOTIFIES].end(ctx, func(e *viplEvent) bool {
		return e.kind == C.VMMCB_VIP_COMPLETION && e.cq == x.handle
	}, r.in[1] == 0)
	return nil
}

func (l *library) vipResizeCQ(_ context.Context, r *record) error {
	x, err := l.cqOf(r, "resize a completion queue")
	if err != nil {
		return err
	}
	return x.c.Resize(int(min(r.in[1], 1<<62)))
}

func (l *library) vipCheckCQ(_ context.Context, r *record) error {
	_, err := l.cqOf(r, "use a completion queue")
	return err
}

// queueOf is C's name of the queue that a completion is of.
func (v *viplNIC) queueOf(c via.Completion) (vi, recv C.uint64_t) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if x := v.vis[c.VI]; x != nil {
		vi = x.handle
	}
	if c.Receive {
		recv = 1
	}
	return vi, recv
}

// vipTakeCQ is VipCQDone and VipCQWait.
func (l *library) vipTakeCQ(ctx context.Context, r *record) error {
	x, err := l.cqOf(r, "take a completion")
	if err != nil {
		return err
	}
	var c via.Completion
	if r.in[1] != 0 {
		var cancel context.CancelFunc
		ctx, cancel = within(ctx, r.in[2])
		defer cancel()
		c, err = x.c.Wait(ctx)
	} else {
		c, err = x.c.Done()
	}
	if err == nil {
		r.out[1], r.out[2] = x.nic.queueOf(c)
	}
	return err
}

func (l *library) vipNotifyCQ(_ context.Context, r *record) error {
	x, err := l.cqOf(r, "notify of a completion")
	if err != nil {
		return err
	}
	e := viplEvent{
		kind: C.VMMCB_VIP_COMPLETION, function: r.in[1], context: r.in[2], nic: x.nic.handle, cq: x.handle,
	}
	return x.c.Notify(func(c via.Completion) {
		e.vi, e.receive = x.nic.queueOf(c)
		l.vipl.streams[C.VMMCB_VIP_NOTIFIES].add(e, &x.ended, &x.nic.ended)
	})
}
