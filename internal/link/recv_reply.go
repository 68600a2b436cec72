package link

import (
	"slices"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// reply is a get that is being answered. Guarded by tmu.
type reply struct {
	target *Target
	handle uint32
	seq    uint64
	off    uint64
	size   uint64
	done   uint64
	last   uint32 // The last word, read before the rest.
	raw    bool

	result  bool   // Of an atomic; the old value is in off.
	refused uint32 // The code of a refusal.
}

// noTarget stands for an import that has ended.
var noTarget = Target{revoked: true}

// handleGet queues the answer to a get. An importer that does not read its answers may have
// maxFetches gets outstanding.
func (rs *Responder) handleGet(h *wire.Header) error {
	rs.advanceApplied(h.Seq)
	rs.counters.AddLocked(shmlayout.Gets, 1)
	rs.counters.AddLocked(shmlayout.GetBytes, h.Size)
	if invariant.Enabled {
		rs.trace("get", h.Handle, h.Seq, h.Off, h.Size)
	}
	t := rs.targets[h.Handle]
	switch {
	case t == nil:
		t = &noTarget // refused in order: answers keep the order of the gets
	case !t.Read:
		return protocol("a get from import %d, which is write-only", h.Handle)
	case h.Off > uint64(len(t.Mem)) || h.Size > uint64(len(t.Mem))-h.Off:
		return protocol("a get of %d bytes at %d, the export has %d", h.Size, h.Off, len(t.Mem))
	}
	return rs.queueReply(reply{target: t, handle: h.Handle, seq: h.Seq, off: h.Off, size: h.Size, raw: h.Flags&wire.Bytes != 0})
}

// handleAtomic executes an importer's atomic. It is executed on arrival, so it has its place among
// the messages. Its answer keeps the order of the gets.
func (rs *Responder) handleAtomic(h *wire.Header) error {
	rs.advanceApplied(h.Seq)
	rs.counters.AddLocked(shmlayout.Atomics, 1)
	if invariant.Enabled {
		rs.trace("atomic", h.Handle, h.Seq, h.Off, h.Size)
	}
	op, a, b := h.Operands()
	c := AtomicOp{Off: h.Off, Wide: h.Size == 8, Op: op, A: a, B: b}
	t := rs.targets[h.Handle]
	r := reply{target: &noTarget, handle: h.Handle, seq: h.Seq}
	switch {
	case t == nil:
	case !t.Read || !t.Write:
		return protocol("an atomic on import %d, which does not allow reading and writing", h.Handle)
	case h.Off > uint64(len(t.Mem)) || h.Size > uint64(len(t.Mem))-h.Off:
		return protocol("an atomic at %d, the export has %d bytes", h.Off, len(t.Mem))
	case t.faulted: // an earlier message was lost: refused as after the export's end
	case c.Wide && !shm.Aligned64(t.Mem[h.Off:]):
		r.target, r.refused = t, wire.CodeAlignment
	case t.MayFault:
		if err := shm.Guard(func() { r.off = applyAtomic(t.Mem, &c) }); err != nil {
			t.faulted = true
			rs.targetFaulted(t, err)
		} else {
			r.target, r.result = t, true
		}
	default:
		r.target, r.result, r.off = t, true, applyAtomic(t.Mem, &c)
	}
	return rs.queueReply(r)
}

// queueReply answers r in order: a short answer that is alone at once, others when all received
// data is processed.
func (rs *Responder) queueReply(r reply) error {
	rs.tmu.Lock()
	defer rs.tmu.Unlock()
	if len(rs.replies) >= maxFetches {
		return protocol("more than %d gets unanswered", maxFetches)
	}
	rs.replies = append(rs.replies, r)
	rs.retainReply(r)
	rs.e.markHot(&rs.stream)
	if len(rs.replies) > 1 || r.size > maxInline || rs.rx.start < rs.rx.end || rs.ackAsked ||
		rs.ackDue || !rs.tx.idle() || rs.disconnected() {
		rs.replyPending = true
		return nil
	}
	payload, _ := rs.nextReply(&rs.tx.ownHeader)
	if rs.writeShort(&rs.tx.ownHeader, payload) && !rs.tx.idle() { // a pad is due
		rs.replyPending = true
	}
	return nil
}

// nextReply returns the next chunk of the oldest reply. The last word is read before the rest: an
// importer that finds a flag there finds the data that the exporter stored before the flag.
func (rs *Responder) nextReply(h *wire.Header) ([]byte, bool) {
	if len(rs.replies) == 0 {
		return nil, false
	}
	r := &rs.replies[0]
	switch {
	case r.result: // even if the export has ended since: the atomic was executed
		*h = wire.Header{Type: wire.Result, Handle: r.handle, Seq: r.seq, Off: r.off}
	case r.target.revoked:
		*h = wire.Header{Type: wire.Nak, Handle: r.handle, Seq: r.seq, Word: wire.CodeRevoked}
	case r.refused != 0:
		*h = wire.Header{Type: wire.Nak, Handle: r.handle, Seq: r.seq, Word: r.refused}
	case r.target.MayFault && !rs.replyReadable(r):
		*h = wire.Header{Type: wire.Nak, Handle: r.handle, Seq: r.seq, Word: wire.CodeRevoked}
	default:
		return rs.nextReplyChunk(r, h), true
	}
	rs.popReply()
	return nil, true
}

// replyReadable reports whether the next chunk of an answer can be read, and ends its export if
// not.
func (rs *Responder) replyReadable(r *reply) bool {
	from, n := r.off+r.done, min(r.size-r.done, uint64(rs.tx.maxPayload()))
	err := shm.Readable(r.target.Mem[from : from+n])
	if err == nil && !r.raw && r.done == 0 {
		err = shm.Readable(r.target.Mem[r.off+r.size-4 : r.off+r.size])
	}
	if err != nil {
		rs.targetFaulted(r.target, err)
	}
	return err == nil
}

// nextReplyChunk returns the next chunk of a get's answer.
func (rs *Responder) nextReplyChunk(r *reply, h *wire.Header) []byte {
	if r.done == 0 && !r.raw {
		r.last = loadLast(r.target.Mem, r.off+r.size-4)
	}
	n := min(r.size-r.done, uint64(rs.tx.maxPayload()))
	*h = wire.Header{Type: wire.Reply, Handle: r.handle, Seq: r.seq, Off: r.done, Size: r.size, Chunk: uint32(n)}
	if r.raw {
		h.Flags = wire.Bytes
	}
	from := r.off + r.done
	r.done += n
	if r.done == r.size {
		h.Flags |= wire.Last
		if !r.raw {
			h.Word = r.last
			h.Chunk -= 4
		}
		defer rs.popReply()
	}
	return r.target.Mem[from : from+uint64(h.Chunk)]
}

func (rs *Responder) popReply() {
	n := copy(rs.replies, rs.replies[1:])
	rs.replies[n] = reply{}
	rs.replies = rs.replies[:n]
}

// sendFaulted records the memory of an answer that the kernel could not read although it was
// readable before. What is in frames of the answer cannot be taken back, so the connection is lost.
// Between nodes the link is resumed, and the answer is checked again and refused. On one node the
// link ends, because its importer would get an incomplete answer, and blamed ends the export. The
// caller holds tmu.
func (rs *Responder) sendFaulted() {
	for _, p := range rs.tx.parts[rs.tx.firstPart:rs.tx.partCount] {
		if p.copied {
			continue
		}
		if err := shm.Readable(p.payload); err != nil {
			rs.unread, rs.unreadErr = p.payload, err
			return
		}
	}
}

// blamed ends the export whose memory ended the link. The caller holds rmu.
func (rs *Responder) blamed() {
	rs.tmu.Lock()
	pay, err := rs.unread, rs.unreadErr
	rs.unread = nil
	rs.tmu.Unlock()
	if len(pay) == 0 {
		return
	}
	for _, t := range rs.targets {
		if shm.Overlap(t.Mem, pay) {
			rs.targetFaulted(t, err)
		}
	}
}

// Retransmission by the exporting side when its link resumes.

// maxRecentRevokes bounds the notices that are retained. An importer that missed older ones learns
// of those revoked imports when it uses them.
const maxRecentRevokes = 1024

// resetConnState is called when the connection is gone, with rmu and tmu held. Of the
// message under way whole frames count.
func (rs *Responder) resetConnState() { rs.replies, rs.ackDue, rs.unread = nil, false, nil }

// retainReply retains a get, or the result of an atomic, until its importer has received it: an
// importer that sends one more than may be unanswered has received the oldest. The caller holds
// tmu.
func (rs *Responder) retainReply(r reply) {
	if rs.reconnectLimit == 0 {
		return
	}
	if rs.recentReplies.len() == maxFetches {
		rs.recentReplies.pop()
	}
	rs.recentReplies.push(r)
}

// retainRevoke numbers a notice and retains it. The caller holds tmu.
func (rs *Responder) retainRevoke(h *wire.Header) {
	if rs.reconnectLimit == 0 {
		return
	}
	rs.revokeCount++
	h.Serial = rs.revokeCount
	if len(rs.recentRevokes) == maxRecentRevokes {
		rs.recentRevokes = append(rs.recentRevokes[:0], rs.recentRevokes[1:]...)
	}
	rs.recentRevokes = append(rs.recentRevokes, *h)
}

// requeueReplies queues what the importer has not received. The caller holds rmu and tmu.
func (rs *Responder) requeueReplies(replied uint64, notices uint32) {
	for rs.recentReplies.len() > 0 && rs.recentReplies.at(0).seq <= replied {
		rs.recentReplies.pop()
	}
	rs.replies = slices.Clone(rs.recentReplies.items[rs.recentReplies.head:])
	rs.recentRevokes = slices.DeleteFunc(rs.recentRevokes, func(h wire.Header) bool { return h.Serial <= notices })
	rs.tx.control = append(rs.tx.control, rs.recentRevokes...)
}
