package model_test

import (
	"slices"

	"github.com/vmmc-go/vmmc"
)

var _ = declare("states", "an event of a revoked import", "an event of a peer that is gone")

// news is an external event that a process was told of.
type news struct {
	slot int
	e    vmmc.Event
}

func (q *events) hear(n news) {
	q.mu.Lock()
	q.news = append(q.news, n)
	q.mu.Unlock()
	q.wake()
}

func (q *events) takeNews() []news {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.news
	q.news = nil
	return list
}

// withEvents is the option that has a process's events recorded.
func (w *world) withEvents(slot int) vmmc.Option {
	return vmmc.WithEvents(func(e vmmc.Event) { w.events.hear(news{slot, e}) })
}

// heard compares an event with the model.
func (s *sequence) heard(slot int, e vmmc.Event) {
	p := s.slots[slot]
	switch e.Kind {
	case vmmc.ImportRevoked:
		i := slices.IndexFunc(s.taken, func(im *imported) bool { return im.im == e.Import })
		if i < 0 {
			return // of a sequence before
		}
		im := s.taken[i]
		if !im.exp.closed {
			s.fail("an event says that an export was closed that is not")
		}
		if p != nil && im.p == p && p.level > 0 {
			s.fail("an event while notifications were blocked")
		}
		if im.told {
			s.fail("two events of one import's end")
		}
		im.told = true
		reach("states", "an event of a revoked import")
	case vmmc.PeerGone, vmmc.LinkDown:
		// No connection is cut here. A process that closes with messages unread resets its
		// connections: its goodbye may be lost with them, and the link is down before it is over.
		i := slices.IndexFunc(s.processes, func(o *process) bool { return o.id == e.Peer })
		if i < 0 {
			return
		}
		if !s.processes[i].closed {
			s.say("of %s: %v", s.processes[i].name, e.Kind)
			s.fail("an event says that a process has ended that has not")
		}
		if e.Kind == vmmc.PeerGone {
			reach("states", "an event of a peer that is gone")
		}
	default:
		s.fail("an event that cannot be: %v", e.Kind)
	}
}

// untold reports whether an event has to come: an export was closed whose importer
// goes on.
func (s *sequence) untold() bool {
	return slices.ContainsFunc(s.imports, func(im *imported) bool {
		return im.exp.closed && !im.exp.owner.closed && !im.closed && !im.p.closed && im.p.level == 0 && !im.told
	})
}
