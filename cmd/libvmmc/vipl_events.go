//go:build linux && cgo

package main

// #include "boundary.h"
import "C"

import (
	"context"
	"log/slog"
	"slices"
	"sync"

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
		l.vipl.streams[C.VMMCB_VIP_NOTIFIES].add(e)
	}
	if recv {
		return x.vi.ReceiveNotify(h)
	}
	return x.vi.SendNotify(h)
}
