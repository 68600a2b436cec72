package link

import (
	"context"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// Message is a send on the stream.
type Message struct {
	Handle    uint32
	ID        uint32 // the buffer's, by which two imports of one buffer are known
	Off       uint64
	Src       []byte
	More      [][]byte // what follows Src in the same message
	Bytes     bool     // any length and alignment
	Notify    bool
	NoAckWait bool         // a long one's send does not wait until it is acknowledged either
	Ended     *atomic.Bool // the import is no more
}

// checkReadable says whether the message can be read from where it lies.
func (m *Message) checkReadable() error { return shm.Guard(m.touch) }

func (m *Message) touch() {
	shm.Touch(m.Src)
	for _, b := range m.More {
		shm.Touch(b)
	}
}

// Len is the message's size in bytes.
func (m *Message) Len() int {
	n := len(m.Src)
	for _, b := range m.More {
		n += len(b)
	}
	return n
}

// outgoing is a message on its way into the stream, chunk by chunk; a get or an
// atomic that waits behind one, when f is there.
type outgoing struct {
	msg          Message
	size         int
	framed       int // bytes of it in chunks that were begun
	piece        int // of the memory where the next one begins, and
	before       int // the bytes in those before it
	seq          uint64
	serial       uint32
	abort        bool // it ends here
	importClosed bool // because its import was closed
	fetch        *fetch
}

// rewind makes the next chunk begin at byte n.
func (q *outgoing) rewind(n int) { q.framed, q.piece, q.before = n, 0, 0 }

// makeAbort makes it an abort, whose memory is not the link's any more.
func (q *outgoing) makeAbort() {
	q.abort = true
	q.msg.Src, q.msg.More = nil, nil
}

func (q *outgoing) complete() bool { return q.framed == q.size }

// chunk gives the message's next frame, of at most most bytes.
func (q *outgoing) chunk(h *wire.Header, most int) []byte {
	m := &q.msg
	pay := m.Src
	if q.piece > 0 {
		pay = m.More[q.piece-1]
	}
	for q.framed-q.before >= len(pay) {
		q.before += len(pay)
		pay = m.More[q.piece]
		q.piece++
	}
	pay = pay[q.framed-q.before:]
	pay = pay[:min(len(pay), most)]
	*h = wire.Header{
		Type: wire.Data, Handle: m.Handle, Seq: q.seq, Serial: q.serial,
		Off: m.Off + uint64(q.framed), Size: uint64(q.size),
	}
	if m.Bytes {
		h.Flags = wire.Bytes
	}
	q.framed += len(pay)
	if q.complete() {
		pay = q.msg.finishHeader(h, q.size, pay)
	}
	h.Chunk = uint32(len(pay))
	return pay
}

// finishHeader makes h the last header of a message of size bytes, and takes the last word off the payload.
func (m *Message) finishHeader(h *wire.Header, size int, pay []byte) []byte {
	h.Flags |= wire.Last
	if m.Notify {
		h.Flags |= wire.Notify
	}
	if size > Eager && !m.NoAckWait {
		h.Flags |= wire.AckNow
	}
	if m.Bytes {
		return pay
	}
	h.Word = lastWord(pay)
	return pay[:len(pay)-4]
}

// abortHeader is what ends a message whose last chunk has not begun: its last word is
// never stored. It takes the place of its number.
func (q *outgoing) abortHeader() wire.Header {
	a := wire.Header{Type: wire.Abort, Handle: q.msg.Handle, Seq: q.seq, Serial: q.serial}
	if q.msg.Notify {
		a.Flags = wire.Notify
	}
	return a
}

// Send puts a message on the stream. A short one is in the kernel's hands when
// it returns, a long one at its place unless it may be so later. seq is its number.
func (rq *Requester) Send(ctx context.Context, m Message) (seq uint64, err error) {
	size := m.Len()
	if size > maxInline { // what is not copied here is read by the kernel, behind a header that is gone then
		if err := m.checkReadable(); err != nil {
			return 0, err
		}
	}
	if m.Notify {
		if err := rq.takeCredit(ctx, m.Ended); err != nil {
			return 0, err
		}
	}
	if err := rq.beginSend(ctx, &m, size); err != nil {
		rq.untakeCredit(m.Notify)
		return 0, err
	}
	if rq.fitsOneFrame(size) {
		if seq, err = rq.sendOneFrame(ctx, &m, size); seq > 0 || err != nil {
			rq.sendSem.Release()
			return seq, err
		}
	}
	seq, err = rq.writeMessage(ctx, &outgoing{msg: m, size: size})
	rq.sendSem.Release()
	switch {
	case err != nil:
		return seq, err
	case rq.reconnectLimit == 0 && (size <= Eager || m.NoAckWait):
		return seq, nil
	}
	if err := rq.waitAcked(ctx, seq); err != nil {
		rq.reclaimMemory(seq)
		return seq, unknown(err)
	}
	return seq, rq.faultOf(seq)
}

// sendInOrder sends a message that comes in its place among mapped ones: all that
// was put off before it is done, and no get reads what it writes. The caller has a credit
// for the notification. It returns when the message has arrived.
func (rq *Requester) sendInOrder(ctx context.Context, m Message) error {
	err := m.checkReadable() // as in Send; nothing else looks at what was redirected
	if err == nil {
		err = rq.sendSem.Acquire(ctx)
	}
	if err != nil {
		rq.untakeCredit(m.Notify)
		return err
	}
	seq, err := rq.writeMessage(ctx, &outgoing{msg: m, size: m.Len()})
	rq.sendSem.Release()
	if err != nil {
		return err
	}
	if err := rq.waitAcked(ctx, seq); err != nil {
		return unknown(err)
	}
	return rq.faultOf(seq)
}

// beginSend takes the turn, once all is done that an update must not overtake.
func (rq *Requester) beginSend(ctx context.Context, m *Message, size int) error {
	if err := rq.waitBacklog(ctx); err != nil {
		return err
	}
	if err := rq.sendSem.Acquire(ctx); err != nil {
		return err
	}
	if rq.fetchCount.Load() == 0 {
		return nil
	}
	err := rq.waitNoOverlap(ctx, m.ID, m.Off, uint64(size))
	if err != nil {
		rq.sendSem.Release()
	}
	return err
}

// lockWriter returns nil with tmu held and nothing before the caller's frame, or an
// error without it.
func (rq *Requester) lockWriter(ctx context.Context, ended *atomic.Bool) error {
	if err := rq.err(); err != nil { // the socket may still take something
		return err
	}
	rq.tmu.Lock()
	if rq.nothingQueued() {
		return nil
	}
	rq.tx.activeWriters.Add(1)
	for !rq.pump() {
		tick := rq.tx.writeEvent.Load()
		rq.tmu.Unlock()
		err := rq.waitWritable(ctx, tick, ended)
		rq.tmu.Lock()
		if err != nil {
			rq.endWriteLocked()
			rq.tmu.Unlock()
			return err
		}
	}
	rq.tx.activeWriters.Add(-1)
	return nil
}

// nothingQueued says that a pump would find nothing to do, which is mostly so before a message; tmu is held.
func (rq *Requester) nothingQueued() bool {
	return rq.tx.idle() && len(rq.retransmits) == 0 && !rq.midMessage && rq.queue.len() == 0 && !rq.inboxReady.Load() && !rq.disconnected.Load()
}

// assignSeq are a message's place, and that of its notification; inboxMu is held. It counts as outstanding
// before its first byte goes.
func (rq *Requester) assignSeq(m *Message, size int) (seq uint64, serial uint32) {
	seq = rq.lastSeq.Load() + 1
	rq.lastSeq.Store(seq)
	rq.counters.AddLocked(shmlayout.Messages, 1)
	rq.counters.AddLocked(shmlayout.Bytes, uint64(size))
	if m.Notify {
		serial = rq.nextSerial()
	}
	if invariant.Enabled {
		rq.traceNumber(m, seq, size)
	}
	return seq, serial
}

// writeMessage writes a message's chunks; the caller has the turn.
func (rq *Requester) writeMessage(ctx context.Context, q *outgoing) (seq uint64, err error) {
	var h wire.Header
	var conn uint32
	for !q.complete() {
		if q.seq == 0 {
			if err := rq.lockIdleQueue(ctx, q.msg.Ended); err != nil {
				rq.untakeCredit(q.msg.Notify)
				return 0, err
			}
			q.seq, q.serial = rq.assignSeq(&q.msg, q.size)
			rq.inboxMu.Unlock()
			conn = rq.connGen
			if rq.needsProbes {
				rq.retain(q)
			}
		} else if err := rq.lockWriter(ctx, q.msg.Ended); err != nil {
			rq.abortMessage(q, conn)
			return q.seq, unknown(err)
		} else if rq.connGen != conn { // the rest is sent again with what was sent before it
			rq.tmu.Unlock()
			return q.seq, nil
		}
		for more := true; more && !q.complete(); {
			pay := q.chunk(&h, rq.tx.maxPayload())
			more = rq.tx.addFrame(&h, pay)
		}
		rq.tx.activeWriters.Add(1) // by complete
		n := rq.tx.framesQueued
		if rq.midMessage = !q.complete(); rq.midMessage {
			rq.flush()
		} else {
			rq.messageFramed(q.seq, h.Flags&wire.AckNow != 0)
			rq.pump() // and what came while this one was in its middle
		}
		written := rq.tx.framesWritten >= n
		if written {
			rq.endWriteLocked()
		}
		rq.tmu.Unlock()
		if written {
			continue
		}
		if err := rq.waitWritten(ctx, n, q.msg.Ended); err != nil {
			if !q.complete() {
				rq.abortMessage(q, conn)
			} else {
				rq.reclaimMemory(q.seq)
			}
			return q.seq, unknown(err)
		}
	}
	return q.seq, nil
}

// retain keeps a message where it is until it is acknowledged, on a link that survives; tmu is held.
func (rq *Requester) retain(q *outgoing) {
	rq.scheduleProbe()
	if rq.reconnectLimit > 0 {
		rq.unacked.dropAcked(rq.ackedSeq.Load())
		rq.unacked.uncopied.push(*q)
	}
}

// abortMessage ends a message in its middle, which was begun on a connection.
func (rq *Requester) abortMessage(q *outgoing, conn uint32) {
	rq.tmu.Lock()
	defer rq.tmu.Unlock()
	if k := rq.unacked.find(q.seq); k != nil {
		k.makeAbort()
		rq.tx.detachPayload()
	}
	if rq.connGen != conn { // it is sent again as an abort
		return
	}
	rq.midMessage = false
	rq.tx.control = append(rq.tx.control, q.abortHeader())
	if invariant.Enabled {
		rq.trace("abort", q.msg.Handle, q.seq, q.msg.Off, uint64(q.framed))
	}
	rq.messageFramed(q.seq, false)
	rq.pump()
}

// Most messages are short, and nothing is before them. Their one frame is made in one place and written at
// once, without the parts and the turns that others take: 980 instructions instead of 1,350.

// fitsOneFrame says whether a message's one frame can be made in one place: where it is kept, or in the buffer of
// short ones.
func (rq *Requester) fitsOneFrame(size int) bool {
	return size <= maxInline || rq.reconnectLimit > 0 && size <= Eager
}

// sendOneFrame sends such a message. seq is 0 where there is no room to keep it. The caller has the turn.
func (rq *Requester) sendOneFrame(ctx context.Context, m *Message, size int) (seq uint64, err error) {
	if err := rq.lockIdleQueue(ctx, m.Ended); err != nil {
		rq.untakeCredit(m.Notify)
		return 0, err
	}
	b := rq.tx.buf[:]
	var g *segment
	if rq.reconnectLimit > 0 {
		if g = rq.unacked.reserve(wire.HeaderSize+size, rq.ackedSeq.Load()); g == nil {
			rq.inboxMu.Unlock()
			rq.tmu.Unlock()
			return 0, nil
		}
		b = g.buf[g.end:]
	}
	seq, serial := rq.assignSeq(m, size)
	rq.inboxMu.Unlock()
	if rq.needsProbes {
		rq.scheduleProbe()
	}
	frame := rq.tx.buildFrame(b, m, size, seq, serial)
	if g != nil {
		g.end, g.lastSeq = g.end+len(frame), seq
	}
	rq.messageFramed(seq, false)
	if rq.writeFrame(frame, seq) {
		if !rq.nothingQueued() { // there is what came meanwhile
			rq.pump()
		}
		rq.tmu.Unlock()
		return seq, nil
	}
	n := rq.tx.framesQueued
	rq.tmu.Unlock()
	if err := rq.waitWritten(ctx, n, m.Ended); err != nil {
		return seq, unknown(err)
	}
	return seq, nil
}

// buildFrame makes the one frame of a message, in b.
func (t *transmitter) buildFrame(b []byte, m *Message, size int, seq uint64, serial uint32) []byte {
	b = b[:wire.HeaderSize+size]
	n := wire.HeaderSize + copy(b[wire.HeaderSize:], m.Src)
	for _, p := range m.More {
		n += copy(b[n:], p)
	}
	h := wire.Header{Type: wire.Data, Handle: m.Handle, Seq: seq, Serial: serial, Off: m.Off, Size: uint64(size)}
	if m.Bytes {
		h.Flags = wire.Bytes
	}
	pay := m.finishHeader(&h, size, b[wire.HeaderSize:])
	h.Chunk = uint32(len(pay))
	if t.checksum {
		h.Sum = wire.Sum(0, pay)
	}
	t.putHeader(&h, b)
	n = wire.HeaderSize + len(pay)
	return b[:n:n]
}

// writeShort writes a frame with a short payload, with none before it, and says whether the socket has taken all of it;
// tmu is held. It is a copy: nobody waits for what is left.
func (s *stream) writeShort(h *wire.Header, payload []byte) (done bool) {
	b := s.tx.buf[:wire.HeaderSize+len(payload)]
	shm.CopyUnchecked(b[wire.HeaderSize:], payload) // of an answer it is memory that others write to
	payload = b[wire.HeaderSize:]
	if s.tx.checksum {
		h.Sum = wire.Sum(0, payload)
	}
	s.tx.putHeader(h, b)
	if done = s.writeFrame(b[:len(b):len(b)], 0); !done {
		s.endWriteLocked()
	}
	return done
}

// writeFrame writes a frame that stays where it is until it is written, with none before it, and says
// whether the socket has taken all of it; tmu is held. Where it has not, the caller is counted in attended,
// for complete, and what is left is for whoever comes: a bell may wait behind it.
func (s *stream) writeFrame(frame []byte, seq uint64) (done bool) {
	t := &s.tx
	if invariant.Enabled {
		s.checkClear()
	}
	t.framesQueued++
	if t.framesToPad > 0 {
		t.framesToPad--
	}
	if t.cipher == nil {
		n, err := t.io.Send(s.fd, frame, nil)
		if n == len(frame) {
			t.framesWritten = t.framesQueued
			t.firstBorrowedSeq.Store(0)
			return true
		}
		if frame = frame[n:]; err != nil {
			s.connLost(s.connError(err))
		}
	}
	t.parts[0], t.partCount = part{head: frame, seq: seq}, 1
	t.activeWriters.Add(1)
	if !s.flush() { // it is stuck now, or torn
		return false
	}
	s.endWriteLocked()
	return true
}

func lastWord(b []byte) uint32       { return shm.LastWord(b) }
func setLastWord(b []byte, v uint32) { shm.SetLastWord(b, v) }

// storeLast makes a message visible: its other words were stored before, and
// the exchange keeps them so for whoever polls this one.
func storeLast(mem []byte, off uint64, v uint32) { shm.Word(mem, int(off)).Swap(v) }

func loadLast(mem []byte, off uint64) uint32 { return shm.Word(mem, int(off)).Load() }
