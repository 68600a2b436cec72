package link

import (
	"context"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/page"
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
	seq    uint64
	serial uint32
	abort  bool // it ends here
	f      *fetch
}

func (q *outgoing) ended() bool { return q.done == q.size }

// chunk gives the message's next frame.
func (q *outgoing) chunk(h *wire.Header) []byte {
	m := &q.m
	for len(m.Src) == 0 {
		m.Src, m.More = m.More[0], m.More[1:]
	}
	pay := m.Src[:min(len(m.Src), wire.MaxChunk)]
	m.Src = m.Src[len(pay):]
	*h = wire.Header{
		Type: wire.Data, Handle: m.Handle, Seq: q.seq, Serial: q.serial,
		Off: m.Off + uint64(q.done), Size: uint64(q.size),
	}
	if m.Bytes {
		h.Flags = wire.Bytes
	}
	q.done += len(pay)
	if q.ended() {
		pay = q.last(h, pay)
	}
	h.Chunk = uint32(len(pay))
	return pay
}

// last makes h a message's last header, and takes the last word off the payload.
func (q *outgoing) last(h *wire.Header, pay []byte) []byte {
	h.Flags |= wire.Last
	if q.m.Notify {
		h.Flags |= wire.Notify
	}
	if q.size > Eager && !q.m.Later {
		h.Flags |= wire.AckNow
	}
	if q.m.Bytes {
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
	if m.Notify {
		if err := o.credit(ctx, m.Ended); err != nil {
			return 0, err
		}
	}
	size := m.Len()
	if err := o.begin(ctx, &m, size); err != nil {
		o.uncredit(m.Notify)
		return 0, err
	}
	seq, err = o.transfer(ctx, &outgoing{m: m, size: size})
	o.giveTurn()
	if err != nil || size <= Eager || m.Later {
		return seq, err
	}
	if err := o.settle(ctx, seq); err != nil {
		return seq, unknown(err)
	}
	return seq, nil
}

// begin takes the turn, once all is done that an update must not overtake.
func (o *Out) begin(ctx context.Context, m *Message, size int) error {
	if err := o.caughtUp(ctx); err != nil {
		return err
	}
	if err := o.takeTurn(ctx); err != nil {
		return err
	}
	err := o.unread(ctx, m.ID, m.Off, uint64(size))
	if err != nil {
		o.giveTurn()
	}
	return err
}

// number gives a message its place; imu is held. It counts as outstanding before
// its first byte goes.
func (o *Out) number(q *outgoing) {
	q.seq = o.seq.Load() + 1
	o.seq.Store(q.seq)
	if q.f == nil {
		o.count.Locked(page.Messages, 1)
		o.count.Locked(page.Bytes, uint64(q.size))
	}
	if q.m.Notify {
		q.serial = o.nextSerial()
	}
	if invariant.Enabled {
		o.traceNumber(q)
	}
}

// transfer writes a message's chunks; the caller has the turn.
func (o *Out) transfer(ctx context.Context, q *outgoing) (seq uint64, err error) {
	var h wire.Header
	for !q.ended() {
		if q.seq == 0 {
			if err := o.only(ctx, q.m.Ended); err != nil {
				o.uncredit(q.m.Notify)
				return 0, err
			}
			o.number(q)
			o.imu.Unlock()
		} else if err := o.ready(ctx, q.m.Ended); err != nil {
			o.abandon(q)
			return q.seq, unknown(err)
		}
		for more := true; more && !q.ended(); {
			pay := q.chunk(&h)
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
				o.abandon(q)
			}
			return q.seq, unknown(err)
		}
	}
	return q.seq, nil
}

// abandon ends a message in its middle.
func (o *Out) abandon(q *outgoing) {
	o.tmu.Lock()
	o.mid = false
	o.tx.ctl = append(o.tx.ctl, q.aborted())
	if invariant.Enabled {
		o.trace("abort", q.m.Handle, q.seq, q.m.Off, uint64(q.done))
	}
	o.wrote(q.seq, false)
	o.pump()
	o.tmu.Unlock()
}
