package model_test

import (
	"slices"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc"
)

// note is a notification that is to run.
type note struct {
	m        *message
	exp      *export
	off      int
	word     uint32
	order    int
	due      bool // its message has arrived
	optional bool // it may not run: its export or import was closed, or the sender
	never    bool // its export discards notifications
}

// event is a handler's call.
type event struct {
	exp  *export
	n    vmmc.Notification
	at   *byte
	from *sequence
}

// events are the calls of handlers that the sequence has not looked at yet.
type events struct {
	mu   sync.Mutex
	list []event
	news []news
	more chan struct{}
}

var _ = declare(
	"states", "a notification run", "a notification seen before its fence", "a notification of a closed export",
	"a notification without a handler", "notifications of several senders at once",
)

func (q *events) init() { q.more = make(chan struct{}, 1) }

func (q *events) put(e event) {
	q.mu.Lock()
	q.list = append(q.list, e)
	q.mu.Unlock()
	q.wake()
}

func (q *events) wake() {
	select {
	case q.more <- struct{}{}:
	default:
	}
}

func (q *events) take() []event {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.list
	q.list = nil
	return list
}

// handlerOf is the option that has an export's notifications recorded.
func (s *sequence) handlerOf(e *export) vmmc.ExportOption {
	return vmmc.WithHandler(func(n vmmc.Notification) {
		if f := e.script.Load(); f != nil && f.word == n.Word {
			e.script.Store(nil)
			f.run()
		}
		s.w.events.put(event{e, n, &n.At[0], s})
	})
}

// absorb compares the handlers' calls so far with the model.
func (s *sequence) absorb() {
	for _, ev := range s.w.events.take() {
		if ev.from == s { // else of an export of a sequence before, just as it was closed
			s.ran(ev)
		}
	}
	for _, n := range s.w.events.takeNews() {
		s.heard(n.slot, n.e)
	}
}

// ran takes a handler's call: it must be the next of its sender.
func (s *sequence) ran(ev event) {
	if ev.n.Export != ev.exp.e {
		s.fail("a handler was told of another export")
	}
	if ev.exp.owner.level > 0 && !ev.exp.awaited {
		s.fail("a notification ran while they were blocked")
	}
	ev.exp.ran++
	for _, l := range s.links {
		i := slices.IndexFunc(l.notes, func(n *note) bool {
			return n.exp == ev.exp && n.off == ev.n.Offset && n.word == ev.n.Word
		})
		if i < 0 {
			continue
		}
		// One that is waited for while notifications are blocked overtakes those of other exports.
		before := l.notes[:i]
		if ev.exp.awaited {
			before = slices.DeleteFunc(slices.Clone(before), func(n *note) bool { return n.exp != ev.exp })
		}
		if slices.ContainsFunc(before, func(n *note) bool { return !n.optional && !n.never }) {
			s.fail("a notification ran before an earlier one of its sender")
		}
		n := l.notes[i]
		if n.never {
			s.fail("a notification ran that its export discards")
		}
		if !n.m.lastAt(ev.at) {
			s.fail("a notification does not say where its last word lies")
		}
		if ev.exp.awaited {
			l.notes = slices.Delete(l.notes, i, i+1)
		} else {
			l.notes = l.notes[i+1:]
		}
		reach("states", "a notification run")
		switch {
		case n.optional:
			reach("states", "a notification of a closed export")
		case !n.due:
			reach("states", "a notification seen before its fence")
			s.settle(l, n.order)
		}
		return
	}
	s.say("%s: a notification of %d, offset %d, word %#x", ev.exp.owner.name, ev.exp.id, ev.n.Offset, ev.n.Word)
	s.fail("a notification ran that was not sent, or twice")
}

// drain waits until all notifications have run whose messages have arrived.
func (s *sequence) drain() {
	late := time.NewTimer(bound)
	defer late.Stop()
	senders := 0
	for _, l := range s.links {
		if l.owing() {
			senders++
		}
	}
	if senders > 1 {
		reach("states", "notifications of several senders at once")
	}
	for {
		s.absorb()
		if !slices.ContainsFunc(s.links, (*link).owing) && !s.untold() {
			return
		}
		select {
		case <-s.w.events.more:
		case <-late.C:
			s.fail("a notification or an event did not come")
		}
	}
}

// owing reports whether a notification has to come without anything more being done.
func (l *link) owing() bool {
	return l.to.level == 0 && slices.ContainsFunc(l.notes, func(n *note) bool { return n.due && !n.optional && !n.never })
}
