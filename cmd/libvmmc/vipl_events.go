//go:build linux && cgo

package main

// #include "boundary.h"
import "C"

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/via"
)

// viplEvent is a handler of the program that a thread of libvipl is to call.
type viplEvent C.struct_vmmcb_event

// viplHandler is a function of the program and what it is called with.
type viplHandler struct{ function, context C.uint64_t }

// eventStream is the events of one thread of libvipl. They wait for it here: nothing of package via
// waits for a handler of the program.
type eventStream struct {
	mu     sync.Mutex
	events []viplEvent   // Guarded by mu.
	ready  chan struct{} // has a token if there may be events
}

func (s *eventStream) add(e viplEvent) {
	s.mu.Lock()
	s.events = append(s.events, e)
	s.mu.Unlock()
	s.signal()
}

func (s *eventStream) signal() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// drop drops the events of a NIC that is closed.
func (s *eventStream) drop(nic C.uint64_t) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = slices.DeleteFunc(s.events, func(e viplEvent) bool { return e.nic == nic })
}

// next waits for an event.
func (s *eventStream) next(ctx context.Context) (viplEvent, error) {
	for {
		s.mu.Lock()
		if len(s.events) > 0 {
			e := s.events[0]
			s.events = slices.Delete(s.events, 0, 1)
			s.mu.Unlock()
			s.signal() // a token of several events was one
			return e, nil
		}
		s.mu.Unlock()
		select {
		case <-s.ready:
		case <-ctx.Done():
			return viplEvent{}, ctx.Err()
		}
	}
}

// vipEvent gives a thread of libvipl its next event.
func (l *library) vipEvent(ctx context.Context, r *record) error {
	e, err := l.vipl.streams[r.in[0]%C.VMMCB_VIP_STREAMS].next(ctx)
	if err == nil {
		give(r, &e)
	}
	return err
}

// Asynchronous errors.

// What package via does not raise itself.
const codeCompletionProtection = via.ErrorCode(8) // VIP_ERROR_COMP_PROT

// VIP_RESOURCE_CODE.
const (
	resourceVI         = 1
	resourceCQ         = 2
	resourceDescriptor = 3
)

// viplError is an asynchronous error.
type viplError struct {
	vi         *viplVI
	cq         *viplCQ
	descriptor uint64 // its address, or 0
	op         C.uint64_t
	code       via.ErrorCode
}

// vipOnError is VipErrorCallback. Function 0 restores the default.
func (l *library) vipOnError(_ context.Context, r *record) error {
	v, err := l.nic(r, "set the error handler")
	if err != nil {
		return err
	}
	h := viplHandler{r.in[1], r.in[2]}
	v.mu.Lock()
	v.onError = h
	v.mu.Unlock()
	if h.function == 0 {
		v.n.OnError(nil)
		return nil
	}
	v.n.OnError(func(a via.AsyncError) {
		e := viplError{code: a.Code}
		v.mu.RLock()
		e.vi, e.cq = v.vis[a.VI], v.cqs[a.CQ]
		v.mu.RUnlock()
		if a.Descriptor != nil { // it was refused, and is nobody's
			p := postedOf(a.Descriptor)
			e.descriptor, e.op = p.address(), p.op
		}
		l.vipl.raise(v, e)
	})
	return nil
}

// raise has the program's handler told an error, or the log if there is none.
func (v *vipl) raise(nic *viplNIC, a viplError) {
	nic.mu.RLock()
	h := nic.onError
	nic.mu.RUnlock()
	if h.function == 0 {
		slog.Warn("vipl: asynchronous error", "code", a.code.String(), "descriptor", a.descriptor)
		return
	}
	e := viplEvent{
		kind: C.VMMCB_VIP_ERROR, function: h.function, context: h.context, nic: nic.handle,
		descriptor: C.uint64_t(a.descriptor), op: a.op, resource: resourceVI, error: C.uint64_t(a.code),
	}
	if a.vi != nil {
		e.vi = a.vi.handle
	}
	switch {
	case a.cq != nil:
		e.cq, e.resource = a.cq.handle, resourceCQ
	case a.descriptor != 0 && a.code != via.Overrun:
		e.resource = resourceDescriptor
	}
	v.streams[C.VMMCB_VIP_ERRORS].add(e)
}

// Notify calls.

// notifier has the handlers that Notify calls have set for a queue. While there are any, a goroutine
// waits for the queue, and each gets one completion, in their order.
type notifier struct {
	ctx      context.Context //nolint:containedctx // ends with the VI or the completion queue
	attached bool            // reports whether the queue has a completion queue, and no handlers
	next     func(context.Context) (viplEvent, error)
	posts    chan struct{} // has a token if there may have been a post
	waits    atomic.Bool   // reports whether the goroutine waits for a post

	mu       sync.Mutex
	handlers []viplHandler // Guarded by mu.
	runs     bool          // Guarded by mu.
}

func (n *notifier) init(ctx context.Context, attached bool, next func(context.Context) (viplEvent, error)) {
	n.ctx, n.attached, n.next, n.posts = ctx, attached, next, make(chan struct{}, 1)
}

// add sets a handler for one completion.
func (n *notifier) add(v *vipl, h viplHandler) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.handlers = append(n.handlers, h)
	if !n.runs {
		n.runs = true
		go n.run(v)
	}
}

func (n *notifier) run(v *vipl) {
	for {
		e, err := n.await()
		n.mu.Lock()
		if err != nil { // the queue has ended
			n.handlers, n.runs = nil, false
			n.mu.Unlock()
			return
		}
		e.function, e.context = n.handlers[0].function, n.handlers[0].context
		n.handlers = n.handlers[1:]
		v.streams[C.VMMCB_VIP_NOTIFIES].add(e)
		if len(n.handlers) == 0 {
			n.runs = false
			n.mu.Unlock()
			return
		}
		n.mu.Unlock()
	}
}

// await waits for a completion. A queue that is empty is waited for, too.
func (n *notifier) await() (viplEvent, error) {
	n.waits.Store(true)
	defer n.waits.Store(false)
	for {
		e, err := n.next(n.ctx)
		if !errors.Is(err, via.ErrDescriptor) {
			return e, err
		}
		select {
		case <-n.posts:
		case <-n.ctx.Done():
			return viplEvent{}, n.ctx.Err()
		}
	}
}

// posted says that the queue has a descriptor.
func (n *notifier) posted() {
	if !n.waits.Load() {
		return
	}
	select {
	case n.posts <- struct{}{}:
	default:
	}
}

// takeFor waits for a descriptor of a queue, for a handler. An empty queue is ErrDescriptor.
func (l *library) takeFor(x *viplVI, recv bool) func(context.Context) (viplEvent, error) {
	return func(ctx context.Context) (viplEvent, error) {
		d, err := x.wait(ctx, recv)
		if d == nil {
			return viplEvent{}, err
		}
		e := viplEvent{kind: C.VMMCB_VIP_DESCRIPTOR, nic: x.nic.handle, vi: x.handle}
		if recv {
			e.receive = 1
		}
		e.descriptor = C.uint64_t(l.complete(d, recv))
		return e, nil
	}
}

func (l *library) vipNotify(_ context.Context, r *record) error {
	const op = "notify of a descriptor"
	x, err := l.viOf(r, op)
	if err != nil {
		return err
	}
	n := &x.queues[r.in[1]&1].notifys
	if n.attached {
		return refuse(op, via.ErrInvalidParameter, "the queue is attached to a completion queue: use VipCQNotify")
	}
	n.add(&l.vipl, viplHandler{r.in[2], r.in[3]})
	return nil
}
