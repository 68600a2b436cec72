package model_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/vmmc-go/vmmc"
)

var _ = declare(
	"calls", "Send mapped", "Send stream", "SendNotify mapped", "SendNotify stream", "Import.WriteAt mapped", "Import.WriteAt stream",
)

var _ = declare(
	"states", "a message in one piece", "a message over 64 KiB", "a message over 256 KiB", "a message of one word",
	"a message that fills its export", "a message from an odd address", "a call on an import that is closed",
	"a send after the export's end, mapped", "a send after the export's end, stream",
	"a send after the end that seems to succeed", "a send cut short", "a send with a context that has ended",
	"a send whose arguments are wrong in two ways",
)

// eager is the longest message, in bytes, that a stream's send does not wait
// for (docs/memory-model.md).
const eager = 64 << 10

// span draws a range of an export of size bytes, or now and then one that is not.
func (s *sequence) span(size int) (off, n int) {
	words := size / 4
	kind := s.below(20, "span")
	switch {
	case kind < 8: // some words anywhere
		off = 4 * s.below(words, "offset")
		n = 4 * (1 + s.below(min(words-off/4, 64), "length"))
	case kind < 11: // near another one
		off = 4 * s.below(min(words, 4), "offset")
		n = 4 * (1 + s.below(min(words-off/4, 4), "length"))
	case kind < 13:
		n = size
	case kind < 15: // to the end
		off = 4 * s.below(words, "offset")
		n = size - off
	case kind < 17 && size > eager/2: // around what travels in one piece
		edge := pick(s, []int{eager, 256 << 10, 512 << 10}, "edge")
		n = min(size, edge-4+4*s.below(3, "beyond"))
		off = 4 * s.below((size-n)/4+1, "offset")
	default:
		off = pick(s, []int{0, 4, size - 4, size, -4, 2, size + 4, 1 << 40}, "offset")
		n = pick(s, []int{4, 0, 3, size, size + 4, 6, 8}, "length")
	}
	return off, n
}

// near draws a range about the one that is redirected, if there is one.
func (s *sequence) near(e *export) (off, n int) {
	p := e.posted
	if p == nil || s.below(4, "near") == 0 {
		return s.span(e.n)
	}
	var edges []int
	for _, at := range []int{p.lo, p.hi, p.lo + (p.hi-p.lo)/8*4} {
		for _, d := range []int{0, -4, 4, -16, 16} {
			if at+d >= 0 && at+d <= e.n && !slices.Contains(edges, at+d) {
				edges = append(edges, at+d)
			}
		}
	}
	a, b := pick(s, edges, "edge"), pick(s, edges, "edge")
	if a == b {
		b = e.n
	}
	return min(a, b), max(a, b) - min(a, b)
}

// odd draws a range for the calls that take any bytes.
func (s *sequence) odd(size int) (off, n int) {
	if s.rarely(8, "outside") {
		return pick(s, []int{size + 1, -1, size - 1, size, 1 << 40}, "offset"), pick(s, []int{1, 3, 0, size + 1}, "length")
	}
	off = s.below(size+1, "offset")
	return off, min(s.below(100, "length"), size-off)
}

// faults are what may be wrong with a range of words and the rights it needs.
func (im *imported) faults(off, n int, need rights) (out []result) {
	size := im.exp.n
	if off < 0 || off > size || n > size-off {
		out = append(out, results(vmmc.ErrBadProxyAddr)...)
	}
	if off%4 != 0 || n%4 != 0 {
		out = append(out, results(vmmc.ErrBadAlignment)...)
	}
	if n == 0 {
		out = append(out, results(vmmc.ErrBadSize)...)
	}
	if im.exp.rights&need == 0 {
		out = append(out, results(vmmc.ErrNoRights)...)
	}
	return out
}

// spaceFaults are the same for an address: where that is in no import, nothing
// else is looked at.
func (im *imported) spaceFaults(off, n int, need rights) []result {
	if off < 0 || off >= im.exp.n {
		return results(vmmc.ErrBadProxyAddr)
	}
	return im.faults(off, n, need)
}

// sending is a call that sends, and all that decides how it may end.
type sending struct {
	im     *imported
	call   string
	off, n int
	faults []result
	raw    bool // any bytes, no promise about the last ones
	notify bool
	space  bool // to an address of DestSpace
	async  bool
	ended  bool // its context
}

func (s *sequence) send() {
	im := s.anImport()
	if im == nil {
		return
	}
	c := sending{im: im, call: "Send", notify: s.rarely(3, "notify")}
	if c.notify = c.notify && im.link.credit(); c.notify {
		c.call = "SendNotify"
	}
	c.off, c.n = s.near(im.exp)
	if c.space = s.rarely(4, "by address"); c.space {
		c.faults = im.spaceFaults(c.off, c.n, mayWrite)
	} else {
		c.faults = im.faults(c.off, c.n, mayWrite)
	}
	ctx, stop, ended := s.aContext(c.n)
	defer stop()
	c.ended = ended
	if s.rarely(3, "async") {
		s.sendAsync(ctx, &c)
		return
	}
	at := im.im.Addr() + vmmc.ProxyAddr(c.off)
	s.dispatch(&c, func(src []byte) error {
		switch {
		case c.space && c.notify:
			return im.p.p.SendNotify(ctx, src, at)
		case c.space:
			return im.p.p.Send(ctx, src, at)
		case c.notify:
			return im.im.SendNotify(ctx, src, c.off)
		}
		return im.im.Send(ctx, src, c.off)
	})
}

func (s *sequence) write() {
	im := s.anImport()
	if im == nil {
		return
	}
	c := sending{im: im, call: "Import.WriteAt", raw: true}
	c.off, c.n = s.odd(im.exp.n)
	c.faults = byteFaults(im, c.off, c.n, mayWrite)
	s.dispatch(&c, func(src []byte) error {
		n, err := im.im.WriteAt(src, int64(c.off))
		if err == nil && n != len(src) || err != nil && n != 0 {
			s.fail("Import.WriteAt: another number of bytes than were written")
		}
		return err
	})
}

func byteFaults(im *imported, off, n int, need rights) (out []result) {
	if off < 0 || off > im.exp.n || n > im.exp.n-off {
		out = append(out, results(vmmc.ErrBadProxyAddr)...)
	}
	if im.exp.rights&need == 0 {
		out = append(out, results(vmmc.ErrNoRights)...)
	}
	return out
}

// dispatch makes the call and enters into the model what it did.
func (s *sequence) dispatch(c *sending, do func(src []byte) error) {
	im := c.im
	src, data := s.source(c)
	began := s.tick()
	err := do(src)
	scribble(src)
	r := s.expect(c.call+" "+im.way(), err, s.sendOutcomes(c)...)
	im.noted(r)
	s.countSend(c, r)
	switch {
	case r == ok && im.live() && c.n > 0:
		s.sent(c, data, began)
	case r == ok && !im.live() && c.n > 0:
		im.lost = true
		reach("states", "a send after the end that seems to succeed")
	case r.unknown && im.live():
		reach("states", "a send cut short")
		s.partly(c, data, began)
	}
}

// source makes what is sent, at any address, and a copy of it.
func (s *sequence) source(c *sending) (src, data []byte) {
	im, shift := c.im, s.below(4, "shift")
	s.say("%s: %s %d bytes at %d of %d of %s (%s), by address %v, ended context %v", im.p.name, c.call, c.n, c.off, im.exp.id, im.exp.owner.name, im.way(), c.space, c.ended)
	if shift > 0 {
		reach("states", "a message from an odd address")
	}
	src = make([]byte, c.n+shift)[shift:]
	data = s.fill(c.n)
	copy(src, data)
	return src, data
}

// scribble uses a source again, once it is ours again.
func scribble(src []byte) {
	for i := range src {
		src[i] = 0xee
	}
}

// sendOutcomes are the ways in which the call may end.
func (s *sequence) sendOutcomes(c *sending) []result {
	im := c.im
	ends := im.ends()
	if c.space && im.closed || len(c.faults) == 1 && c.space && c.faults[0].code == vmmc.ErrBadProxyAddr {
		return results(vmmc.ErrBadProxyAddr) // it is not even known whose the address is
	}
	out := append([]result{}, c.faults...)
	out = append(out, ends...)
	if len(c.faults) > 0 {
		return out
	}
	if c.ended {
		out = append(out, either(results(vmmc.ErrTimeout))...)
	}
	if len(ends) == 0 {
		return append(out, ok)
	}
	if c.n == 0 && !im.closed {
		out = append(out, ok) // nothing to write
	}
	if im.mapped && c.async && !im.closed && !im.p.closed {
		out = append(out, ok) // it is put off
	}
	if !im.mapped {
		out = append(out, either(ends)...)
		// What is on its way when the export ends may be reported as sent.
		if !im.known && !im.closed && !im.p.closed && (c.n <= eager || c.async) {
			out = append(out, ok)
		}
	}
	return out
}

func (s *sequence) countSend(c *sending, r result) {
	im := c.im
	if r == ok {
		reach("calls", c.call+" "+im.way())
	}
	switch {
	case r == ok && c.n > 256<<10:
		reach("states", "a message over 256 KiB")
	case r == ok && c.n > eager:
		reach("states", "a message over 64 KiB")
	case r == ok && c.n == 4:
		reach("states", "a message of one word")
	case r == ok:
		reach("states", "a message in one piece")
	}
	if r == ok && c.n == im.exp.n {
		reach("states", "a message that fills its export")
	}
	if im.closed {
		reach("states", "a call on an import that is closed")
	}
	if im.exp.closed && r != ok && len(c.faults) == 0 {
		reach("states", "a send after the export's end, "+im.way())
	}
	if c.ended {
		reach("states", "a send with a context that has ended")
	}
	if len(c.faults) > 1 {
		reach("states", "a send whose arguments are wrong in two ways")
	}
}

// sent enters a message that is in its place, or will be.
func (s *sequence) sent(c *sending, data []byte, began int) *message {
	im, l := c.im, c.im.link
	m := s.message(c, data, began)
	m.sure = true
	s.lay(m)
	if c.notify && im.exp.handler {
		m.note = m.notification()
		l.notes = append(l.notes, m.note)
	} else if c.notify {
		reach("states", "a notification without a handler")
	}
	if im.mapped && !c.async && len(l.pending) > 0 {
		reach("states", "a mapped message behind others")
	}
	s.push(m)
	if !c.async && (im.mapped || c.n > eager) {
		s.acknowledged(l)
	}
	return m
}

// partly enters what a call that was cut short may have written.
func (s *sequence) partly(c *sending, data []byte, began int) {
	im, l := c.im, c.im.link
	m := s.message(c, data, began)
	if im.mapped {
		m.data = data[:max(0, len(data)-4)] // its last word is not stored
		m.torn = true
	}
	s.lay(m)
	if !im.mapped && c.notify && im.exp.handler {
		m.data = data
		m.note = m.notification()
		l.notes = append(l.notes, m.note)
	}
	m.doubt()
	s.push(m)
	if im.mapped {
		s.acknowledged(l)
	}
}

// message makes one.
func (s *sequence) message(c *sending, data []byte, began int) *message {
	l := c.im.link
	l.order++
	return &message{im: c.im, exp: c.im.exp, by: l, order: l.order, off: c.off, data: data, began: began, raw: c.raw}
}

// lay says which bytes a message changes.
func (s *sequence) lay(m *message) {
	if m.redirectable() {
		s.divide(m)
		return
	}
	m.ws = append(m.ws, m.part(0, len(m.data), m.exp.mem, m.exp.off+m.off))
}

// part is what bytes from and to of a message change, at off of a memory.
func (m *message) part(from, to int, mem *memory, off int) *write {
	w := &write{off: off, data: m.data[from:to], by: m.by, order: m.order, began: m.began, sure: m.sure, exp: m.exp, mem: mem}
	if to == len(m.data) && to > 0 && !m.raw && !m.torn && m.sure && mem == m.exp.mem {
		last, err := m.exp.e.Word(m.off + to - 4)
		if err == nil {
			w.last = &last
		}
	}
	return w
}

// notification is what its handler is to be told.
func (m *message) notification() *note {
	n := len(m.data)
	return &note{m: m, im: m.im, exp: m.exp, off: m.off + n - 4, word: le(m.data[n-4:]), order: m.order, never: m.exp.discards}
}

// fence makes a fence by some import.
func (s *sequence) fence() {
	im := s.anImport()
	if im == nil {
		return
	}
	ctx, stop, ended := s.aContext(0)
	defer stop()
	s.fenceWith(ctx, im, ended)
}

// fenceOf makes one that is to succeed.
func (s *sequence) fenceOf(im *imported) {
	ctx, stop := s.within()
	defer stop()
	s.fenceWith(ctx, im, false)
}

var _ = declare("calls", "Fence mapped", "Fence stream")

var _ = declare("states", "a fence with messages under way", "a fence after the export's end")

func (s *sequence) fenceWith(ctx context.Context, im *imported, ended bool) {
	s.say("%s: fence by %d of %s (%s), ended context %v", im.p.name, im.exp.id, im.exp.owner.name, im.way(), ended)
	ends := im.ends()
	allowed := ends
	// A fence by the stream that finds nothing under way may not have heard of the end.
	if len(ends) == 0 || !im.closed && !im.p.closed && !im.mapped && !im.known && !im.lost {
		allowed = append(allowed, ok)
	}
	if ended {
		allowed = append(allowed, results(vmmc.ErrTimeout)...)
	}
	r := s.expect(fmt.Sprintf("Fence %s", im.way()), im.im.Fence(ctx), allowed...)
	im.noted(r)
	if im.exp.closed {
		reach("states", "a fence after the export's end")
	}
	if r == ok {
		reach("calls", "Fence "+im.way())
		if len(im.link.pending) > 0 {
			reach("states", "a fence with messages under way")
		}
		s.acknowledged(im.link)
	}
}
