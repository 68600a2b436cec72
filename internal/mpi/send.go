package mpi

import (
	"context"
	"slices"
)

// Mode is how a send ends.
type Mode int

// The modes of sends. Ready is Standard: a receiver that has not posted its receive keeps the message.
const (
	Standard Mode = iota
	Synchronous
	Ready
	Buffered
)

// BufferOverhead is what a buffered send takes of the attached buffer beside its data.
const BufferOverhead = 64

// Target is where a message goes.
type Target struct {
	Context uint64
	Rank    int   // in the job
	Source  int   // the sender's rank in the communicator
	Tag     int   // checked
	Group   []int // ranks in the job, of the communicator
	// Collective makes the send fail if any rank of the group is gone: others may have left the
	// collective for that.
	Collective bool
}

// Send sends a message, and returns when buf may be used again. If the context ends before, buf may be
// used, and the message is withdrawn unless a receive has matched it.
func (e *Engine) Send(ctx context.Context, t *Target, buf []byte, mode Mode) error {
	if mode == Buffered {
		return e.sendBuffered(t, buf)
	}
	e.mu.Lock()
	pr, err := e.target(t)
	if err != nil {
		e.mu.Unlock()
		return err
	}
	if mode != Synchronous && len(pr.queue) == 0 && pr.port != nil && pr.eager(t, buf) {
		e.mu.Unlock()
		return nil
	}
	r := e.newRequest(true)
	e.startSend(r, t, pr, buf, mode)
	e.mu.Unlock()
	ended := r.await(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	if ended != nil {
		ended = canceled(ctx, "send")
		r.abandon(ended)
	}
	err = r.err
	r.detach()
	e.recycle(r)
	return err
}

// Isend begins to send. buf belongs to the request until it is over.
func (e *Engine) Isend(t *Target, buf []byte, mode Mode) (*Request, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	pr, err := e.target(t)
	if err != nil {
		return nil, err
	}
	if mode == Buffered {
		if err := e.startBuffered(t, pr, buf); err != nil { // it goes on with a copy
			return nil, err
		}
		d := e.newRequest(false)
		d.kind, d.status = sending, Status{Source: t.Source, Tag: t.Tag, Bytes: len(buf)}
		d.finish(nil)
		return d, nil
	}
	r := e.newRequest(false)
	e.startSend(r, t, pr, buf, mode)
	return r, nil
}

// All that follows is called with mu held.

func (e *Engine) target(t *Target) (*peer, error) {
	if e.closed {
		return nil, Fail(ErrOther, "", "MPI is finalized")
	}
	if err := e.full(); err != nil {
		return nil, err
	}
	if err := e.usable(t.Context); err != nil {
		return nil, err
	}
	pr := e.peers[t.Rank]
	if pr.err != nil {
		return nil, e.errGone(t.Rank)
	}
	if t.Collective && e.dead > 0 {
		return pr, e.groupGone(t.Group, nil)
	}
	return pr, nil
}

func (e *Engine) startSend(r *Request, t *Target, pr *peer, buf []byte, mode Mode) {
	r.group, r.whole = t.Group, t.Collective
	r.kind, r.state, r.sync, r.buf, r.length = sending, queued, mode == Synchronous, buf, len(buf)
	r.setPeer(pr)
	r.v = envelope{context: t.Context, source: int32(t.Source), tag: int32(t.Tag), length: uint64(len(buf)), rank: e.rank}
	r.status = Status{Source: t.Source, Tag: t.Tag, Bytes: len(buf)}
	r.register()
	if pr.port == nil {
		e.sendSelf(pr, r)
		return
	}
	pr.queue = append(pr.queue, r)
	pr.pump()
}

// eager sends a message at once, if there is room and the receiver has credit.
func (pr *peer) eager(t *Target, buf []byte) bool {
	n := cellsOf(len(buf))
	if !pr.port.Eager(len(buf)) || pr.sent-pr.acked+n > window {
		return false
	}
	pr.h = Header{
		kind: kindEager, context: t.Context, source: int32(t.Source), tag: int32(t.Tag), length: uint64(len(buf)),
	}
	if !pr.send(buf) {
		return false
	}
	pr.sent += n
	return true
}

// send sends the packet of h, and with it what was matched.
func (pr *peer) send(data []byte) bool {
	pr.h.matched = pr.freed
	if !pr.port.Send(&pr.h, data) {
		return false
	}
	pr.told = pr.freed
	return true
}

// pump sends what there is room for: revocations, answers, then credits, then envelopes in their order, and then
// data of each message in turn.
func (pr *peer) pump() {
	if pr.port == nil || pr.err != nil {
		return
	}
	if !pr.sendNotices() {
		return
	}
	for len(pr.control) > 0 {
		pr.h = pr.control[0]
		if !pr.send(nil) {
			return
		}
		switch pr.h.kind {
		case kindCTS, kindWithdrawn:
			pr.askers--
		case kindPong:
			pr.pongs--
		}
		if pr.control = pr.control[1:]; len(pr.control) == 0 {
			pr.control = nil
		}
	}
	if pr.freed-pr.told >= window/4 {
		if pr.h = (Header{kind: kindNoop}); !pr.send(nil) {
			return
		}
	}
	for len(pr.queue) > 0 {
		if !pr.sendEnvelope(pr.queue[0]) {
			if pr.asked == maxAsked { // the data of messages that it has matched goes on
				break
			}
			return
		}
		pr.queue[0] = nil
		pr.queue = pr.queue[1:]
	}
	for len(pr.streams) > 0 {
		r := pr.streams[0]
		n := min(len(r.buf)-r.off, pr.port.MaxPacket())
		pr.h = Header{kind: kindData, rreq: r.far, length: uint64(r.off)}
		if !pr.send(r.buf[r.off : r.off+n]) {
			return
		}
		r.off += n
		copy(pr.streams, pr.streams[1:])
		if r.off < len(r.buf) {
			pr.streams[len(pr.streams)-1] = r
		} else {
			pr.streams[len(pr.streams)-1] = nil
			pr.streams = pr.streams[:len(pr.streams)-1]
			r.finish(nil)
		}
	}
}

// sendEnvelope sends a message, or asks the receiver for leave. It reports whether there was room, and
// whether the receiver has few enough envelopes of this rank.
func (pr *peer) sendEnvelope(r *Request) bool {
	n := cellsOf(r.length)
	h := Header{context: r.v.context, source: r.v.source, tag: r.v.tag, length: r.v.length}
	if !r.sync && pr.port.Eager(r.length) && pr.sent-pr.acked+n <= window {
		h.kind = kindEager
		pr.h = h
		if !pr.send(r.buf) {
			return false
		}
		pr.sent += n
		r.finish(nil)
		return true
	}
	if pr.asked == maxAsked {
		return false
	}
	h.kind, h.sreq = kindRTS, r.index
	pr.h = h
	if !pr.send(nil) {
		return false
	}
	pr.asked++
	r.state = left
	return true
}

// sendSelf gives this rank a message of its own.
func (e *Engine) sendSelf(pr *peer, r *Request) {
	v := r.v
	if i := e.q.findPosted(v.context, v.source, v.tag); i != 0 {
		e.takePosted(i).fromSelf(r, &v)
		return
	}
	r.state = left
	n := cellsOf(r.length)
	if !r.sync && r.length <= MaxEager && pr.held+n <= window {
		v.kind, v.cell = entryEager, e.q.store(r.buf)
		pr.held += n
		if err := e.addUnexpected(&v); err != nil {
			r.finish(err)
			return
		}
		r.finish(nil)
		return
	}
	v.kind, v.request = entryRTS, r.index
	if err := e.addUnexpected(&v); err != nil {
		r.finish(err)
	}
}

// sendBuffered sends a copy.
func (e *Engine) sendBuffered(t *Target, buf []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	pr, err := e.target(t)
	if err != nil {
		return err
	}
	return e.startBuffered(t, pr, buf)
}

func (e *Engine) startBuffered(t *Target, pr *peer, buf []byte) error {
	need := len(buf) + BufferOverhead
	if e.buffered+need > e.bufferSize {
		return Fail(ErrBuffer, "buf", "the message takes %d bytes of the attached buffer, which has %d, and %d are in use",
			need, e.bufferSize, e.buffered)
	}
	e.buffered += need
	r := e.newRequest(false)
	r.copied = true
	e.startSend(r, t, pr, slices.Clone(buf), Buffered)
	return nil
}

// AttachBuffer lets buffered sends take n bytes.
func (e *Engine) AttachBuffer(n int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.bufferSize > 0:
		return Fail(ErrBuffer, "size", "a buffer of %d bytes is attached already: detach it first", e.bufferSize)
	case n <= 0:
		return Fail(ErrArg, "size", "it is %d, want a positive number", n)
	}
	e.bufferSize = n
	return nil
}

// DetachBuffer waits until no buffered send is under way, and returns how many bytes were attached.
func (e *Engine) DetachBuffer(ctx context.Context) (int, error) {
	for {
		e.mu.Lock()
		if e.buffered == 0 {
			n := e.bufferSize
			e.bufferSize = 0
			e.mu.Unlock()
			return n, nil
		}
		if e.bufferFree == nil {
			e.bufferFree = make(chan struct{})
		}
		free := e.bufferFree
		e.mu.Unlock()
		e.parked.Add(1)
		e.attend()
		select {
		case <-free:
		case <-ctx.Done():
		}
		e.parked.Add(-1)
		if ctx.Err() != nil {
			return 0, canceled(ctx, "wait until buffered messages have left")
		}
	}
}
