package link

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vmmc-go/vmmc/internal/link/sendbuf"
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
	rq.unacked.copies.EachFrame(a.Applied, func(seq uint64, frame []byte) {
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
			if q.importClosed { // its sender waits, and may have more to send
				rq.abortFaulted(q, unknown(ErrEnded))
			}
		} else {
			payload = q.chunk(h, rq.tx.maxPayload())
			over = q.complete()
		}
	}
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

// maxUncopied bounds the messages that stay in their senders' memory.
const maxUncopied = 4 * maxQueue

// sendBuffer holds what the importing side retains of messages until they are acknowledged. Longer
// and asynchronous messages stay in their senders' memory: their senders wait, or the request is
// not complete. Guarded by tmu.
type sendBuffer struct {
	copies sendbuf.Buffer
	// Messages in their senders' memory, in the order of their numbers.
	uncopied fifo[outgoing]
}

// reserve returns memory for a frame of n bytes, or nil if there is none. Messages up to acked need
// not be retained any more.
func (k *sendBuffer) reserve(n int, acked uint64) *sendbuf.Segment {
	if g := k.copies.Reserve(n, acked); g != nil {
		return g
	}
	k.trim(acked)
	return k.copies.Grow(n)
}

// trim releases the memory of all messages up to acked.
func (k *sendBuffer) trim(acked uint64) {
	k.copies.Trim(acked)
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
