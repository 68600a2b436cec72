package model_test

import (
	"bytes"
	"context"
	"slices"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/manual"
)

// request is an asynchronous send or get that was begun.
type request struct {
	im     *imported
	r      vmmc.Request
	call   string
	order  int      // on its link
	m      *message // of a send; nil when it was begun after the export's end
	src    []byte   // of a send
	dst    []byte   // of a get
	intact func()
	fork   *fork
	late   bool // it was begun after the end
	over   bool // it is known how it ended
	res    result
}

var _ = declare(
	"calls", "SendAsync mapped", "SendAsync stream", "SendNotifyAsync mapped", "SendNotifyAsync stream",
	"GetAsync mapped", "GetAsync stream", "Request.Status", "Request.Done", "Request.Wait",
)

var _ = declare(
	"states", "a request in progress", "a request over at once", "a request that a fence has ended", "a request waited for",
	"a request whose export was closed", "a request whose import was closed", "a request that did not arrive",
	"several requests of one link", "a get in progress while its memory is written",
)

func (s *sequence) sendAsync(ctx context.Context, c *sending) {
	im := c.im
	c.async = true
	c.call += "Async"
	src, data := s.source(c)
	began := s.tick()
	at := im.addr + manual.ProxyAddr(c.off)
	var r vmmc.Request
	var err error
	switch {
	case c.space && c.notify:
		r, err = im.p.dest.SendNotifyAsync(ctx, src, at)
	case c.space:
		r, err = im.p.dest.SendAsync(ctx, src, at)
	case c.notify:
		r, err = im.im.SendNotifyAsync(ctx, src, c.off)
	default:
		r, err = im.im.SendAsync(ctx, src, c.off)
	}
	res := s.expect(c.call+" "+im.way(), err, s.sendOutcomes(c)...)
	im.noted(res)
	s.countSend(c, res)
	if res != ok {
		scribble(src)
		s.badRequest(r)
		if res.unknown && im.live() {
			s.partly(c, data, began)
		}
		return
	}
	q := &request{im: im, r: r, call: c.call, src: src, late: !im.live()}
	if q.late {
		im.lost = true
	} else {
		q.m = s.sent(c, data, began)
		q.order = q.m.order
	}
	s.begun(q)
}

// badRequest asks for what there is when a request could not be begun.
func (s *sequence) badRequest(r vmmc.Request) {
	s.expect("Status of no request", r.Status(), result{code: vmmc.ErrBadAsyncHandle})
}

func (s *sequence) begun(q *request) {
	for _, o := range s.requests {
		if o.im.link == q.im.link && !o.over {
			reach("states", "several requests of one link")
			break
		}
	}
	s.requests = append(s.requests, q)
	if s.status(q).code == 0 {
		reach("states", "a request over at once")
	}
	if len(s.requests) > 8 {
		s.await(s.requests[0])
	}
}

func (s *sequence) getAsync() {
	im := s.anImport()
	if im == nil {
		return
	}
	off, n := s.span(im.exp.n)
	faults := im.faults(off, n, mayRead)
	space := s.rarely(4, "by address")
	allowed := append(slices.Clone(faults), im.ends()...)
	if space && (im.closed || off < 0 || off >= im.exp.n) {
		allowed = results(vmmc.ErrBadProxyAddr)
	} else if len(faults) == 0 && (len(allowed) == 0 || (im.mapped || !im.known) && !im.closed && !im.p.closed) {
		allowed = append(allowed, ok)
	}
	ctx, stop := s.within()
	defer stop()
	s.say("%s: GetAsync %d bytes at %d of %d of %s (%s), by address %v", im.p.name, n, off, im.exp.id, im.exp.owner.name, im.way(), space)
	q := &request{im: im, call: "GetAsync", late: !im.live()}
	q.dst, q.intact = s.target(n)
	if !q.late && len(faults) == 0 {
		q.fork = s.forkOf(im, off, n)
	}
	var err error
	if space {
		q.r, err = im.p.dest.GetAsync(ctx, q.dst, im.addr+manual.ProxyAddr(off))
	} else {
		q.r, err = im.im.GetAsync(ctx, q.dst, off)
	}
	res := s.expect("GetAsync "+im.way(), err, allowed...)
	im.noted(res)
	if res != ok {
		s.badRequest(q.r)
		return
	}
	reach("calls", "GetAsync "+im.way())
	im.link.order++
	q.order = im.link.order
	s.begun(q)
}

// request asks after one of the requests.
func (s *sequence) request() {
	if len(s.requests) == 0 {
		s.badRequest(vmmc.Request{})
		return
	}
	q := pick(s, s.requests, "request")
	if s.below(2, "wait") == 0 {
		s.status(q)
		return
	}
	if s.rarely(4, "in vain") {
		s.expect("Request.Wait given up", q.r.Wait(cancelled()), append(s.requestOutcomes(q), results(vmmc.ErrCanceled)...)...)
		return
	}
	s.await(q)
}

// await waits for a request and forgets it.
func (s *sequence) await(q *request) {
	ctx, stop := s.within()
	defer stop()
	s.say("%s: wait for %s to %d of %s", q.im.p.name, q.call, q.im.exp.id, q.im.exp.owner.name)
	reach("calls", "Request.Wait")
	reach("states", "a request waited for")
	s.concluded(q, s.expect("Request.Wait of "+q.call+" "+q.im.way(), q.r.Wait(ctx), s.requestOutcomes(q)...))
	s.requests = slices.DeleteFunc(s.requests, func(o *request) bool { return o == q })
}

// status asks without waiting.
func (s *sequence) status(q *request) result {
	allowed := s.requestOutcomes(q)
	if !q.over && (q.m == nil || !q.m.told || !q.im.live()) {
		allowed = append(allowed, results(vmmc.ErrInProgress)...)
	} else if !q.over {
		reach("states", "a request that a fence has ended")
	}
	reach("calls", "Request.Status")
	r := s.expect("Request.Status of "+q.call+" "+q.im.way(), q.r.Status(), allowed...)
	if r.code == vmmc.ErrInProgress {
		reach("states", "a request in progress")
		return r
	}
	s.concluded(q, r)
	reach("calls", "Request.Done")
	if !q.r.Done() {
		s.fail("a request is not done that was")
	}
	return r
}

// requestOutcomes are the ways in which a request may end.
func (s *sequence) requestOutcomes(q *request) []result {
	im := q.im
	if q.over { // it says the same again
		return []result{q.res}
	}
	if im.live() {
		return []result{ok}
	}
	out := either(im.ends())
	if !q.late && (q.m == nil || !q.m.lost) {
		out = append(out, ok)
	}
	return out
}

// concluded takes a request's outcome, which may be known already.
func (s *sequence) concluded(q *request, r result) {
	if q.over {
		return
	}
	q.over, q.res = true, r
	im := q.im
	scribble(q.src)
	if q.fork != nil {
		q.fork.mem.forks = slices.DeleteFunc(q.fork.mem.forks, func(f *fork) bool { return f == q.fork })
	}
	if im.exp.closed {
		reach("states", "a request whose export was closed")
	}
	if im.closed {
		reach("states", "a request whose import was closed")
	}
	if r != ok {
		im.noted(r)
		reach("states", "a request that did not arrive")
		return
	}
	if im.live() {
		s.settle(im.link, q.order)
	}
	if q.dst == nil {
		return
	}
	q.intact()
	if q.fork == nil {
		return
	}
	if len(q.fork.since) > 0 {
		reach("states", "a get in progress while its memory is written")
	}
	if i, bad := q.fork.then.wrong(q.dst, q.fork.off, q.fork.since...); bad {
		s.mismatch(q.fork.mem, i, q.dst[i-q.fork.off])
		s.fail("an asynchronous get brought what was never there")
	}
}

// fork is what may be in a range of a memory from some time on: what was there
// then, and what was written since.
type fork struct {
	mem   *memory
	then  *memory
	off   int // in both
	by    *link
	order int
	since []*write
}

// forkOf begins one for a get, which finds what its process has sent before.
func (s *sequence) forkOf(im *imported, off, n int) *fork {
	m := im.exp.mem
	then := &memory{base: bytes.Clone(m.base)}
	for _, w := range m.log {
		c := *w
		c.copied = w
		if c.by == im.link && c.done == 0 && c.sure {
			c.done = s.tick()
		}
		then.log = append(then.log, &c)
	}
	f := &fork{mem: m, then: then, off: im.exp.off + off, by: im.link, order: im.link.order}
	m.forks = append(m.forks, f)
	return f
}

// unsettle tells the gets in progress that were sure to find a write in its place
// that they are so no more: what sends it may end before it is made, while a get
// behind it by another import of the buffer goes on.
func (w *write) unsettle() {
	for _, f := range w.mem.forks {
		for _, c := range f.then.log {
			c.sure = c.sure && c.copied != w
		}
	}
}
