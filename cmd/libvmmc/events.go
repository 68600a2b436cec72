//go:build linux && cgo

package main

// #include "boundary.h"
import "C"

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/link"
)

// events are those that the program has not taken yet. They are kept from the first call of
// vmmcx_next_event on.
type events struct {
	begin sync.Once
	more  chan struct{} // Has room for one: there are events.

	mu      sync.Mutex
	waiting []event // Guarded by mu, as what follows.
	links   int     // Of connections that broke and of those that go on, which a peer can repeat at will.
}

// event is one of them.
type event struct {
	vmmc.Event
	given *given // nil unless C was given it before
}

// given is an event as C has it in a record.
type given struct {
	out  [4]C.uint64_t
	name []byte
}

// maxLinkEvents bounds the events of connections that wait.
const maxLinkEvents = 1024

func ofConnection(e vmmc.Event) bool {
	return e.Kind == vmmc.LinkDown || e.Kind == vmmc.LinkResumed
}

// add keeps an event. It is called when the event happens, perhaps under locks of package vmmc.
func (q *events) add(e vmmc.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ofConnection(e) {
		if q.links >= maxLinkEvents {
			return
		}
		q.links++
	}
	q.waiting = append(q.waiting, event{Event: e})
	q.wake()
}

// wake has one waiter look. mu is held.
func (q *events) wake() {
	select {
	case q.more <- struct{}{}:
	default:
	}
}

func (q *events) take() (e event, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return e, false
	}
	e, q.waiting[0] = q.waiting[0], event{}
	q.waiting = q.waiting[1:]
	if ofConnection(e.Event) {
		q.links--
	}
	if len(q.waiting) > 0 { // another thread may wait too
		q.wake()
	}
	return e, true
}

// giveBack makes the event of a record the next one again: the call that asked for it was left by
// siglongjmp, or its thread has ended, before the program had the event.
func (q *events) giveBack(r *record) {
	e := event{given: &given{out: r.out, name: bytes.Clone(r.given())}}
	e.Kind = vmmc.EventKind(uint32(r.out[0]))
	q.mu.Lock()
	defer q.mu.Unlock()
	if ofConnection(e.Event) {
		q.links++
	}
	q.waiting = slices.Insert(q.waiting, 0, e)
	q.wake()
}

// nextEvent is vmmcx_next_event.
func (l *library) nextEvent(ctx context.Context, p *vmmc.Process, r *record) error {
	const op = "wait for an event"
	if vmmc.InHandler() { // which must not wait
		return &vmmc.Error{Op: op, Code: vmmc.ErrNotInHandler, Err: vmmc.ErrNotInHandler}
	}
	q := &l.events
	q.begin.Do(func() {
		link.ProcessesOutside.Events(p, func(e any) { q.add(e.(vmmc.Event)) })
	})
	ctx, cancel := within(ctx, r.in[0])
	defer cancel()
	for {
		if e, ok := q.take(); ok {
			l.giveEvent(e, r)
			return nil
		}
		select {
		case <-q.more:
		case <-ctx.Done():
			return &vmmc.Error{Op: op, Code: endOf(ctx.Err()), Err: errors.New("none has come")}
		}
	}
}

func (l *library) giveEvent(e event, r *record) {
	if e.given != nil {
		r.out = e.given.out
		r.put(e.given.name)
		return
	}
	r.out[0] = C.uint64_t(e.Kind)
	if e.Err != nil {
		r.out[0] |= C.uint64_t(uint32(codeOf(e.Err))) << 32
	}
	r.out[1], r.out[2] = l.nodes.number(e.Peer.Node), C.uint64_t(e.Peer.PID)
	switch {
	case e.Import != nil:
		r.out[3] = l.imports.handleOf(func(i *imported) bool { return i.im.Load() == e.Import })
	case e.Export != nil:
		r.out[3] = l.exports.handleOf(func(x *exported) bool { return x.e == e.Export })
	}
	r.put(append([]byte(e.Name), 0))
}
