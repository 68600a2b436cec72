package link

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// Retransmission by the importing side when its link resumes (docs/models: resume, cancel).

// retransmission is one message that the exporter does not have, or has in part only.
type retransmission struct {
	seq     uint64
	frame   []byte       // A copy of its single frame.
	request *wire.Header // Set for a get or an atomic.
}

// pendingDetach is a closed import. If the exporter has applied a message sent after that, it
// knows.
type pendingDetach struct {
	handle   uint32
	afterSeq uint64
}

// resetConnState is called with rmu and tmu held when the connection is lost.
func (rq *Requester) resetConnState() {
	rq.retransmits, rq.midMessage = nil, false
	rq.ackRequested, rq.ackWanted = 0, 0
	if rq.queue.len() > 0 {
		rq.queue.at(0).rewind(0)
	}
	rq.redialer.replyBytes = uint64(rq.fetches.connLost())
}

func (rq *Requester) reconnect(why error) { rq.redialer.run(why) }

// resume continues where the exporter's answer says. It owns fd.
func (rq *Requester) resume(fd int, c Cipher, a *wire.Answer) error {
	rq.rmu.Lock()
	rq.tmu.Lock()
	var lapsed []pendingDetach
	err := rq.err()
	if err == nil {
		lapsed, err = rq.prepareRetransmit(a)
	}
	if err == nil {
		to := shmlayout.ConnEstablished
		if len(rq.retransmits) > 0 {
			to = shmlayout.ConnRetransmitting
		}
		err = rq.attach(fd, c, to)
	}
	if err == nil {
		rq.pump()
	} else {
		_ = unix.Close(fd)
	}
	rq.tmu.Unlock()
	for _, l := range lapsed {
		rq.onRevoke(l.handle, l.afterSeq, ErrClosed)
	}
	rq.ackEvent.Advance()
	rq.rmu.Unlock()
	rq.tx.writeEvent.Advance()
	rq.e.sleepers.Wake()
	return err
}

// prepareRetransmit queues what the exporter does not have. The caller holds rmu and tmu. lapsed
// are messages that were in frames and are given up now because their import is closed.
func (rq *Requester) prepareRetransmit(a *wire.Answer) (lapsed []pendingDetach, err error) {
	rq.redialer.partialBytes = a.Partial
	acked := rq.ackedSeq.Load()
	if a.Applied < acked || a.Applied > rq.maxWrittenSeq {
		return nil, protocol("the link is resumed after message %d, %d were acknowledged and %d sent", a.Applied, acked, rq.maxWrittenSeq)
	}
	rq.counters.AddLocked(shmlayout.Duplicates, a.Applied-acked)
	rq.ackedSeq.Store(a.Applied)
	rq.creditsReturned.Store(uint32(a.Credits))
	rq.writtenSeq.Store(a.Applied)
	rq.unacked.trim(a.Applied)
	rq.unacked.eachFrame(a.Applied, func(seq uint64, frame []byte) {
		rq.retransmits = append(rq.retransmits, retransmission{seq: seq, frame: frame})
	})
	for i := range rq.unacked.uncopied.len() {
		q := rq.unacked.uncopied.at(i)
		q.rewind(0)
		rq.retransmits = append(rq.retransmits, retransmission{seq: q.seq})
		if q.importClosed && q.seq <= rq.maxWrittenSeq {
			lapsed = append(lapsed, pendingDetach{q.msg.Handle, q.seq - 1})
		}
	}
	rq.fetches.mu.Lock()
	for _, f := range rq.fetches.list {
		if f.seq > a.Applied && f.seq <= rq.maxWrittenSeq {
			h := f.header()
			rq.retransmits = append(rq.retransmits, retransmission{seq: f.seq, request: &h})
		}
	}
	rq.fetches.mu.Unlock()
	slices.SortFunc(rq.retransmits, func(a, b retransmission) int { return cmp.Compare(a.seq, b.seq) })
	for i, r := range rq.retransmits {
		if want := a.Applied + 1 + uint64(i); r.seq != want {
			return nil, fmt.Errorf("message %d is to be sent again and %d is not there: a fault in this program", r.seq, want)
		}
	}
	if err := rq.resumePartial(a.Applied+1, a.Partial); err != nil {
		return nil, err
	}
	rq.pendingDetaches = slices.DeleteFunc(rq.pendingDetaches, func(d pendingDetach) bool { return d.afterSeq < a.Applied })
	if len(rq.retransmits) == 0 {
		rq.retransmitDone()
	}
	return lapsed, nil
}

// resumePartial continues in the middle of message seq, of which n bytes have arrived.
func (rq *Requester) resumePartial(seq, n uint64) error {
	if n == 0 {
		return nil
	}
	q := rq.unacked.find(seq)
	if q == nil && rq.queue.len() > 0 && len(rq.retransmits) == 0 && rq.queue.at(0).seq == seq {
		q = rq.queue.at(0)
	}
	switch {
	case q == nil || q.fetch != nil:
		return protocol("the link is resumed at byte %d of message %d, which has no part", n, seq)
	case n >= uint64(q.size) || !q.msg.Bytes && n%4 != 0:
		return protocol("the link is resumed at byte %d of message %d, which has %d", n, seq, q.size)
	case !q.abort:
		q.rewind(int(n))
	}
	return nil
}

// nextRetransmit returns the next frame to send again.
func (rq *Requester) nextRetransmit(h *wire.Header) (payload []byte) {
	r := &rq.retransmits[0]
	over := true
	switch {
	case r.request != nil:
		*h = *r.request
	case r.frame != nil:
		if err := h.ParseStored(r.frame); err != nil {
			rq.fail(err)
			rq.retransmits = nil
			return nil
		}
		payload = r.frame[wire.HeaderSize:]
	default:
		q := rq.unacked.find(r.seq)
		if q.abort {
			*h = q.abortHeader()
		} else {
			payload = q.chunk(h, rq.tx.maxPayload())
			over = q.complete()
		}
	}
	rq.resentBytes.Add(uint64(len(payload)))
	rq.counters.AddLocked(shmlayout.ResentBytes, uint64(len(payload)))
	if over {
		rq.retransmits = rq.retransmits[1:]
		rq.counters.AddLocked(shmlayout.Resent, 1)
		rq.messageFramed(r.seq, false)
		if len(rq.retransmits) == 0 {
			rq.retransmitDone()
		}
	}
	return payload
}

// retransmitDone is called when all that was written before is written again. Detach frames follow
// their messages, and waiters for an acknowledgement request it.
func (rq *Requester) retransmitDone() {
	rq.retransmits = nil
	rq.moveFrom(shmlayout.ConnEstablished, shmlayout.ConnRetransmitting)
	for _, d := range rq.pendingDetaches {
		rq.tx.control = append(rq.tx.control, wire.Header{Type: wire.Detach, Handle: d.handle})
	}
	rq.requestAck()
}

// reclaimMemory takes the memory of message seq back, whose sender does not wait any longer. Queued
// frames are still sent; a retransmission would send an abort.
func (rq *Requester) reclaimMemory(seq uint64) {
	rq.tmu.Lock()
	defer rq.tmu.Unlock()
	if q := rq.unacked.find(seq); q != nil {
		q.makeAbort()
		rq.tx.detachPayload()
	}
}

// The send buffer: what is retained of messages until they are acknowledged, on links that survive
// their connection. A short message's frame is built in the buffer and written to the socket from
// there, so it is copied once, as without the buffer. Longer and asynchronous messages stay in
// their senders' memory: their senders wait, or the request is not complete.

// Bounds of the memory for copies.
const (
	maxCopiesPerLink   = 1 << 20
	maxCopiesPerEngine = 32 << 20
	maxUncopied        = 4 * maxQueue // Messages that stay in their senders' memory.
)

// segment holds frames, one after another.
type segment struct {
	buf     []byte
	end     int
	lastSeq uint64 // Number of the last message in it.
	big     bool
}

const (
	smallSegment = 16 << 10
	bigSegment   = 128 << 10
	bigFrame     = smallSegment / 4 // Frames from this size on go to big segments.
)

// segmentPool provides the segments of all links of an engine.
type segmentPool struct {
	allocated  atomic.Int64
	small, big sync.Pool
}

func (s *segmentPool) get(big bool) *segment {
	pool, size := &s.small, smallSegment
	if big {
		pool, size = &s.big, bigSegment
	}
	if s.allocated.Add(int64(size)) > maxCopiesPerEngine {
		s.allocated.Add(-int64(size))
		return nil
	}
	if g, ok := pool.Get().(*segment); ok {
		return g
	}
	return &segment{buf: make([]byte, size), big: big}
}

func (s *segmentPool) put(g *segment) {
	s.allocated.Add(-int64(len(g.buf)))
	g.end, g.lastSeq = 0, 0
	if g.big {
		s.big.Put(g)
	} else {
		s.small.Put(g)
	}
}

// sendBuffer holds what the importing side retains. Guarded by tmu.
type sendBuffer struct {
	pool     *segmentPool
	segments []*segment
	filling  [2]*segment // The segment being filled, of each size.
	bytes    int
	// Messages in their senders' memory, in the order of their numbers.
	uncopied fifo[outgoing]
}

// reserve returns memory for a frame of n bytes, or nil if there is none. Messages up to acked need
// not be retained any more.
func (k *sendBuffer) reserve(n int, acked uint64) *segment {
	i := 0
	if n > bigFrame {
		i = 1
	}
	if g := k.filling[i]; g != nil {
		if g.end+n <= len(g.buf) {
			return g
		}
		if g.lastSeq <= acked { // reuse it while it is in the CPU's cache
			g.end = 0
			return g
		}
	}
	k.trim(acked)
	size := smallSegment
	if i == 1 {
		size = bigSegment
	}
	if k.bytes+size > maxCopiesPerLink {
		return nil
	}
	g := k.pool.get(i == 1)
	if g == nil {
		return nil
	}
	k.bytes += size
	k.segments = append(k.segments, g)
	k.filling[i] = g
	return g
}

// trim releases the memory of all messages up to acked.
func (k *sendBuffer) trim(acked uint64) {
	k.segments = slices.DeleteFunc(k.segments, func(g *segment) bool {
		if g.lastSeq > acked {
			return false
		}
		for i := range k.filling {
			if k.filling[i] == g {
				k.filling[i] = nil
			}
		}
		k.bytes -= len(g.buf)
		k.pool.put(g)
		return true
	})
	k.dropAcked(acked)
}

// dropAcked forgets acknowledged messages in their senders' memory.
func (k *sendBuffer) dropAcked(acked uint64) {
	for k.uncopied.len() > 0 && k.uncopied.at(0).seq <= acked {
		k.uncopied.pop()
	}
}

// find returns message seq if it is in its sender's memory.
func (k *sendBuffer) find(seq uint64) *outgoing {
	all := k.uncopied.items[k.uncopied.head:]
	i, ok := slices.BinarySearchFunc(all, seq, func(q outgoing, seq uint64) int {
		switch {
		case q.seq < seq:
			return -1
		case q.seq > seq:
			return 1
		}
		return 0
	})
	if !ok {
		return nil
	}
	return &all[i]
}

// eachFrame calls f for each copied frame of messages after number seq.
func (k *sendBuffer) eachFrame(seq uint64, f func(seq uint64, frame []byte)) {
	le := binary.LittleEndian
	for _, g := range k.segments {
		for b := g.buf[:g.end]; len(b) > 0; {
			n := wire.HeaderSize + int(le.Uint32(b[32:]))
			if s := le.Uint64(b[8:]); s > seq {
				f(s, b[:n:n])
			}
			b = b[n:]
		}
	}
}
