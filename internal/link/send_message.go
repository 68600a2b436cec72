package link

import (
	"context"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/link/sendbuf"
	"github.com/vmmc-go/vmmc/internal/semaphore"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// Message is a send on the stream path.
type Message struct {
	Handle uint32
	// Number of the buffer, which two imports of one buffer share.
	ID     uint32
	Off    uint64
	Src    []byte
	More   [][]byte // Follows Src in the same message.
	Bytes  bool     // Any length and alignment; no last word.
	Notify bool
	// Send does not wait for the acknowledgement even of a long message.
	NoAckWait bool
	// The end of the import ends waits. Ended is set first, and ends all waits but those for
	// acknowledgements: these say what has arrived, so they go on after a revocation, and only Closed
	// ends them, which is set with Ended when the importer itself has closed the import. Done is for
	// the wait on a channel behind another sender. It is closed after Ended is set; if the link has
	// ended before, that may be long after, and the other sender fails then.
	Ended  *atomic.Bool
	Closed *atomic.Bool
	Done   <-chan struct{}
}

// checkReadable returns an error if the message's memory cannot be read.
func (m *Message) checkReadable() error { return shm.Guard(m.touch) }

func (m *Message) touch() {
	shm.Touch(m.Src)
	for _, b := range m.More {
		shm.Touch(b)
	}
}

// Len returns the message's size in bytes.
func (m *Message) Len() int {
	n := len(m.Src)
	for _, b := range m.More {
		n += len(b)
	}
	return n
}

// outgoing is a message, or a get or atomic behind one, that enters the stream chunk by chunk.
type outgoing struct {
	msg          Message
	size         int
	framed       int // Bytes in chunks that were queued.
	piece        int // The piece of memory where the next chunk begins.
	before       int // Bytes in the pieces before it.
	seq          uint64
	serial       uint32
	abort        bool   // An abort frame replaces the rest.
	importClosed bool   // It is an abort because its import was closed.
	fetch        *fetch // Set for a get or an atomic.
}

// rewind makes the next chunk begin at byte n.
func (q *outgoing) rewind(n int) { q.framed, q.piece, q.before = n, 0, 0 }

// makeAbort turns the message into an abort. The link does not use its memory any more.
func (q *outgoing) makeAbort() {
	q.abort = true
	q.msg.Src, q.msg.More = nil, nil
}

func (q *outgoing) complete() bool { return q.framed == q.size }

// chunk returns the message's next frame, of at most most bytes.
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

// finishHeader makes h the last header of a message of size bytes. It moves the last word from the
// payload to the header.
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

// abortHeader returns the frame that ends a message whose last chunk was not sent: its last word is
// never stored. The frame takes the message's sequence number.
func (q *outgoing) abortHeader() wire.Header {
	a := wire.Header{Type: wire.Abort, Handle: q.msg.Handle, Seq: q.seq, Serial: q.serial}
	if q.msg.Notify {
		a.Flags = wire.Notify
	}
	return a
}

// Send sends a message on the stream. When it returns, the kernel has a short message, and the
// exporter has applied a long one unless m.NoAckWait is set. seq is the message's number.
func (rq *Requester) Send(ctx context.Context, m Message) (seq uint64, err error) {
	size := m.Len()
	// the kernel reads it after the header is gone, too late to take the message back
	if size > maxInline {
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
		// The send buffer is full. A sender that must not wait would have to give its message up once
		// it is framed, so it does not begin.
		if err := ctx.Err(); err != nil {
			rq.untakeCredit(m.Notify)
			rq.sendSem.Release()
			return 0, err
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
	if err := rq.waitAcked(ctx, m.Closed, seq); err != nil {
		rq.reclaimMemory(seq)
		return seq, unknown(err)
	}
	return seq, rq.faultOf(seq)
}

// sendInOrder sends a message in its place among mapped ones: deferred operations before it are
// done, and no get reads what it writes. The caller has taken a credit for a notification. It
// returns when the exporter has applied the message.
func (rq *Requester) sendInOrder(ctx context.Context, m Message) error {
	err := m.checkReadable() // as in Send; redirected memory is checked nowhere else
	if err == nil {
		err = rq.acquireSender(ctx, m.Done)
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
	if err := rq.waitAcked(ctx, m.Closed, seq); err != nil {
		rq.reclaimMemory(seq)
		return unknown(err)
	}
	return rq.faultOf(seq)
}

// beginSend takes sendSem once all operations are done that the message must not overtake.
func (rq *Requester) beginSend(ctx context.Context, m *Message, size int) error {
	if err := rq.backlog.wait(ctx, m.Ended); err != nil {
		return err
	}
	if err := rq.acquireSender(ctx, m.Done); err != nil {
		return err
	}
	if rq.fetches.count.Load() == 0 {
		return nil
	}
	err := rq.waitNoOverlap(ctx, m.Ended, m.ID, m.Off, uint64(size))
	if err != nil {
		rq.sendSem.Release()
	}
	return err
}

// acquireSender waits until no other call sends. done, which may be nil, is closed when the caller's
// import has ended.
func (rq *Requester) acquireSender(ctx context.Context, done <-chan struct{}) error {
	return endedIfStopped(rq.sendSem.AcquireUntil(ctx, done))
}

// endedIfStopped is [ErrEnded] if a wait was stopped because the import has ended.
func endedIfStopped(err error) error {
	if err == semaphore.ErrStopped { //nolint:errorlint // nothing wraps it
		return ErrEnded
	}
	return err
}

// lockWriter returns nil with tmu held and no unwritten frame before the caller's, or an error
// without tmu.
func (rq *Requester) lockWriter(ctx context.Context, ended *atomic.Bool) error {
	if err := rq.err(); err != nil { // the socket may still accept data
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

// nothingQueued reports whether pump would find nothing to do, the usual case before a message. The
// caller holds tmu.
func (rq *Requester) nothingQueued() bool {
	return rq.tx.idle() && len(rq.retransmits) == 0 && !rq.midMessage && rq.queue.len() == 0 &&
		!rq.inboxReady.Load() && !rq.disconnected()
}

// assignSeq returns the numbers of a message and of its notification. The caller holds inboxMu. The
// message counts as outstanding before its first byte is sent.
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

// writeMessage writes a message's chunks. The caller holds sendSem.
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
		} else if rq.connGen != conn { // the rest is retransmitted with what was sent before it
			rq.tmu.Unlock()
			return q.seq, nil
		}
		for more := true; more && !q.complete(); {
			pay := q.chunk(&h, rq.tx.maxPayload())
			more = rq.tx.addFrame(&h, pay)
		}
		rq.tx.activeWriters.Add(1) // endWriteLocked or waitWritten undoes it
		n := rq.tx.framesQueued
		if rq.midMessage = !q.complete(); rq.midMessage {
			rq.flush()
		} else {
			rq.messageFramed(q.seq, h.Flags&wire.AckNow != 0)
			rq.pump() // also what was queued while midMessage was set
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

// retain keeps a message in its sender's memory until it is acknowledged, on a link that survives
// its connection. The caller holds tmu.
func (rq *Requester) retain(q *outgoing) {
	rq.tailProbe.schedule()
	if rq.reconnectLimit > 0 {
		rq.unacked.dropAcked(rq.ackedSeq.Load())
		rq.unacked.uncopied.push(*q)
	}
}

// abortMessage ends a message in its middle. connGen is the connection on which it began.
func (rq *Requester) abortMessage(q *outgoing, conn uint32) {
	rq.tmu.Lock()
	defer rq.tmu.Unlock()
	if k := rq.unacked.find(q.seq); k != nil {
		k.makeAbort()
		rq.tx.detachPayload()
	}
	if rq.connGen != conn { // prepareRetransmit sends it again as an abort
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

// maxFaults bounds the faults remembered; the oldest are dropped.
const maxFaults = 1024

// sendFault is a message that was aborted: its memory could not be read, or its import was closed.
// It fails alone; the link goes on.
type sendFault struct {
	seq uint64
	err error
}

// abortFaulted makes q an abort. Its sender learns of that by its number. The caller holds tmu.
func (rq *Requester) abortFaulted(q *outgoing, err error) {
	q.makeAbort()
	if len(rq.faults) >= maxFaults {
		rq.faults = append(rq.faults[:0], rq.faults[1:]...)
	}
	rq.faults = append(rq.faults, sendFault{q.seq, err})
	rq.hasFaults.Store(true)
}

// faultOf returns why message seq, which is acknowledged, was aborted, or nil.
func (rq *Requester) faultOf(seq uint64) error {
	if !rq.hasFaults.Load() {
		return nil
	}
	rq.tmu.Lock()
	defer rq.tmu.Unlock()
	for _, f := range rq.faults {
		if f.seq == seq {
			return f.err
		}
	}
	return nil
}

// sendFaulted finds the message whose memory the kernel could not read, although it was readable
// before. Its queued frames cannot be taken back on this connection. The caller holds tmu.
func (rq *Requester) sendFaulted() {
	for _, p := range rq.tx.parts[rq.tx.firstPart:rq.tx.partCount] {
		if p.seq == 0 || p.copied {
			continue
		}
		if err := shm.Readable(p.payload); err != nil {
			if q := rq.unacked.find(p.seq); q != nil {
				rq.abortFaulted(q, err)
			}
		}
	}
}

// Most messages are short and nothing is queued before them. Their single frame is built in one
// place and written at once, without the parts and bursts of other messages: 980 instructions
// instead of 1,350.

// fitsOneFrame reports whether a message's single frame can be built in one place: in the send
// buffer, or in the transmitter's buffer for short frames.
func (rq *Requester) fitsOneFrame(size int) bool {
	return size <= maxInline || rq.reconnectLimit > 0 && size <= Eager
}

// sendOneFrame sends such a message. seq is 0 if the send buffer has no room for it. The caller
// holds sendSem.
func (rq *Requester) sendOneFrame(
	ctx context.Context, m *Message, size int,
) (seq uint64, err error) {
	if err := rq.lockIdleQueue(ctx, m.Ended); err != nil {
		rq.untakeCredit(m.Notify)
		return 0, err
	}
	b := rq.tx.buf[:]
	var g *sendbuf.Segment
	if rq.reconnectLimit > 0 {
		if g = rq.unacked.reserve(wire.HeaderSize+size, rq.ackedSeq.Load()); g == nil {
			rq.inboxMu.Unlock()
			rq.tmu.Unlock()
			return 0, nil
		}
		b = g.Free()
	}
	seq, serial := rq.assignSeq(m, size)
	rq.inboxMu.Unlock()
	if rq.needsProbes {
		rq.tailProbe.schedule()
	}
	frame := rq.tx.buildFrame(b, m, size, seq, serial)
	if g != nil {
		g.Add(len(frame), seq)
	}
	rq.messageFramed(seq, false)
	if rq.writeFrame(frame, seq) {
		if !rq.nothingQueued() { // more was queued meanwhile
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

func lastWord(b []byte) uint32       { return shm.LastWord(b) }
func setLastWord(b []byte, v uint32) { shm.SetLastWord(b, v) }

// storeLast makes a message visible. Its other words were stored before, and the atomic exchange
// orders them before this word for a reader that polls it.
func storeLast(mem []byte, off uint64, v uint32) { shm.Word(mem, int(off)).Swap(v) }

func loadLast(mem []byte, off uint64) uint32 { return shm.Word(mem, int(off)).Load() }
