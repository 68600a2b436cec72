package link

import (
	"context"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// maxQueue is how many asynchronous messages of a link may wait for the socket;
// beyond it beginning another one waits.
const maxQueue = 1024

// SendAsync numbers a message and queues it; its memory is the link's until the
// request is done. Of a long one, what the socket takes at once is written before it returns.
// It waits only for a credit, or where too much is queued.
func (o *Out) SendAsync(ctx context.Context, m Message) (r Request, err error) {
	if err := o.err(); err != nil { // what is put off would not say so before its turn
		return Request{}, err
	}
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
	return o.postpone(ctx, &deferred{slow: true, do: func(ctx context.Context, d *deferred) error {
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
	}})
}

// admit queues a message or a get, once there is room. A short one is left to who waits
// or to the background, which write many in one call.
func (o *Out) admit(ctx context.Context, q *outgoing) error {
	o.imu.Lock()
	for {
		var err error
		switch {
		case q.f != nil && o.reads.Load() >= maxFetches:
			o.imu.Unlock()
			err = o.slot(ctx)
		case o.queued.Load() >= maxQueue:
			o.imu.Unlock()
			err = o.lessQueued(ctx, q.m.Ended)
		default:
			err = o.err() // nobody would write it any more
			if err == nil {
				o.enter(q)
				return nil
			}
			o.imu.Unlock()
		}
		if err != nil {
			return err
		}
		o.imu.Lock()
	}
}

// enter puts q into the inbox and sees to it that it is written; imu is held, and
// not any more when this returns.
func (o *Out) enter(q *outgoing) {
	if q.f != nil {
		q.seq = o.seq.Add(1)
		q.f.seq = q.seq
		o.expect(q.f)
	} else {
		q.seq, q.serial = o.numbers(&q.m, q.size)
	}
	o.inbox.push(*q)
	o.queued.Add(1)
	if invariant.Enabled {
		o.checkInbox()
	}
	first := !o.due.Swap(true)
	o.imu.Unlock()
	// Due may be set by a message that is gathered, for which nobody comes soon. Who finds this link listed is in time:
	// the list is taken before due is looked at.
	switch {
	case q.size > small:
		o.tmu.Lock()
		gathered := o.gathers(q.size)
		left := !gathered && o.offer()
		o.tmu.Unlock()
		if gathered || left {
			o.e.guard.hasten()
		}
		switch {
		case gathered:
		case o.guarded.Load():
			o.e.guard.pass()
		default:
			o.hush()
		}
	case !first && (o.listed.Load() || o.tx.attended.Load() > 0): // somebody comes already, for all that follow meanwhile
	case o.tx.attended.Load() > 0 || !o.e.add(o): // a waiter comes for it, or the background
		o.tmu.Lock()
		o.stick()
		o.tmu.Unlock()
	}
}

// lessQueued waits until something that is queued is written.
func (o *Out) lessQueued(ctx context.Context, ended *atomic.Bool) error {
	o.tmu.Lock()
	o.tx.attended.Add(1)
	o.stick()
	tick := o.tx.room.Now()
	full := o.queued.Load() >= maxQueue
	o.tmu.Unlock()
	var err error
	if full {
		err = o.await(ctx, tick, ended)
	}
	o.leave()
	return err
}

// only returns nil with tmu and imu held and nothing queued, so that the next
// number is the caller's; or an error without them.
func (o *Out) only(ctx context.Context, ended *atomic.Bool) error {
	for {
		if err := o.ready(ctx, ended); err != nil {
			return err
		}
		o.imu.Lock()
		if o.inbox.len() == 0 {
			return nil
		}
		o.imu.Unlock()
		o.tmu.Unlock()
	}
}

// collect moves what came into the inbox to the queue, which is empty, and says
// whether there is any.
func (o *Out) collect() bool {
	o.imu.Lock()
	defer o.imu.Unlock()
	o.queue, o.inbox = o.inbox, o.queue
	any := o.queue.len() > 0
	o.sift()
	o.due.Store(any)
	return any
}

// next gives the next chunk of the oldest queued message, but nothing while a
// synchronous one is in its middle. The last message for now asks for its
// acknowledgement, so that requests are over without anybody asking after them.
func (o *Out) next(h *wire.Header) (payload []byte, ok bool) {
	if len(o.again) > 0 {
		return o.nextAgain(h), true
	}
	if o.mid || o.queue.len() == 0 && (!o.due.Load() || !o.collect()) {
		return nil, false
	}
	if o.minds {
		if o.tx.held = !o.mayKeep(); o.tx.held {
			return nil, false
		}
	}
	if invariant.Enabled {
		o.checkQueue()
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
		payload = q.chunk(h, o.tx.most())
		over = q.ended()
		if over && o.queued.Load() == 1 {
			h.Flags |= wire.AckNow
			if o.crowded(q.size) {
				h.Flags |= wire.Shared
			}
		}
	}
	if over {
		o.wrote(q.seq, h.Flags&wire.AckNow != 0)
		if o.limit > 0 && q.f == nil {
			o.keeps.messages.push(*q)
		}
		if q.size > small && q.f == nil && !q.abort {
			o.flight.add(q.seq, q.size)
		}
		o.queue.pop()
		o.queued.Add(-1)
	}
	return payload, true
}

// mayKeep says whether one more message may be kept. Else an acknowledgement is asked for.
func (o *Out) mayKeep() bool {
	o.tend()
	if o.keeps.messages.len() < keptMessages {
		return true
	}
	o.full.Store(true) // before the look
	o.keeps.drop(o.acked.Load())
	if o.keeps.messages.len() < keptMessages {
		o.full.Store(false)
		return true
	}
	if o.asked < o.written.Load() {
		o.askNow()
	}
	return false
}

// wrote notes that message seq is wholly in frames, and whether it asks for its
// acknowledgement itself, before the last of them can be answered; tmu is held.
func (o *Out) wrote(seq uint64, acks bool) {
	if invariant.Enabled {
		o.checkWritten(seq)
	}
	if o.tx.loan.Load() == 0 {
		o.tx.loan.Store(seq)
	}
	o.written.Store(seq)
	o.top = max(o.top, seq)
	if acks {
		o.asked = seq
	}
	if o.want > 0 && o.want <= seq {
		o.want = 0
		if !acks {
			o.askNow()
		}
	}
}

// sent says whether message seq is wholly in frames, and its memory not used any
// more. What is not cannot have arrived, whatever the exporter says. The lock, which
// a sender of long messages holds nearly all the time, is needed only where some
// payload may be left: loan is stored before written, and loaded after it.
func (o *Out) sent(seq uint64) bool {
	if seq <= o.written.Load() {
		if l := o.tx.loan.Load(); l == 0 || seq < l {
			return true
		}
	}
	o.tmu.Lock()
	defer o.tmu.Unlock()
	return seq <= o.written.Load() && seq < o.tx.lent()
}

func (o *Out) askNow() {
	if o.minds {
		o.tend()
	}
	o.asked = o.written.Load()
	o.tx.ctl = append(o.tx.ctl, wire.Header{Type: wire.Ping})
}

// ping asks, once, for an acknowledgement of message seq; when seq is still
// queued, as soon as it is written: a ping goes before what is queued.
func (o *Out) ping(seq uint64) {
	o.e.warm(&o.stream)
	o.tmu.Lock()
	switch {
	case o.written.Load() < seq:
		o.want = max(o.want, seq)
	case o.asked < seq:
		o.askNow()
	}
	left := o.offer()
	o.tmu.Unlock()
	if left { // who asks waits, as a rule
		o.e.guard.hasten()
	}
}

// Cancel ends what is queued for an import that is no more. Its memory is not
// looked at any more when this returns; what was put off ends in its turn. applied is the last message that is wholly
// in frames: what is in its middle, synchronous ones included, does not arrive.
func (o *Out) Cancel(handle uint32) (applied uint64) {
	o.tmu.Lock()
	defer o.tmu.Unlock()
	o.imu.Lock()
	defer o.imu.Unlock()
	for _, f := range []*fifo[outgoing]{&o.queue, &o.inbox} {
		for i := range f.len() {
			q := f.at(i)
			if q.m.Handle != handle || q.f != nil || q.abort {
				continue
			}
			q.forget()
		}
	}
	for i := range o.keeps.messages.len() {
		if q := o.keeps.messages.at(i); q.m.Handle == handle && !q.abort {
			q.forget()
			q.closed = true
		}
	}
	o.tx.keep()
	return o.top
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
		forsaken := f.op == 0 && f.dst == nil // what it would read is nobody's concern
		if f.id == id && !forsaken && f.off < off+size && off < f.off+f.size {
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
		if err := o.e.wait(ctx, &wait.Look{Word: o.room.Word(), Old: tick, Broken: &o.broken, Own: true}, &o.stream); err != nil {
			return err
		}
	}
}
