package model_test

import (
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
	err := e.e.PostRedir(to, off)
	if len(faults) > 0 {
		s.expect("PostRedir", err, faults...)
		return
	}
	s.expect("PostRedir", err, ok)
	reach("calls", "PostRedir")
	s.posted(e, p)
}

// inside reports whether b begins in a.
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
			if m.exp != e || m.raw || m.taken || a >= b {
				continue
			}
			reach("redirection", "posted with messages under way")
			p.exact = false
			p.maybe = append(p.maybe, m)
			m.again(func() { m.doubtful(p, a, b); m.renew() })
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
	m.again(func() { m.split(p, a, a+n); m.fraction(p, a+n); m.renew() })
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
			m.again(func() { m.split(p, from, to); m.fraction(p, to); m.renew() })
		} else {
			m.again(func() { m.split(nil, 0, 0); m.renew() })
		}
	}
}
