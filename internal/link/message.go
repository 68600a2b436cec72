package link

import (
	"context"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/page"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// Message is a send on the stream.
type Message struct {
	Handle uint32
	ID     uint32 // the buffer's, by which two imports of one buffer are known
	Off    uint64
	Src    []byte
	More   [][]byte // what follows Src in the same message
	Bytes  bool     // any length and alignment
	Notify bool
	Later  bool         // a long one's send does not wait until it is acknowledged either
	Ended  *atomic.Bool // the import is no more
}

// readable says whether the message can be read from where it lies.
func (m *Message) readable() error { return shm.Guard(m.touch) }

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
	m      Message
	size   int
	done   int // bytes of it in chunks that were begun
	piece  int // of the memory where the next one begins, and
	before int // the bytes in those before it
	seq    uint64
	serial uint32
	abort  bool // it ends here
	closed bool // because its import was closed
	f      *fetch
}

// rewind makes the next chunk begin at byte n.
func (q *outgoing) rewind(n int) { q.done, q.piece, q.before = n, 0, 0 }

// forget makes it an abort, whose memory is not the link's any more.
func (q *outgoing) forget() {
	q.abort = true
	q.m.Src, q.m.More = nil, nil
}

func (q *outgoing) ended() bool { return q.done == q.size }

// chunk gives the message's next frame, of at most most bytes.
func (q *outgoing) chunk(h *wire.Header, most int) []byte {
	m := &q.m
	pay := m.Src
	if q.piece > 0 {
		pay = m.More[q.piece-1]
	}
	for q.done-q.before >= len(pay) {
		q.before += len(pay)
		pay = m.More[q.piece]
		q.piece++
	}
	pay = pay[q.done-q.before:]
	pay = pay[:min(len(pay), most)]
	*h = wire.Header{
		Type: wire.Data, Handle: m.Handle, Seq: q.seq, Serial: q.serial,
		Off: m.Off + uint64(q.done), Size: uint64(q.size),
	}
	if m.Bytes {
		h.Flags = wire.Bytes
	}
	q.done += len(pay)
	if q.ended() {
		pay = q.m.last(h, q.size, pay)
	}
	h.Chunk = uint32(len(pay))
	return pay
}

// last makes h the last header of a message of size bytes, and takes the last word off the payload.
func (m *Message) last(h *wire.Header, size int, pay []byte) []byte {
	h.Flags |= wire.Last
	if m.Notify {
		h.Flags |= wire.Notify
	}
	if size > Eager && !m.Later {
		h.Flags |= wire.AckNow
	}
	if m.Bytes {
		return pay
	}
	h.Word = lastWord(pay)
	return pay[:len(pay)-4]
}

// aborted is what ends a message whose last chunk has not begun: its last word is
// never stored. It takes the place of its number.
func (q *outgoing) aborted() wire.Header {
	a := wire.Header{Type: wire.Abort, Handle: q.m.Handle, Seq: q.seq, Serial: q.serial}
	if q.m.Notify {
		a.Flags = wire.Notify
	}
	return a
}

// Send puts a message on the stream. A short one is in the kernel's hands when
// it returns, a long one at its place unless it may be so later. seq is its number.
func (o *Out) Send(ctx context.Context, m Message) (seq uint64, err error) {
	size := m.Len()
	if size > small { // what is not copied here is read by the kernel, behind a header that is gone then
		if err := m.readable(); err != nil {
			return 0, err
		}
	}
	if m.Notify {
		if err := o.credit(ctx, m.Ended); err != nil {
			return 0, err
		}
	}
	if err := o.begin(ctx, &m, size); err != nil {
		o.uncredit(m.Notify)
		return 0, err
	}
	if o.brief(size) {
		if seq, err = o.short(ctx, &m, size); seq > 0 || err != nil {
			o.turn.Give()
			return seq, err
		}
	}
	seq, err = o.transfer(ctx, &outgoing{m: m, size: size})
	o.turn.Give()
	switch {
	case err != nil:
		return seq, err
	case o.limit == 0 && (size <= Eager || m.Later):
		return seq, nil
	}
	if err := o.settle(ctx, seq); err != nil {
		o.giveUp(seq)
		return seq, unknown(err)
	}
	return seq, o.fault(seq)
}

// sendAfter sends a message that comes in its place among mapped ones: all that
// was put off before it is done, and no get reads what it writes. The caller has a credit
// for the notification. It returns when the message has arrived.
func (o *Out) sendAfter(ctx context.Context, m Message) error {
	err := m.readable() // as in Send; nothing else looks at what was redirected
	if err == nil {
		err = o.turn.Take(ctx)
	}
	if err != nil {
		o.uncredit(m.Notify)
		return err
	}
	seq, err := o.transfer(ctx, &outgoing{m: m, size: m.Len()})
	o.turn.Give()
	if err != nil {
		return err
	}
	if err := o.settle(ctx, seq); err != nil {
		return unknown(err)
	}
	return o.fault(seq)
}

// begin takes the turn, once all is done that an update must not overtake.
func (o *Out) begin(ctx context.Context, m *Message, size int) error {
	if err := o.caughtUp(ctx); err != nil {
		return err
	}
	if err := o.turn.Take(ctx); err != nil {
		return err
	}
	if o.reads.Load() == 0 {
		return nil
	}
	err := o.unread(ctx, m.ID, m.Off, uint64(size))
	if err != nil {
		o.turn.Give()
	}
	return err
}

// ready returns nil with tmu held and nothing before the caller's frame, or an
// error without it.
func (o *Out) ready(ctx context.Context, ended *atomic.Bool) error {
	if err := o.err(); err != nil { // the socket may still take something
		return err
	}
	o.tmu.Lock()
	if o.calm() {
		return nil
	}
	o.tx.attended.Add(1)
	for !o.pump() {
		tick := o.tx.room.Now()
		o.tmu.Unlock()
		err := o.await(ctx, tick, ended)
		o.tmu.Lock()
		if err != nil {
			o.unattend()
			o.tmu.Unlock()
			return err
		}
	}
	o.tx.attended.Add(-1)
	return nil
}

// calm says that a pump would find nothing to do, which is mostly so before a message; tmu is held.
func (o *Out) calm() bool {
	return o.tx.calm() && len(o.again) == 0 && !o.mid && o.queue.len() == 0 && !o.due.Load() && !o.torn.Load()
}

// numbers are a message's place, and that of its notification; imu is held. It counts as outstanding
// before its first byte goes.
func (o *Out) numbers(m *Message, size int) (seq uint64, serial uint32) {
	seq = o.seq.Load() + 1
	o.seq.Store(seq)
	o.count.Locked(page.Messages, 1)
	o.count.Locked(page.Bytes, uint64(size))
	if m.Notify {
		serial = o.nextSerial()
	}
	if invariant.Enabled {
		o.traceNumber(m, seq, size)
	}
	return seq, serial
}

// transfer writes a message's chunks; the caller has the turn.
func (o *Out) transfer(ctx context.Context, q *outgoing) (seq uint64, err error) {
	var h wire.Header
	var conn uint32
	for !q.ended() {
		if q.seq == 0 {
			if err := o.only(ctx, q.m.Ended); err != nil {
				o.uncredit(q.m.Notify)
				return 0, err
			}
			q.seq, q.serial = o.numbers(&q.m, q.size)
			o.imu.Unlock()
			conn = o.conn
			if o.minds {
				o.keep(q)
			}
		} else if err := o.ready(ctx, q.m.Ended); err != nil {
			o.abandon(q, conn)
			return q.seq, unknown(err)
		} else if o.conn != conn { // the rest is sent again with what was sent before it
			o.tmu.Unlock()
			return q.seq, nil
		}
		for more := true; more && !q.ended(); {
			pay := q.chunk(&h, o.tx.most())
			more = o.tx.add(&h, pay)
		}
		o.tx.attended.Add(1) // by complete
		n := o.tx.begun
		if o.mid = !q.ended(); o.mid {
			o.flush()
		} else {
			o.wrote(q.seq, h.Flags&wire.AckNow != 0)
			o.pump() // and what came while this one was in its middle
		}
		written := o.tx.gone >= n
		if written {
			o.unattend()
		}
		o.tmu.Unlock()
		if written {
			continue
		}
		if err := o.complete(ctx, n, q.m.Ended); err != nil {
			if !q.ended() {
				o.abandon(q, conn)
			} else {
				o.giveUp(q.seq)
			}
			return q.seq, unknown(err)
		}
	}
	return q.seq, nil
}

// keep keeps a message where it is until it is acknowledged, on a link that survives; tmu is held.
func (o *Out) keep(q *outgoing) {
	o.tend()
	if o.limit > 0 {
		o.keeps.drop(o.acked.Load())
		o.keeps.messages.push(*q)
	}
}

// abandon ends a message in its middle, which was begun on a connection.
func (o *Out) abandon(q *outgoing, conn uint32) {
	o.tmu.Lock()
	defer o.tmu.Unlock()
	if k := o.keeps.of(q.seq); k != nil {
		k.forget()
		o.tx.keep()
	}
	if o.conn != conn { // it is sent again as an abort
		return
	}
	o.mid = false
	o.tx.ctl = append(o.tx.ctl, q.aborted())
	if invariant.Enabled {
		o.trace("abort", q.m.Handle, q.seq, q.m.Off, uint64(q.done))
	}
	o.wrote(q.seq, false)
	o.pump()
}
