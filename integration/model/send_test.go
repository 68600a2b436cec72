package model_test

import (
	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/manual"
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
	at := im.addr + manual.ProxyAddr(c.off)
	s.dispatch(&c, func(src []byte) error {
		switch {
		case c.space && c.notify:
			return im.p.dest.SendNotify(ctx, src, at)
		case c.space:
			return im.p.dest.Send(ctx, src, at)
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
		out = append(out, either(results(vmmc.ErrCanceled))...)
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
		// What is in flight when the export ends may be reported as sent.
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
