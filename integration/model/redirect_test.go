package model_test

import (
	"encoding/binary"
	"slices"

	"github.com/vmmc-go/vmmc"
)

// posting is a redirection that is posted and not ended.
type posting struct {
	lo, hi  int // of the export
	to      *memory
	at      int // where lo goes
	exact   bool
	claimed *message   // exact: the message that it is for, once there is one
	maybe   []*message // else: those that it may be for
}

var _ = declare("calls", "PostRedir", "EndRedir", "DataEnd", "ClearDataEnd")

var _ = declare(
	"redirection", "a message begins before the range", "a message begins at the range", "a message begins inside the range",
	"a message begins at the end of the range", "a message begins after the range",
	"a message ends before the range", "a message ends at the range", "a message ends inside the range",
	"a message ends at the end of the range", "a message ends after the range",
	"whole messages redirected", "a message's beginning redirected", "a message's end redirected", "a message's middle redirected",
	"nothing sent", "nothing of what was sent redirected", "mapped", "stream", "mapped, to memory that was not named",
	"a message after the one that was redirected", "posted with messages under way", "ended with its message under way, all redirected",
	"ended with its message under way, nothing redirected", "ended with doubts", "its export closed", "of several senders",
	"the end of data known", "the end of data not there", "the end of data in doubt", "the last word of a notification redirected",
)

// redirectable says whether a message to the export can be redirected.
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
	case m.im.mapped && p.to != e.named:
		reach("redirection", "mapped, to memory that was not named")
		m.split(nil, 0, 0)
	case p.exact && m.sure:
		p.claimed = m
		m.split(p, a, b)
		reach("redirection", m.im.way())
	default:
		p.exact = false
		p.maybe = append(p.maybe, m)
		m.doubtful(p, a, b)
	}
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
		for _, f := range w.mem.forks { // a get that was sure to find it there is so no more
			for _, c := range f.then.log {
				c.sure = c.sure && c.copied != w
			}
		}
	}
	how()
	for _, w := range m.ws {
		w.mem.enter(w)
	}
	for _, w := range m.ws {
		w.mem.compact()
	}
}

// lastAt says whether a message's last word may lie at an address.
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

// redirectables are the exports that messages can be redirected from.
func (s *sequence) redirectables() []*export {
	return slices.DeleteFunc(slices.Clone(s.exports), func(e *export) bool { return e.named == nil })
}

// postRedir posts a redirection, or tries to.
func (s *sequence) postRedir() {
	list := s.redirectables()
	if s.rarely(6, "any") {
		list = s.exports
	}
	if len(list) == 0 {
		return
	}
	e := pick(s, list, "export")
	p := &posting{}
	p.lo = 4 * s.below(e.n/4, "from")
	p.hi = p.lo + 4*(1+s.below(min((e.n-p.lo)/4, 12), "words"))
	if s.rarely(4, "long") {
		p.lo, p.hi = 0, e.n
	}
	to, faults := s.landing(e, p)
	switch s.below(10, "fault") {
	case 8:
		p.lo += pick(s, []int{2, e.n, -e.n - 4}, "offset")
	case 9:
		to = pick(s, [][]byte{nil, to[:len(to)-1], e.mem.real[e.off : e.off+len(to)]}, "target")
	}
	off := p.lo
	if e.named != nil {
		if len(to) == 0 {
			faults = append(faults, results(vmmc.ErrBadSize)...)
		}
		if off%4 != 0 || len(to)%4 != 0 {
			faults = append(faults, results(vmmc.ErrBadAlignment)...)
		}
		if off < 0 || len(to) > e.n-off {
			faults = append(faults, results(vmmc.ErrBadArg)...)
		}
		if len(to) > 0 && s.exports != nil && inside(e.mem.real, to) {
			faults = append(faults, results(vmmc.ErrOverlappedBufs)...)
		}
		if e.posted != nil {
			faults = append(faults, results(vmmc.ErrBadRbufState)...)
		}
	}
	s.say("%s: redirect %d bytes at %d of %d", e.owner.name, len(to), off, e.id)
	err := e.e.PostRedir(off, to)
	if len(faults) > 0 {
		s.expect("PostRedir", err, faults...)
		return
	}
	s.expect("PostRedir", err, ok)
	reach("calls", "PostRedir")
	s.posted(e, p)
}

// inside says whether b begins in a.
func inside(a, b []byte) bool {
	for i := range a {
		if &a[i] == &b[0] {
			return true
		}
	}
	return false
}

// landing draws where to redirect to.
func (s *sequence) landing(e *export, p *posting) (to []byte, faults []result) {
	if e.named == nil {
		return make([]byte, p.hi-p.lo), results(vmmc.ErrNotRedirectable)
	}
	p.to = e.named
	if s.rarely(4, "not named") {
		p.to = e.other
	}
	p.at = 4 * s.below((len(p.to.real)-(p.hi-p.lo))/4+1, "at")
	return p.to.real[p.at : p.at+p.hi-p.lo], nil
}

// posted enters a redirection. Messages under way may meet it or not.
func (s *sequence) posted(e *export, p *posting) {
	e.posted = p
	p.exact = !e.many
	if e.many {
		reach("redirection", "of several senders")
	}
	for _, l := range s.links {
		for _, m := range slices.Concat(l.pending, l.ghosts) {
			a, b := p.overlap(m)
			if m.exp != e || m.raw || m.taken || a >= b || m.im.mapped && p.to != e.named {
				continue
			}
			reach("redirection", "posted with messages under way")
			p.exact = false
			p.maybe = append(p.maybe, m)
			m.again(func() { m.doubtful(p, a, b); m.renew() })
		}
	}
}

// ghost says whether the sender of a message has ended before it arrived: it may
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

// endRedir ends a redirection, and finds out what it has done.
func (s *sequence) endRedir() {
	list := s.redirectables()
	if s.rarely(6, "any") {
		list = s.exports
	}
	if len(list) == 0 {
		return
	}
	e := pick(s, list, "export")
	if posted := slices.IndexFunc(list, func(o *export) bool { return o.posted != nil }); posted >= 0 && e.posted == nil && s.below(2, "posted") == 0 {
		e = list[posted]
	}
	s.endOf(e)
}

func (s *sequence) endOf(e *export) {
	ctx, stop := s.within()
	defer stop()
	s.say("%s: end the redirection of %d", e.owner.name, e.id)
	n, first, err := e.e.EndRedir(ctx)
	p := e.posted
	switch {
	case e.named == nil:
		s.expect("EndRedir", err, result{code: vmmc.ErrNotRedirectable})
		return
	case p == nil:
		s.expect("EndRedir", err, result{code: vmmc.ErrBadRbufState})
		return
	}
	s.expect("EndRedir", err, ok)
	reach("calls", "EndRedir")
	s.say("  %d bytes at %d", n, first)
	e.posted = nil
	if n < 0 || n%4 != 0 || n > 0 && (first < 0 || first%4 != 0 || first+n > p.hi-p.lo) {
		s.fail("EndRedir: figures that cannot be")
	}
	if p.exact {
		s.endedExactly(p, n, first)
	} else {
		s.endedInDoubt(p, n, first)
	}
}

// endedExactly compares the figures of a redirection whose message is known.
func (s *sequence) endedExactly(p *posting, n, first int) {
	m := p.claimed
	if m != nil {
		m.taken = n > 0
	}
	if m == nil {
		if n != 0 {
			s.fail("EndRedir: more than nothing of nothing")
		}
		reach("redirection", "nothing sent")
		return
	}
	a, b := p.overlap(m)
	switch {
	case n == b-a && first == a-p.lo:
		if m.done == 0 {
			reach("redirection", "ended with its message under way, all redirected")
		}
		return
	case m.done != 0:
		s.say("  it was for %d bytes at %d", b-a, a-p.lo)
		s.fail("EndRedir: not all of a message that arrived after it was posted")
	case n > 0 && (first != a-p.lo || n > b-a):
		s.fail("EndRedir: another part of the message than the first of it in the range")
	}
	if n == 0 {
		reach("redirection", "ended with its message under way, nothing redirected")
		m.again(func() { m.split(nil, 0, 0); m.renew() })
		return
	}
	m.again(func() { m.split(p, a, a+n); m.renew() })
}

// endedInDoubt takes the figures of a redirection that may have been for one of
// several messages, or for none.
func (s *sequence) endedInDoubt(p *posting, n, first int) {
	reach("redirection", "ended with doubts")
	if n == 0 && len(p.maybe) > 0 {
		reach("redirection", "nothing of what was sent redirected")
	}
	from, to := p.lo+first, p.lo+first+n
	var fit []*message
	for _, m := range p.maybe {
		if a, b := p.overlap(m); n > 0 && a <= from && to <= b {
			fit = append(fit, m)
		}
	}
	if n > 0 && len(fit) == 0 {
		s.fail("EndRedir: what was redirected is of no message")
	}
	if len(fit) > 1 {
		return
	}
	for _, m := range p.maybe {
		if m.done != 0 || len(m.targets) > 1 || m.ghost() {
			continue
		}
		m.targets = nil
		if len(fit) == 1 && m == fit[0] {
			m.taken = true
			m.again(func() { m.split(p, from, to); m.renew() })
		} else {
			m.again(func() { m.split(nil, 0, 0); m.renew() })
		}
	}
}

// dataEnd compares the end of data with the model.
func (s *sequence) dataEnd() {
	list := s.redirectables()
	if s.rarely(6, "any") {
		list = s.exports
	}
	if len(list) == 0 {
		return
	}
	e := pick(s, list, "export")
	s.say("%s: end of data of %d", e.owner.name, e.id)
	off, there := e.e.DataEnd()
	reach("calls", "DataEnd")
	if e.named == nil {
		if there {
			s.fail("DataEnd: an end of data without redirection")
		}
		return
	}
	got := uint32(0)
	if there {
		got = uint32(off) + 4
		reach("redirection", "the end of data known")
	} else {
		reach("redirection", "the end of data not there")
	}
	sources := e.end.sources(0, 4)
	if len(sources) > 1 {
		reach("redirection", "the end of data in doubt")
	}
	if !slices.ContainsFunc(sources, func(b []byte) bool { return le(b) == got }) {
		for _, b := range sources {
			s.say("  it may be %d", int(le(b))-4)
		}
		s.say("  it is %d, %v", off, there)
		s.fail("DataEnd: an end that cannot be")
	}
	e.end.adopt(binary.LittleEndian.AppendUint32(nil, got))
	if s.rarely(4, "clear") {
		began := s.tick()
		e.e.ClearDataEnd()
		reach("calls", "ClearDataEnd")
		e.end.add(&write{data: make([]byte, 4), began: began, done: s.tick(), sure: true, exp: e, mem: e.end})
	}
}
