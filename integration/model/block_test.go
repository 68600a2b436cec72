package model_test

import (
	"slices"

	"github.com/vmmc-go/vmmc"
)

var _ = declare("calls", "BlockNotifications", "UnblockNotifications", "DiscardNotifications", "Notified", "WaitNotified")

var _ = declare(
	"states", "notifications blocked", "notifications blocked twice", "a level of blocking left", "notifications unblocked",
	"unblocked when nothing was blocked", "an export closed with its notifications blocked", "an export closed while others' are blocked",
	"a notification queued while blocked", "a notification discarded", "a wait for a notification", "a wait for a notification in vain",
	"a wait for a notification of a closed export", "a notification waited for while blocked", "every credit of a link taken",
)

// credits is how many notifications of a link may be under way.
const credits = 64

// credit reports whether the link is sure to have a credit left.
func (l *link) credit() bool {
	if l.to.level == 0 {
		return true
	}
	if l.taken++; l.taken > credits/2 {
		return false
	}
	reach("states", "a notification queued while blocked")
	return true
}

func (s *sequence) block() {
	p := pick(s, s.open(), "process")
	if p.level == 3 {
		return
	}
	s.say("%s: block notifications", p.name)
	p.p.BlockNotifications()
	reach("calls", "BlockNotifications")
	s.absorb() // when it has returned, none runs
	if p.level++; p.level == 2 {
		reach("states", "notifications blocked twice")
	}
	reach("states", "notifications blocked")
}

func (s *sequence) unblock() {
	s.unblockOf(pick(s, s.open(), "process"))
}

func (s *sequence) unblockOf(p *process) {
	s.say("%s: unblock notifications", p.name)
	was := p.level
	p.level = max(0, was-1)
	n, err := p.p.UnblockNotifications()
	s.expect("UnblockNotifications", err, ok)
	reach("calls", "UnblockNotifications")
	switch {
	case n != p.level:
		s.fail("UnblockNotifications: another level than is left")
	case n > 0:
		reach("states", "a level of blocking left")
		return
	case was == 0:
		reach("states", "unblocked when nothing was blocked")
		return
	}
	reach("states", "notifications unblocked")
	for _, l := range s.links {
		if im := s.alongside(l); im != nil && l.to == p {
			s.fenceOf(im)
			l.taken = 0 // once they have run
		}
	}
	s.drain()
}

// unblockAll unblocks whatever the level, as the manual does.
func (s *sequence) unblockAll(p *process) {
	for p.level > 0 {
		s.unblockOf(p)
	}
}

// closeBlocked closes an export whose process blocks notifications: that fails
// while any of the export's are queued.
func (s *sequence) closeBlocked(e *export) {
	for _, l := range s.links {
		if im := s.alongside(l); im != nil && l.to == e.owner {
			s.fenceOf(im)
		}
	}
	must, may := false, false
	for _, l := range s.links {
		for _, n := range l.notes {
			if n.exp == e {
				must, may = must || n.due && !n.optional && !n.never, true
			}
		}
	}
	blocked := result{code: vmmc.ErrBlockedNotifications}
	allowed := []result{ok}
	switch {
	case must:
		allowed = []result{blocked}
	case may || e.handler:
		allowed = append(allowed, blocked)
	}
	if s.expect("Export.Close while blocked", e.e.Close(), allowed...) == ok {
		reach("states", "an export closed while others' are blocked")
		return
	}
	reach("states", "an export closed with its notifications blocked")
	_, err := e.e.Word(0)
	s.expect("Export.Word of an export that was not closed", err, ok)
	s.unblockAll(e.owner)
	s.expect("Export.Close when unblocked", e.e.Close(), ok)
}

// discard changes whether an export's notifications have an effect. It is
// decided when their turn comes, which for those in flight may be either time.
func (s *sequence) discard() {
	exports := slices.DeleteFunc(slices.Clone(s.exports), func(e *export) bool { return !e.handler })
	if len(exports) == 0 {
		return
	}
	e := pick(s, exports, "export")
	s.say("%s: discard notifications of %d: %v", e.owner.name, e.id, !e.discards)
	for _, l := range s.links {
		for _, n := range l.notes {
			if n.exp == e {
				n.optional = true
				if n.never {
					reach("states", "a notification discarded")
					n.never = false
				}
			}
		}
	}
	e.discards = !e.discards
	e.e.DiscardNotifications(e.discards)
	reach("calls", "DiscardNotifications")
}

// notified compares the count of an export's notifications, or waits for one.
func (s *sequence) notified() {
	im := s.anImport()
	if im == nil || !im.exp.handler {
		return
	}
	e := im.exp
	if e.closed {
		if e.owner.closed {
			return
		}
		ctx, stop := s.within()
		defer stop()
		s.say("%s: wait for a notification of %d, which is closed", e.owner.name, e.id)
		_, err := e.e.WaitNotified(ctx, e.e.Notified())
		s.expect("WaitNotified of a closed export", err, result{code: vmmc.ErrBadRbufState})
		reach("states", "a wait for a notification of a closed export")
		return
	}
	before := int(e.e.Notified())
	s.absorb()
	if before > e.ran || int(e.e.Notified()) < e.ran-1 {
		s.fail("Notified: not as many as have run")
	}
	reach("calls", "Notified")
	if e.owner.level > 0 {
		s.waitBlocked(e)
		return
	}
	if !im.live() || e.rights&mayWrite == 0 || e.discards || s.below(2, "in vain") == 1 {
		if s.owed(e) {
			return
		}
		ctx, stop := s.soon()
		defer stop()
		seen := e.e.Notified()
		s.say("%s: wait for a notification of %d in vain", e.owner.name, e.id)
		got, err := e.e.WaitNotified(ctx, seen)
		if s.expect("WaitNotified", err, result{code: vmmc.ErrTimeout}); got != seen {
			s.fail("WaitNotified: another count with an error")
		}
		reach("states", "a wait for a notification in vain")
		return
	}
	seen := e.e.Notified()
	s.burst(im, 1)
	within, stop := s.within()
	defer stop()
	s.say("%s: wait for a notification of %d", e.owner.name, e.id)
	got, err := e.e.WaitNotified(within, seen)
	s.expect("WaitNotified", err, ok)
	if got <= seen {
		s.fail("WaitNotified: the count that was seen")
	}
	reach("calls", "WaitNotified")
	reach("states", "a wait for a notification")
}

// waitBlocked waits for a notification of an export while they are blocked: the next one of that
// export runs, and none of another.
func (s *sequence) waitBlocked(e *export) {
	must, may := false, false
	for _, l := range s.links {
		for _, n := range l.notes {
			if n.exp == e {
				must, may = must || n.due && !n.optional && !n.never, may || !n.never
			}
		}
	}
	allowed := []result{{code: vmmc.ErrTimeout}}
	ctx, stop := s.soon()
	if must {
		stop()
		ctx, stop = s.within()
		allowed = []result{ok}
	} else if may {
		allowed = append(allowed, ok)
	}
	defer stop()
	seen := e.e.Notified()
	s.say("%s: wait for a notification of %d while they are blocked", e.owner.name, e.id)
	got, err := e.e.WaitNotified(ctx, seen)
	if s.expect("WaitNotified while blocked", err, allowed...) == ok {
		reach("states", "a notification waited for while blocked")
		if got != seen+1 {
			s.fail("WaitNotified: more than one handler has run while notifications were blocked")
		}
	}
	e.awaited = true
	s.absorb() // when it has returned, none runs
	e.awaited = false
}

// owed reports whether a notification of an export may run any time.
func (s *sequence) owed(e *export) bool {
	s.absorb()
	if e.ran != int(e.e.Notified()) {
		return true // one is just running
	}
	return e.owner.level == 0 && slices.ContainsFunc(s.links, func(l *link) bool {
		return slices.ContainsFunc(l.notes, func(n *note) bool { return n.exp == e })
	})
}

// exhaust takes all credits of a link whose receiver blocks notifications: the
// next notification waits, and sends nothing.
func (s *sequence) exhaust() {
	im := s.anImport()
	if im == nil || !im.live() || !im.exp.handler || im.exp.discards || im.exp.rights&mayWrite == 0 || im.exp.owner.level > 0 {
		return
	}
	s.burst(im, 1) // when it has run, so have those before, and their credits are back
	s.fenceOf(im)
	s.drain()
	p := im.exp.owner
	p.p.BlockNotifications()
	s.absorb()
	p.level++
	s.say("%s: block notifications, and be sent too many of them", p.name)
	for range credits {
		s.notify(im)
	}
	ctx, stop := s.soon()
	defer stop()
	src := s.fill(4)
	s.expect("SendNotify without credit", im.im.SendNotify(ctx, src, 0), result{code: vmmc.ErrTimeout})
	reach("states", "every credit of a link taken")
	im.link.taken = credits
	s.noCredit(im)
	s.unblockAll(p)
}

// notify sends one word with a notification.
func (s *sequence) notify(im *imported) {
	ctx, stop := s.within()
	defer stop()
	s.dispatch(notification(im), func(src []byte) error { return im.im.SendNotify(ctx, src, 0) })
}

// notification is a call that sends one of a word.
func notification(im *imported) *sending {
	return &sending{im: im, call: "SendNotify", n: 4, notify: true}
}
