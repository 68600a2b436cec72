//go:build linux && cgo

package main

// #include "boundary.h"
import "C"

import (
	"context"
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
	// current is the event that the thread has taken last, and idle is closed when the thread has come
	// back from its handler. idle is nil while no handler runs. Guarded by mu.
	current viplEvent
	idle    chan struct{}
}

// add appends an event, unless an object that it is of has ended.
func (s *eventStream) add(e viplEvent, ended ...*atomic.Bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range ended {
		if x.Load() { // under mu: what end has dropped does not come back
			return
		}
	}
	s.events = append(s.events, e)
	s.signal()
}

func (s *eventStream) signal() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// end drops the events of an object that has ended. If wait it returns when no handler runs for such
// an event: the program may free its context then.
func (s *eventStream) end(ctx context.Context, of func(e *viplEvent) bool, wait bool) {
	s.mu.Lock()
	s.events = slices.DeleteFunc(s.events, func(e viplEvent) bool { return of(&e) })
	idle := s.idle
	if !of(&s.current) {
		idle = nil
	}
	s.mu.Unlock()
	if idle == nil || !wait {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// next waits for an event. The thread, or the one in its place, has come back from the last handler.
func (s *eventStream) next(ctx context.Context) (viplEvent, error) {
	s.mu.Lock()
	if s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
	s.mu.Unlock()
	for {
		s.mu.Lock()
		if len(s.events) > 0 {
			e := s.events[0]
			s.events = slices.Delete(s.events, 0, 1)
			s.current, s.idle = e, make(chan struct{})
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
	v.streams[C.VMMCB_VIP_ERRORS].add(e, &nic.ended)
}

// vipNotify is VipSendNotify and VipRecvNotify.
func (l *library) vipNotify(_ context.Context, r *record) error {
	x, err := l.viOf(r, "notify of a descriptor")
	if err != nil {
		return err
	}
	recv := r.in[1] != 0
	e := viplEvent{
		kind: C.VMMCB_VIP_DESCRIPTOR, function: r.in[2], context: r.in[3], nic: x.nic.handle, vi: x.handle,
		receive: r.in[1],
	}
	h := func(d *via.Descriptor) {
		address, _ := l.complete(d, recv)
		e.descriptor = C.uint64_t(address)
		l.vipl.streams[C.VMMCB_VIP_NOTIFIES].add(e, &x.ended, &x.nic.ended)
	}
	if recv {
		return x.vi.ReceiveNotify(h)
	}
	return x.vi.SendNotify(h)
}
