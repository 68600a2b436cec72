package mpi

import (
	"context"
	"math"
	"slices"
)

// Source is which messages a receive takes.
type Source struct {
	Context uint64
	Rank    int   // in the job, or AnySource
	Source  int   // rank in the communicator, or AnySource
	Tag     int   // or AnyTag
	Group   []int // ranks in the job, of the communicator
	Acked   []int // those whose end does not fail a receive or a probe from AnySource
	// Collective makes the receive fail if any rank of the group is gone.
	Collective bool
}

// Recv receives a message into buf. If the context ends before, no message is taken, but one that
// has begun to arrive, which is lost.
func (e *Engine) Recv(ctx context.Context, s *Source, buf []byte) (Status, error) {
	e.mu.Lock()
	r := e.newRequest(true)
	if err := e.startRecv(r, s, buf); err != nil {
		e.recycle(r)
		e.mu.Unlock()
		return Status{}, err
	}
	if r.polled && !r.done.Load() {
		e.pollAll() // it may have arrived
	}
	var ended error
	if !r.done.Load() {
		e.mu.Unlock()
		ended = r.await(ctx)
		e.mu.Lock()
	}
	defer e.mu.Unlock()
	if ended != nil { // a message that has come since is not lost: abandon has no effect then
		r.abandon(canceled(ctx, "receive"))
	}
	status, err := r.outcome()
	e.recycle(r)
	return status, err
}

// Irecv begins to receive. buf belongs to the request until it is over.
func (e *Engine) Irecv(s *Source, buf []byte) (*Request, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.newRequest(false)
	return r, e.startRecv(r, s, buf)
}

// All that follows is called with mu held, but Message.Recv and the probes.

// startRecv looks among the unexpected messages and posts the receive, in one critical section.
func (e *Engine) startRecv(r *Request, s *Source, buf []byte) error {
	if err := e.receivable(s); err != nil {
		return err
	}
	r.kind, r.state, r.buf, r.group, r.whole = receiving, isPosted, buf, s.Group, s.Collective
	r.v.context = s.Context
	r.setPeer(e.peerOf(s))
	source, tag := int32(s.Source), int32(s.Tag)
	if i := e.findUnexpected(s); i != 0 {
		v := e.q.at(i).get()
		e.q.remove(unexpected, i)
		r.take(&v)
		return nil
	}
	if err := e.sourceGone(r, s.Acked); err != nil {
		return err
	}
	r.register()
	r.v = envelope{context: s.Context, source: source, tag: tag, kind: entryPosted, rank: e.rank, request: r.index}
	i, err := e.q.add(posted, &r.v)
	if err != nil {
		r.finish(nil)
		return &Error{ErrOther, "", err}
	}
	r.entry = i
	return nil
}

// receivable is the error of a receive that cannot begin.
func (e *Engine) receivable(s *Source) error {
	if e.closed {
		return Fail(ErrOther, "", "MPI is finalized")
	}
	if err := e.full(); err != nil {
		return err
	}
	return e.usable(s.Context)
}

// peerOf is the rank that a receive names, or nil.
func (e *Engine) peerOf(s *Source) *peer {
	if s.Rank == AnySource {
		return nil
	}
	return e.peers[s.Rank]
}

// sourceGone is the error of a receive that no message comes for.
func (e *Engine) sourceGone(r *Request, acked []int) error {
	switch {
	case r.peer != nil && r.peer.err != nil:
		return e.errGone(r.peer.rank)
	case (r.peer == nil || r.whole) && e.dead > 0:
		return e.groupGone(r.group, acked)
	}
	return nil
}

// probeGone is sourceGone of a probe.
func (e *Engine) probeGone(s *Source) error {
	r := Request{peer: e.peerOf(s), group: s.Group, whole: s.Collective}
	return e.sourceGone(&r, s.Acked)
}

// groupGone is the error of a group with a rank that is gone, and not in acked.
func (e *Engine) groupGone(group, acked []int) error {
	for _, rank := range group {
		if e.peers[rank].err != nil && !slices.Contains(acked, rank) {
			return e.errGone(rank)
		}
	}
	return nil
}

// takePosted takes a posted receive out of its list.
func (e *Engine) takePosted(i uint32) *Request {
	r := e.lookUp(e.q.at(i).request())
	e.q.remove(posted, i)
	r.entry = 0
	return r
}

// take gives a receive a message that was unexpected.
func (r *Request) take(v *envelope) {
	e := r.e
	from := e.peers[v.rank]
	r.peer = from
	r.status = Status{Source: int(v.source), Tag: int(v.tag), Bytes: int(v.length)}
	switch {
	case v.kind == entryEager:
		n := cellsOf(int(v.length))
		dst := r.buf
		if err := r.truncated(v.length); err != nil {
			e.q.load(nil, v.cell)
			from.release(n)
			r.finish(err)
			return
		}
		e.q.load(dst[:v.length], v.cell)
		from.release(n)
		r.finish(nil)
	case from.port == nil:
		r.fromSelf(e.lookUp(v.request), v)
	default:
		r.clear(v.request, v.length)
	}
}

// release counts cells of a message that was unexpected.
func (pr *peer) release(n uint32) {
	pr.held -= n
	pr.match(n)
}

// match gives a peer its credit back.
func (pr *peer) match(n uint32) {
	pr.freed += n
	if pr.port != nil && pr.freed-pr.told >= window/4 {
		pr.pump()
	}
}

func (r *Request) truncated(n uint64) error {
	if n <= uint64(len(r.buf)) {
		return nil
	}
	r.status.Bytes = 0
	return Fail(ErrTruncate, "buf", "the message of rank %d with tag %d has %d bytes, and the buffer has %d: nothing was stored",
		r.status.Source, r.status.Tag, n, len(r.buf))
}

// fromSelf copies a message of this rank.
func (r *Request) fromSelf(s *Request, v *envelope) {
	r.status = Status{Source: int(v.source), Tag: int(v.tag), Bytes: int(v.length)}
	err := r.truncated(v.length)
	if err == nil {
		copy(r.buf, s.buf)
	}
	s.finish(nil)
	r.finish(err)
}

// clear tells a sender that its message is matched, and awaits the data.
func (r *Request) clear(sreq uint32, length uint64) {
	pr := r.peer
	h := Header{kind: kindCTS, sreq: sreq, length: length}
	err := r.truncated(length)
	if err != nil {
		h.flags = flagDiscard
	}
	if err != nil || length == 0 {
		pr.control = append(pr.control, h)
		r.finish(err)
		pr.pump()
		return
	}
	r.register()
	r.state, r.off, r.length = matched, 0, int(length)
	h.rreq = r.index
	pr.control = append(pr.control, h)
	pr.pump()
}

// Deliver takes a packet of the peer.
func (pr *peer) Deliver(h *Header, data []byte) error {
	e := pr.e
	if n := h.matched - pr.acked; int32(n) > 0 {
		if n > pr.sent-pr.acked {
			return pr.violation("it has matched %d cells of %d", n, pr.sent-pr.acked)
		}
		pr.acked = h.matched
	}
	if h.kind == kindEager || h.kind == kindRTS {
		if err := pr.checkEnvelope(h); err != nil {
			return err
		}
	}
	switch h.kind {
	case kindEager:
		return pr.eagerArrived(h, data)
	case kindRTS:
		if pr.askers == maxAsked {
			return pr.violation("more than %d messages wait for an answer", maxAsked)
		}
		pr.askers++
		v := envelope{
			context: h.context, source: h.source, tag: h.tag, length: h.length,
			kind: entryRTS, rank: pr.rank, request: h.sreq,
		}
		i, err := pr.findPosted(h)
		if err != nil {
			return err
		}
		if i != 0 {
			r := e.takePosted(i)
			r.peer = pr
			r.status = Status{Source: int(h.source), Tag: int(h.tag), Bytes: int(h.length)}
			r.clear(h.sreq, h.length)
			return nil
		}
		return e.addUnexpected(&v)
	case kindCTS:
		return pr.cleared(h)
	case kindData:
		return pr.dataArrived(h, data)
	case kindNoop:
		return nil
	case kindRevoke:
		return pr.revocationArrived(h, data)
	case kindWithdraw:
		pr.withdrawn(h)
		return nil
	case kindWithdrawn:
		return pr.takenBack(h)
	case kindPing:
		return pr.pinged(h)
	case kindPong:
		return pr.answered(h)
	}
	return pr.violation("a packet of kind %d", h.kind)
}

// maxLength bounds the length of a message that a rank announces. No memory is as long, and Status
// has it as an int.
const maxLength = math.MaxInt / 2

// checkEnvelope refuses what no rank sends: a program would get it in a Status. Only the collectives'
// contexts, which are odd, have negative tags.
func (pr *peer) checkEnvelope(h *Header) error {
	switch {
	case h.length > maxLength:
		return pr.violation("a message of %d bytes", h.length)
	case h.source < 0 || int(h.source) >= pr.e.size:
		return pr.violation("a message of rank %d of a communicator, in a job of %d ranks", h.source, pr.e.size)
	case h.tag == AnyTag || h.tag == AnySource || h.tag < 0 && h.context&1 == 0:
		return pr.violation("a message with tag %d", h.tag)
	}
	return nil
}

// checkSource is an error unless the peer is a rank of a communicator, given as ranks in the job. A message
// that has arrived early is of a communicator that this rank may not have yet. So this is checked
// when the message meets a receive or a probe.
func (pr *peer) checkSource(group []int, source int32) error {
	if int(source) >= len(group) || group[source] != pr.rank {
		return pr.violation("it sends as rank %d of a communicator of %d ranks, and is another one", source, len(group))
	}
	return nil
}

// findPosted returns the first receive that takes a message which arrives, or 0.
func (pr *peer) findPosted(h *Header) (uint32, error) {
	e := pr.e
	i := e.q.findPosted(h.context, h.source, h.tag)
	if i == 0 {
		return 0, nil
	}
	return i, pr.checkSource(e.lookUp(e.q.at(i).request()).group, h.source)
}

// findUnexpected returns the first message that a receive takes, or 0. It drops those whose sender
// sends as another rank, and fails the sender.
func (e *Engine) findUnexpected(s *Source) uint32 {
	for {
		i := e.q.findUnexpected(s.Context, int32(s.Source), int32(s.Tag))
		if i == 0 {
			return 0
		}
		v := e.q.at(i).get()
		pr := e.peers[v.rank]
		err := pr.checkSource(s.Group, v.source)
		if err == nil {
			return i
		}
		e.q.remove(unexpected, i)
		if v.kind == entryEager {
			e.q.load(nil, v.cell)
			pr.held -= cellsOf(int(v.length))
		}
		pr.fail(err)
	}
}

func (pr *peer) eagerArrived(h *Header, data []byte) error {
	e := pr.e
	if uint64(len(data)) != h.length || len(data) > MaxEager {
		return pr.violation("an eager message of %d bytes in a packet of %d", h.length, len(data))
	}
	n := cellsOf(len(data))
	if e.usable(h.context) != nil { // its sender did not know yet
		pr.match(n)
		return nil
	}
	i, err := pr.findPosted(h)
	if err != nil {
		return err
	}
	if i != 0 {
		r := e.takePosted(i)
		r.status = Status{Source: int(h.source), Tag: int(h.tag), Bytes: len(data)}
		err := r.truncated(h.length)
		if err == nil {
			copy(r.buf, data)
		}
		r.finish(err)
		pr.match(n)
		return nil
	}
	if pr.held+n > window {
		return pr.violation("%d cells of unexpected messages, %d are allowed", pr.held+n, window)
	}
	pr.held += n
	return e.addUnexpected(&envelope{
		context: h.context, source: h.source, tag: h.tag, length: h.length,
		kind: entryEager, rank: pr.rank, cell: e.q.store(data),
	})
}

// cleared begins to send the data of a message that was matched.
func (pr *peer) cleared(h *Header) error {
	r := pr.e.lookUp(h.sreq)
	if r == nil || r.kind != sending || r.peer != pr || r.state != left {
		return pr.violation("it has matched a message that does not wait")
	}
	pr.asked--
	if h.flags&flagDiscard != 0 || r.length == 0 {
		r.finish(nil)
		return nil
	}
	r.state, r.off, r.far = streaming, 0, h.rreq
	pr.streams = append(pr.streams, r)
	return nil // Poll's caller pumps
}

// withdrawn forgets a message that the peer takes back, and says so. If a receive or a matched probe
// has taken it, the answer to that one is the answer.
func (pr *peer) withdrawn(h *Header) {
	i := pr.e.q.findAsked(h.context, pr.rank, h.sreq)
	if i == 0 {
		return
	}
	pr.e.q.remove(unexpected, i)
	pr.control = append(pr.control, Header{kind: kindWithdrawn, sreq: h.sreq})
	// Poll's caller pumps
}

// takenBack ends a send that was withdrawn.
func (pr *peer) takenBack(h *Header) error {
	r := pr.e.lookUp(h.sreq)
	if r == nil || r.kind != sending || r.peer != pr || r.state != left || !r.withdrawing {
		return pr.violation("it has forgotten a message that was not withdrawn")
	}
	pr.asked--
	r.cancelled()
	return nil
}

func (pr *peer) dataArrived(h *Header, data []byte) error {
	r := pr.e.lookUp(h.rreq)
	if r == nil || r.kind != receiving || r.peer != pr || r.state != matched ||
		h.length != uint64(r.off) || len(data) == 0 || len(data) > r.length-r.off {
		return pr.violation("data that no receive waits for")
	}
	if r.buf != nil {
		copy(r.buf[r.off:], data)
	}
	if r.off += len(data); r.off == r.length {
		r.finish(nil)
	}
	return nil
}

func (pr *peer) violation(format string, args ...any) error {
	return Fail(ErrOther, "", "rank %d breaks the protocol: "+format, append([]any{pr.rank}, args...)...)
}

// addUnexpected keeps a message, unless a matched probe waits for it.
func (e *Engine) addUnexpected(v *envelope) error {
	for i := 0; i < len(e.probers); {
		r := e.probers[i]
		if r.v.context != v.context || !fits(r.v.source, r.v.tag, v.source, v.tag) {
			i++
			continue
		}
		if err := e.peers[v.rank].checkSource(r.group, v.source); err != nil {
			if v.kind == entryEager {
				e.q.load(nil, v.cell)
				e.peers[v.rank].held -= cellsOf(int(v.length))
			}
			return err
		}
		e.probers = slices.Delete(e.probers, i, i+1)
		r.status = Status{Source: int(v.source), Tag: int(v.tag), Bytes: int(v.length)}
		if r.kind == mprobing {
			r.msg = &Message{e: e, v: *v}
			r.finish(nil)
			return nil
		}
		r.finish(nil)
	}
	if _, err := e.q.add(unexpected, v); err != nil {
		return &Error{ErrOther, "", err}
	}
	return nil
}

// Message is one that a matched probe has taken: no other receive gets it.
type Message struct {
	e     *Engine
	v     envelope
	taken bool
}

// Probe waits until a receive would find a message. With take it takes the message.
func (e *Engine) Probe(ctx context.Context, s *Source, take bool) (Status, *Message, error) {
	e.mu.Lock()
	status, m, err := e.probe(s, take)
	if err != nil || status != nil {
		e.mu.Unlock()
		if err != nil {
			return Status{}, nil, err
		}
		return *status, m, nil
	}
	r := e.newRequest(false)
	r.kind, r.state, r.group = probing, isPosted, s.Group
	if take {
		r.kind = mprobing
	}
	r.setPeer(e.peerOf(s))
	if err := e.sourceGone(r, s.Acked); err != nil {
		e.mu.Unlock()
		return Status{}, nil, err
	}
	r.v = envelope{context: s.Context, source: int32(s.Source), tag: int32(s.Tag)}
	e.probers = append(e.probers, r)
	e.mu.Unlock()
	if r.await(ctx) != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		if r.done.Load() && r.msg != nil { // no other receive gets it
			return r.status, r.msg, r.err
		}
		e.probers = slices.DeleteFunc(e.probers, func(o *Request) bool { return o == r })
		return Status{}, nil, canceled(ctx, "probe")
	}
	return r.status, r.msg, r.err
}

// Iprobe is Probe that does not wait: ok is false if there is no message.
func (e *Engine) Iprobe(s *Source, take bool) (st Status, m *Message, ok bool, err error) {
	e.step()
	e.mu.Lock()
	defer e.mu.Unlock()
	status, m, err := e.probe(s, take)
	if status == nil {
		if err == nil {
			err = e.probeGone(s)
		}
		return Status{}, nil, false, err
	}
	return *status, m, true, nil
}

// probe looks for a message once.
func (e *Engine) probe(s *Source, take bool) (*Status, *Message, error) {
	if e.closed {
		return nil, nil, Fail(ErrOther, "", "MPI is finalized")
	}
	if err := e.usable(s.Context); err != nil {
		return nil, nil, err
	}
	i := e.findUnexpected(s)
	if i == 0 {
		return nil, nil, nil
	}
	v := e.q.at(i).get()
	status := &Status{Source: int(v.source), Tag: int(v.tag), Bytes: int(v.length)}
	if !take {
		return status, nil, nil
	}
	e.q.remove(unexpected, i)
	return status, &Message{e: e, v: v}, nil
}

// Recv receives the message, as Engine.Recv does.
func (m *Message) Recv(ctx context.Context, buf []byte) (Status, error) {
	r, err := m.Irecv(buf)
	if err != nil {
		return Status{}, err
	}
	return r.complete(ctx, "receive")
}

// Irecv begins to receive the message.
func (m *Message) Irecv(buf []byte) (*Request, error) {
	e := m.e
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return nil, Fail(ErrOther, "", "MPI is finalized")
	case m.taken:
		return nil, Fail(ErrRequest, "message", "the message was received already")
	}
	if err := e.full(); err != nil {
		return nil, err
	}
	m.taken = true
	if err := e.usable(m.v.context); err != nil {
		m.drop()
		return nil, err
	}
	r := e.newRequest(false)
	r.kind, r.state, r.buf = receiving, isPosted, buf
	r.v.context = m.v.context
	r.setPeer(e.peers[m.v.rank])
	if r.peer.err != nil && m.v.kind == entryRTS {
		return nil, e.errGone(m.v.rank)
	}
	r.take(&m.v)
	return r, nil
}
