//go:build linux && cgo

package main

// #include "boundary.h"
import "C"

import (
	"context"
	"errors"
	"sync"

	"github.com/vmmc-go/vmmc"
)

// events are those that the program has not taken yet. They are kept from the first call of
// vmmcx_next_event on.
type events struct {
	begin sync.Once
	more  chan struct{} // Has room for one: there are events.

	mu      sync.Mutex
	waiting []vmmc.Event // Guarded by mu, as what follows.
	links   int          // Of connections that broke and of those that go on, which a peer can repeat at will.
}

// maxLinkEvents bounds the events of connections that wait.
const maxLinkEvents = 1024

func ofConnection(e vmmc.Event) bool {
	return e.Kind == vmmc.LinkDown || e.Kind == vmmc.LinkResumed
}

// add is the library's handler of events.
func (q *events) add(e vmmc.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ofConnection(e) {
		if q.links >= maxLinkEvents {
			return
		}
		q.links++
	}
	q.waiting = append(q.waiting, e)
	q.wake()
}

// wake has one waiter look. mu is held.
func (q *events) wake() {
	select {
	case q.more <- struct{}{}:
	default:
	}
}

func (q *events) take() (e vmmc.Event, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return e, false
	}
	e, q.waiting[0] = q.waiting[0], vmmc.Event{}
	q.waiting = q.waiting[1:]
	if ofConnection(e) {
		q.links--
	}
	if len(q.waiting) > 0 { // another thread may wait too
		q.wake()
	}
	return e, true
}

// nextEvent is vmmcx_next_event.
func (l *library) nextEvent(ctx context.Context, p *vmmc.Process, r *record) error {
	const op = "wait for an event"
	if vmmc.InHandler() { // events come on the goroutine that runs it
		return &vmmc.Error{Op: op, Code: vmmc.ErrNotInHandler, Err: vmmc.ErrNotInHandler}
	}
	q := &l.events
	q.begin.Do(func() { p.Subscribe(q.add) })
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

func (l *library) giveEvent(e vmmc.Event, r *record) {
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
