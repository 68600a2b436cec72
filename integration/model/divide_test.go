package model_test

import (
	"encoding/binary"
	"slices"
)

// Which bytes a message changes, where a redirection may take some of them.

// redirectable reports whether a message to the export can be redirected.
func (m *message) redirectable() bool { return m.exp.named != nil }

// memories are those that messages to an export may change.
func (e *export) memories() []*memory {
	if e.named == nil {
		return []*memory{e.mem}
	}
	return []*memory{e.mem, e.named, e.other, e.end}
}

// overlap is the part of a message that lies in the range; a < b if there is one.
func (p *posting) overlap(m *message) (a, b int) {
	return max(p.lo, m.off), min(p.hi, m.off+len(m.data))
}

// divide says which bytes a message to a redirectable export changes.
func (s *sequence) divide(m *message) {
	e := m.exp
	if !m.raw && !m.torn {
		end := binary.LittleEndian.AppendUint32(nil, uint32(m.off+len(m.data))) // 0 is for none
		m.end = &write{data: end, by: m.by, order: m.order, began: m.began, sure: m.sure, exp: e, mem: e.end}
	}
	p := e.posted
	if p == nil || m.raw {
		m.split(nil, 0, 0)
		return
	}
	a, b := p.overlap(m)
	if p.claimed != nil && a < b {
		reach("redirection", "a message after the one that was redirected")
	}
	if p.exact {
		s.boundaries(p, m)
	}
	switch {
	case a >= b || p.claimed != nil:
		m.split(nil, 0, 0)
	case p.exact && m.sure:
		p.claimed = m
		m.split(p, a, b)
		reach("redirection", m.im.way())
		if m.streamed() {
			reach("redirection", "mapped, to memory that was not named")
		}
	default:
		p.exact = false
		p.maybe = append(p.maybe, m)
		m.doubtful(p, a, b)
	}
}

// streamed reports whether a mapped importer may have to send a message by the stream: to
// memory that it has not mapped.
func (m *message) streamed() bool {
	p := m.exp.posted
	if p == nil || m.raw || !m.im.mapped || p.to == m.exp.named {
		return false
	}
	a, b := p.overlap(m)
	return a < b
}

// split has bytes a to b of the export, of those of the message, go to where p
// says; nowhere else if p is nil.
func (m *message) split(p *posting, a, b int) {
	m.ws = nil
	add := func(from, to int, mem *memory, at int) {
		if from < to {
			m.ws = append(m.ws, m.part(from-m.off, to-m.off, mem, at))
		}
	}
	end := m.off + len(m.data)
	if p == nil {
		add(m.off, end, m.exp.mem, m.exp.off+m.off)
		return
	}
	add(m.off, a, m.exp.mem, m.exp.off+m.off)
	add(a, b, p.to, p.at+a-p.lo)
	add(b, end, m.exp.mem, m.exp.off+b)
}

// target is where part of a message may have been redirected.
type target struct {
	p    *posting
	a, b int
}

// fraction leaves open whether there is part of one more word at the target:
// where the redirection ended in its middle.
func (m *message) fraction(p *posting, at int) {
	if _, b := p.overlap(m); at < b && laxWords {
		w := m.part(at-m.off, at-m.off+3, p.to, p.at+at-p.lo)
		w.sure, w.last = false, nil
		m.ws = append(m.ws, w)
	}
}

// doubtful leaves open whether bytes a to b are redirected; others may have been,
// to where else it was doubtful before.
func (m *message) doubtful(p *posting, a, b int) {
	m.targets = append(m.targets, target{p, a, b})
	lo, hi := a, b
	for _, t := range m.targets {
		lo, hi = min(lo, t.a), max(hi, t.b)
	}
	m.split(p, lo, hi)
	m.ws = slices.DeleteFunc(m.ws, func(w *write) bool { return w.mem == p.to })
	vague := []*write{m.part(lo-m.off, hi-m.off, m.exp.mem, m.exp.off+lo)}
	for _, t := range m.targets {
		vague = append(vague, m.part(t.a-m.off, t.b-m.off, t.p.to, t.p.at+t.a-t.p.lo))
	}
	for _, w := range vague {
		w.sure, w.last = false, nil
	}
	m.ws = append(m.ws, vague...)
}

// again enters anew what a message changes, which is still under way.
func (m *message) again(how func()) {
	for _, w := range m.ws {
		w.mem.log = slices.DeleteFunc(w.mem.log, func(o *write) bool { return o == w })
		w.unsettle()
	}
	how()
	for _, w := range m.ws {
		w.mem.enter(w)
	}
	for _, w := range m.ws {
		w.mem.compact()
	}
}

// lastAt reports whether a message's last word may lie at an address.
func (m *message) lastAt(at *byte) bool {
	for _, w := range m.ws {
		end := &m.data[len(m.data)-1]
		if &w.data[len(w.data)-1] == end && &w.mem.real[w.end()-4] == at {
			if w.mem != m.exp.mem {
				reach("redirection", "the last word of a notification redirected")
			}
			return true
		}
	}
	return false
}

// boundaries counts how a message lies to the range.
func (s *sequence) boundaries(p *posting, m *message) {
	where := func(at, lo, hi int) string {
		switch {
		case at < lo:
			return "before"
		case at == lo:
			return "at"
		case at < hi:
			return "inside"
		case at == hi:
			return "at the end of"
		}
		return "after"
	}
	reach("redirection", "a message begins "+where(m.off, p.lo, p.hi)+" the range")
	reach("redirection", "a message ends "+where(m.off+len(m.data), p.lo, p.hi)+" the range")
	a, b := p.overlap(m)
	switch end := m.off + len(m.data); {
	case a >= b || p.claimed != nil:
	case a == m.off && b == end:
		reach("redirection", "whole messages redirected")
	case a == m.off:
		reach("redirection", "a message's beginning redirected")
	case b == end:
		reach("redirection", "a message's end redirected")
	default:
		reach("redirection", "a message's middle redirected")
	}
}

// ghost reports whether the sender of a message has ended before it arrived: it may
// arrive still.
func (m *message) ghost() bool { return slices.Contains(m.by.ghosts, m) }

// renew makes the writes of a message in doubt doubtful again.
func (m *message) renew() {
	if !m.sure {
		for _, w := range m.ws {
			w.sure, w.last = false, nil
		}
	}
}
