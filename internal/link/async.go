package link

import (
	"bytes"
	"context"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// maxQueue is how many asynchronous messages of a link may wait for the socket;
// beyond it beginning another one waits.
const maxQueue = 1024

// SendAsync numbers a message and queues it; its memory is the link's until the
// request is done. What the socket takes at once is written before it returns.
// It waits only for a credit, or where too much is queued.
func (o *Out) SendAsync(ctx context.Context, m Message) (r Request, err error) {
	if m.Notify {
		if err := o.credit(ctx, m.Ended); err != nil {
			return Request{}, err
		}
	}
	if o.later.busy() || o.overlaps(m.ID, m.Off, uint64(m.Len())) {
		r, err = o.sendLater(ctx, m)
	} else {
		q := outgoing{m: m, size: m.Len()}
		err = o.admit(ctx, &q)
		r = Request{o: o, seq: q.seq}
	}
	if err != nil {
		o.uncredit(m.Notify)
		return Request{}, err
	}
	return r, nil
}

// sendLater queues a message when what must come before it is done.
func (o *Out) sendLater(ctx context.Context, m Message) (Request, error) {
	return o.postpone(ctx, func(ctx context.Context, d *deferred) error {
		q := outgoing{m: m, size: m.Len()}
		err := o.unread(ctx, m.ID, m.Off, uint64(q.size))
		if err == nil {
			err = o.admit(ctx, &q)
		}
		if err != nil {
			o.uncredit(m.Notify)
		}
		d.seq = q.seq
		return err
	})
}

// admit queues a message or a get, once there is room, and writes what can be written.
func (o *Out) admit(ctx context.Context, q *outgoing) error {
	o.tmu.Lock()
	for {
		if q.f != nil && o.reads.Load() >= maxFetches {
			o.tmu.Unlock()
			if err := o.slot(ctx); err != nil {
				return err
			}
			o.tmu.Lock()
			continue
		}
		if o.queue.len() < maxQueue {
			break
		}
		tick := o.tx.room.Now()
		o.armWrite()
		o.tmu.Unlock()
		if err := o.await(ctx, tick, q.m.Ended); err != nil {
			return err
		}
		o.tmu.Lock()
	}
	defer o.tmu.Unlock()
	if err := o.err(); err != nil { // nobody would write it any more
		return err
	}
	o.number(q)
	if q.f != nil {
		q.f.seq = q.seq
		o.expect(q.f)
	}
	o.queue.push(*q)
	if invariant.Enabled {
		o.checkQueue()
	}
	o.pump()
	return nil
}

// next gives the next chunk of the oldest queued message, but nothing while a
// synchronous one is in its middle.
func (o *Out) next(h *wire.Header) (payload []byte, ok bool) {
	if o.mid || o.queue.len() == 0 {
		return nil, false
	}
	q := o.queue.at(0)
	over := true
	switch {
	case q.f != nil:
		*h = q.f.question()
	case q.abort:
		*h = q.aborted()
		if invariant.Enabled {
			o.trace("abort", q.m.Handle, q.seq, q.m.Off, uint64(q.done))
		}
	default:
		payload = q.chunk(h)
		over = q.ended()
	}
	if over {
		o.wrote(q.seq)
		o.queue.pop()
	}
	return payload, true
}

// wrote notes that message seq is wholly in frames; tmu is held.
func (o *Out) wrote(seq uint64) {
	if invariant.Enabled {
		o.checkWritten(seq)
	}
	o.written = seq
	if o.want > 0 && o.want <= seq {
		o.want = 0
		o.askNow()
	}
}

// sent is the last message that is wholly in frames. What is not cannot have
// arrived, whatever the exporter says: its memory is still used.
func (o *Out) sent() uint64 {
	o.tmu.Lock()
	defer o.tmu.Unlock()
	return o.written
}

func (o *Out) askNow() {
	o.asked = o.written
	o.tx.ctl = append(o.tx.ctl, wire.Header{Type: wire.Ping})
}

// ping asks, once, for an acknowledgement of message seq; when seq is still
// queued, as soon as it is written: a ping goes before what is queued.
func (o *Out) ping(seq uint64) {
	o.e.warm(&o.stream)
	o.tmu.Lock()
	defer o.tmu.Unlock()
	switch {
	case o.written < seq:
		o.want = max(o.want, seq)
	case o.asked < seq:
		o.askNow()
	}
	o.pump()
}

// Cancel ends what is queued for an import that is no more. Its memory is not
// looked at any more when this returns. applied is the last message that is wholly
// in frames: what is in its middle, synchronous ones included, does not arrive.
func (o *Out) Cancel(handle uint32) (applied uint64) {
	o.tmu.Lock()
	defer o.tmu.Unlock()
	for i := range o.queue.len() {
		q := o.queue.at(i)
		if q.m.Handle != handle || q.f != nil || q.abort {
			continue
		}
		q.abort = true
		q.m.Src, q.m.More = nil, nil
	}
	o.tx.pay = bytes.Clone(o.tx.pay) // of the chunk under way
	return o.written
}

// overlaps says whether a get that is not answered yet reads what an update
// would write. A get returns memory as of a moment before its answer is
// complete, so the update waits.
func (o *Out) overlaps(id uint32, off, size uint64) bool {
	if o.reads.Load() == 0 {
		return false
	}
	o.gmu.Lock()
	defer o.gmu.Unlock()
	for _, f := range o.gets {
		if f.id == id && f.off < off+size && off < f.off+f.size {
			return true
		}
	}
	return false
}

// unread waits until nothing overlaps.
func (o *Out) unread(ctx context.Context, id uint32, off, size uint64) error {
	for {
		tick := o.room.Now()
		if !o.overlaps(id, off, size) {
			return nil
		}
		if err := o.err(); err != nil {
			return err
		}
		if err := o.e.Wait(ctx, wait.Look{Word: o.room.Word(), Old: tick, Broken: &o.broken, Own: true}); err != nil {
			return err
		}
	}
}
