package model_test

import "slices"

// link is all that goes from one process to another: one order, whichever
// exports it goes to and whichever way.
type link struct {
	from, to *process
	order    int
	pending  []*message // not known to have arrived, in order
	ghosts   []*message // that may arrive still, after their sender's end
	ends     []*write   // of ends of data, of messages whose last word was seen
	notes    []*note    // that are to run, in order
	taken    int        // credits, at most, while the receiver blocks notifications
}

var _ = declare(
	"states", "several messages under way", "messages under way on two links to one memory", "a message seen before its fence",
	"a message under way when its export is closed", "a message under way when its sender is closed",
	"a message under way when its import is closed", "a message under way when its receiver is closed",
	"a mapped message behind others",
)

// link finds the link between two processes.
func (s *sequence) link(from, to *process) *link {
	for _, l := range s.links {
		if l.from == from && l.to == to {
			return l
		}
	}
	l := &link{from: from, to: to}
	s.links = append(s.links, l)
	return l
}

// push adds a message that is under way.
func (s *sequence) push(m *message) {
	l := m.by
	l.pending = append(l.pending, m)
	for _, w := range m.ws {
		w.mem.enter(w)
	}
	for _, w := range m.ws {
		w.mem.compact()
	}
	if m.end != nil {
		m.end.mem.add(m.end)
	}
	if len(l.pending) > 1 {
		reach("states", "several messages under way")
	}
	for _, o := range s.links {
		if o != l && o.under(m.exp) {
			reach("states", "messages under way on two links to one memory")
		}
	}
}

// under reports whether a message to an export is under way.
func (l *link) under(e *export) bool {
	return slices.ContainsFunc(l.pending, func(m *message) bool { return m.exp == e })
}

// acknowledged notes that all messages have arrived, and that the sender was told.
func (s *sequence) acknowledged(l *link) {
	for _, m := range l.pending {
		m.told = true
	}
	s.settle(l, 0)
}

// settle notes that all messages up to an order have arrived; or all there are,
// if it is 0.
func (s *sequence) settle(l *link, order int) {
	now := s.arrive(l, order)
	for len(l.ends) > 0 && (order == 0 || l.ends[0].order <= order) {
		w := l.ends[0]
		l.ends = l.ends[1:]
		w.done = now
		w.mem.compact()
	}
}

// arrive notes that the data of messages is there, seen by its last word; the end
// of data is stored after that.
func (s *sequence) arrive(l *link, order int) (now int) {
	now = s.tick()
	for len(l.pending) > 0 && (order == 0 || l.pending[0].order <= order) {
		m := l.pending[0]
		l.pending = l.pending[1:]
		m.done = now
		for _, w := range m.ws {
			w.done = now
			w.mem.compact()
		}
		if m.end != nil {
			l.ends = append(l.ends, m.end)
		}
		if m.note != nil {
			m.note.due = true
		}
	}
	return now
}

// abandon leaves open what became, and will become, of the messages under way.
func (l *link) abandon() {
	for _, m := range l.pending {
		m.doubt()
	}
	for _, w := range l.ends {
		w.sure = false
	}
	l.ghosts = append(l.ghosts, l.pending...)
	l.pending, l.ends = nil, nil
	for _, n := range l.notes {
		n.optional = true
	}
}

// cut ends all that was under way to an export: it has arrived by now, or never
// will. It returns what that was.
func (s *sequence) cut(e *export) (under []*message) {
	now := s.tick()
	for _, l := range s.links {
		for _, m := range l.pending {
			if m.exp == e {
				under = append(under, m)
			}
		}
		l.pending = slices.DeleteFunc(l.pending, func(m *message) bool { return m.exp == e })
		l.ends = slices.DeleteFunc(l.ends, func(w *write) bool { return w.exp == e })
		for _, n := range l.notes {
			if n.exp == e {
				n.optional = true
			}
		}
	}
	for _, m := range e.memories() {
		for _, w := range m.log {
			if w.exp == e && w.done == 0 {
				w.sure, w.done = false, now
			}
		}
	}
	return under
}

// drop leaves open whether what an import was sending asynchronously arrives:
// the import is no more. The memory is free when the request is over, not before:
// what was put off may be looked at in its turn.
func (s *sequence) drop(im *imported) {
	for _, q := range s.requests {
		if q.im != im || q.over {
			continue
		}
		if q.m != nil && q.m.done == 0 {
			q.m.doubt()
		}
	}
}

// alongside finds an import by which a fence of the link can be made.
func (s *sequence) alongside(l *link) *imported {
	for _, im := range s.imports {
		if im.link == l && im.live() {
			return im
		}
	}
	return nil
}
