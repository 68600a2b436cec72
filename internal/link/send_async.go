package link

import (
	"context"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// maxQueue bounds the asynchronous messages of a link that wait for the socket. Beginning another
// one then waits.
const maxQueue = 1024

// SendAsync numbers a message and queues it. The link owns its memory until the request is done. Of
// a long message SendAsync writes what the socket takes at once. It waits only for a credit, or
// while too much is queued.
func (rq *Requester) SendAsync(ctx context.Context, m Message) (r Request, err error) {
	if err := rq.err(); err != nil { // a deferred operation would report the error only later
		return Request{}, err
	}
	if m.Notify {
		if err := rq.takeCredit(ctx, m.Ended); err != nil {
			return Request{}, err
		}
	}
	if rq.backlog.busy() || rq.fetches.overlaps(m.ID, m.Off, uint64(m.Len())) {
		r, err = rq.deferSend(ctx, m)
	} else {
		q := outgoing{msg: m, size: m.Len()}
		err = rq.enqueue(ctx, &q)
		r = Request{requester: rq, seq: q.seq}
	}
	if err != nil {
		rq.untakeCredit(m.Notify)
		return Request{}, err
	}
	return r, nil
}

// deferSend queues a message once the operations before it are done.
func (rq *Requester) deferSend(ctx context.Context, m Message) (Request, error) {
	return rq.backlog.deferOp(ctx, &deferredOp{mayWait: true, run: func(ctx context.Context, d *deferredOp) error {
		q := outgoing{msg: m, size: m.Len()}
		err := rq.waitNoOverlap(ctx, m.ID, m.Off, uint64(q.size))
		if err == nil {
			err = rq.enqueue(ctx, &q)
		}
		if err != nil {
			rq.untakeCredit(m.Notify)
		}
		d.seq = q.seq
		return err
	}})
}

// enqueue queues a message or a get once there is room. A short one is left to a waiter or to the
// background goroutine, which write many in one call.
func (rq *Requester) enqueue(ctx context.Context, q *outgoing) error {
	rq.inboxMu.Lock()
	for {
		var err error
		switch {
		case q.fetch != nil && rq.fetches.count.Load() >= maxFetches:
			rq.inboxMu.Unlock()
			err = rq.waitFetchSlot(ctx)
		case rq.queuedOps.Load() >= maxQueue:
			rq.inboxMu.Unlock()
			err = rq.waitQueueSpace(ctx, q.msg.Ended)
		default:
			err = rq.err() // a link that has ended would not write it
			if err == nil {
				rq.enqueueLocked(q)
				return nil
			}
			rq.inboxMu.Unlock()
		}
		if err != nil {
			return err
		}
		rq.inboxMu.Lock()
	}
}

// enqueueLocked puts q into the inbox and arranges that it is written. The caller holds inboxMu,
// which enqueueLocked releases.
func (rq *Requester) enqueueLocked(q *outgoing) {
	if q.fetch != nil {
		q.seq = rq.lastSeq.Add(1)
		q.fetch.seq = q.seq
		rq.addFetch(q.fetch)
	} else {
		q.seq, q.serial = rq.assignSeq(&q.msg, q.size)
	}
	rq.inbox.push(*q)
	rq.queuedOps.Add(1)
	if invariant.Enabled {
		rq.checkInbox()
	}
	first := !rq.inboxReady.Swap(true)
	rq.inboxMu.Unlock()
	// A coalesced message may have set inboxReady although no goroutine comes for it soon. A
	// message that finds inBatch set is in time: flush takes the list before it loads inboxReady.
	switch {
	case q.size > maxInline:
		rq.tmu.Lock()
		gathered := rq.shouldCoalesce(q.size)
		left := !gathered && rq.tryFlush()
		rq.tmu.Unlock()
		if gathered || left {
			rq.e.watchdog.expedite()
		}
		switch {
		case gathered:
		case rq.onWatchdog.Load():
			rq.e.watchdog.postponeIfDue()
		default:
			rq.disarmRead()
		}
	case !first && (rq.inBatch.Load() || rq.tx.activeWriters.Load() > 0):
		// another goroutine will write them, with all that follow meanwhile
	case rq.tx.activeWriters.Load() > 0 || !rq.e.addToBatch(rq):
		// a waiter or the background goroutine will write it
		rq.tmu.Lock()
		rq.markWriteBlocked()
		rq.tmu.Unlock()
	}
}

// waitQueueSpace waits until a queued message is written.
func (rq *Requester) waitQueueSpace(ctx context.Context, ended *atomic.Bool) error {
	rq.tmu.Lock()
	rq.tx.activeWriters.Add(1)
	rq.markWriteBlocked()
	tick := rq.tx.writeEvent.Load()
	full := rq.queuedOps.Load() >= maxQueue
	rq.tmu.Unlock()
	var err error
	if full {
		err = rq.waitWritable(ctx, tick, ended)
	}
	rq.endWrite()
	return err
}

// lockIdleQueue returns nil with tmu and inboxMu held and nothing queued, so the caller gets the
// next number; or an error without the locks.
func (rq *Requester) lockIdleQueue(ctx context.Context, ended *atomic.Bool) error {
	for {
		if err := rq.lockWriter(ctx, ended); err != nil {
			return err
		}
		rq.inboxMu.Lock()
		if rq.inbox.len() == 0 {
			return nil
		}
		rq.inboxMu.Unlock()
		rq.tmu.Unlock()
	}
}

// swapInbox moves the messages in inbox to queue, which is empty, and reports whether there are
// any.
func (rq *Requester) swapInbox() bool {
	rq.inboxMu.Lock()
	defer rq.inboxMu.Unlock()
	rq.queue, rq.inbox = rq.inbox, rq.queue
	any := rq.queue.len() > 0
	rq.abortUnreadableQueued()
	rq.inboxReady.Store(any)
	return any
}

// nextFrame returns the next chunk of the oldest queued message, but nothing while a synchronous
// message is incomplete. The last queued message requests its acknowledgement, so that requests
// complete without being polled.
func (rq *Requester) nextFrame(h *wire.Header) (payload []byte, ok bool) {
	if len(rq.retransmits) > 0 {
		return rq.nextRetransmit(h), true
	}
	if rq.midMessage || rq.queue.len() == 0 && (!rq.inboxReady.Load() || !rq.swapInbox()) {
		return nil, false
	}
	if rq.needsProbes {
		if rq.tx.awaitingAcks = !rq.canRetain(); rq.tx.awaitingAcks {
			return nil, false
		}
	}
	if invariant.Enabled {
		rq.checkQueue()
	}
	q := rq.queue.at(0)
	over := true
	switch {
	case q.fetch != nil:
		*h = q.fetch.header()
	case q.abort:
		*h = q.abortHeader()
		if invariant.Enabled {
			rq.trace("abort", q.msg.Handle, q.seq, q.msg.Off, uint64(q.framed))
		}
	default:
		payload = q.chunk(h, rq.tx.maxPayload())
		over = q.complete()
		if over && rq.queuedOps.Load() == 1 {
			h.Flags |= wire.AckNow
			if rq.canShareAck(q.size) {
				h.Flags |= wire.Shared
			}
		}
	}
	if over {
		rq.messageFramed(q.seq, h.Flags&wire.AckNow != 0)
		if rq.reconnectLimit > 0 && q.fetch == nil {
			rq.unacked.uncopied.push(*q)
		}
		if q.size > maxInline && q.fetch == nil && !q.abort {
			rq.inFlight.Add(q.seq, q.size)
		}
		rq.queue.pop()
		rq.queuedOps.Add(-1)
	}
	return payload, true
}

// canRetain reports whether one more message may be retained. If not, it requests an
// acknowledgement.
func (rq *Requester) canRetain() bool {
	rq.tailProbe.schedule()
	if rq.unacked.uncopied.len() < maxUncopied {
		return true
	}
	rq.ackBlocked.Store(true) // before the second check; see handleFrame
	rq.unacked.dropAcked(rq.ackedSeq.Load())
	if rq.unacked.uncopied.len() < maxUncopied {
		rq.ackBlocked.Store(false)
		return true
	}
	if rq.ackRequested < rq.writtenSeq.Load() {
		rq.requestAck()
	}
	return false
}

// messageFramed records that message seq is wholly in frames, and whether its frame requests an
// acknowledgement. It is called before the last frame can be answered. The caller holds tmu.
func (rq *Requester) messageFramed(seq uint64, acks bool) {
	if invariant.Enabled {
		rq.checkWritten(seq)
	}
	if rq.tx.firstBorrowedSeq.Load() == 0 {
		rq.tx.firstBorrowedSeq.Store(seq)
	}
	rq.writtenSeq.Store(seq)
	rq.maxWrittenSeq = max(rq.maxWrittenSeq, seq)
	if acks {
		rq.ackRequested = seq
	}
	if rq.ackWanted > 0 && rq.ackWanted <= seq {
		rq.ackWanted = 0
		if !acks {
			rq.requestAck()
		}
	}
}

// fullySent reports whether message seq is wholly in frames and its memory no longer used. Other
// messages cannot have arrived, whatever the exporter says. A sender of long messages holds tmu
// nearly all the time, so fullySent takes it only where payload may be unwritten: firstBorrowedSeq
// is stored before writtenSeq and loaded after it.
func (rq *Requester) fullySent(seq uint64) bool {
	if seq <= rq.writtenSeq.Load() {
		if l := rq.tx.firstBorrowedSeq.Load(); l == 0 || seq < l {
			return true
		}
	}
	rq.tmu.Lock()
	defer rq.tmu.Unlock()
	return seq <= rq.writtenSeq.Load() && seq < rq.tx.firstBorrowed()
}

func (rq *Requester) requestAck() {
	if rq.needsProbes {
		rq.tailProbe.schedule()
	}
	rq.ackRequested = rq.writtenSeq.Load()
	rq.tx.control = append(rq.tx.control, wire.Header{Type: wire.Ping})
}

// requestAckOf requests, once, an acknowledgement of message seq. If seq is still queued, the
// request follows when it is written, because a ping goes before queued messages.
func (rq *Requester) requestAckOf(seq uint64) {
	rq.e.markHot(&rq.stream)
	rq.tmu.Lock()
	switch {
	case rq.writtenSeq.Load() < seq:
		rq.ackWanted = max(rq.ackWanted, seq)
	case rq.ackRequested < seq:
		rq.requestAck()
	}
	left := rq.tryFlush()
	rq.tmu.Unlock()
	if left { // the caller waits, as a rule
		rq.e.watchdog.expedite()
	}
}

// Cancel ends what is queued for an import that has ended. When it returns, the memory of those
// messages is not used any more. Deferred operations end in their order. applied is the last
// message wholly in frames: a message that is incomplete, synchronous ones included, does not
// arrive.
func (rq *Requester) Cancel(handle uint32) (applied uint64) {
	rq.tmu.Lock()
	defer rq.tmu.Unlock()
	rq.inboxMu.Lock()
	defer rq.inboxMu.Unlock()
	for _, f := range []*fifo[outgoing]{&rq.queue, &rq.inbox} {
		for i := range f.len() {
			q := f.at(i)
			if q.msg.Handle != handle || q.fetch != nil || q.abort {
				continue
			}
			q.makeAbort()
		}
	}
	for i := range rq.unacked.uncopied.len() {
		if q := rq.unacked.uncopied.at(i); q.msg.Handle == handle && !q.abort {
			q.makeAbort()
			q.importClosed = true
		}
	}
	rq.tx.detachPayload()
	return rq.maxWrittenSeq
}

// fifo is a queue that reuses its memory: in the steady state it allocates nothing, and popping
// from a long queue moves nothing.
type fifo[T any] struct {
	items []T
	head  int // Index of the oldest item.
}

func (f *fifo[T]) len() int { return len(f.items) - f.head }

func (f *fifo[T]) push(v T) {
	// otherwise moving the items would be most of the work
	if len(f.items) == cap(f.items) && f.head > len(f.items)/2 {
		n := copy(f.items, f.items[f.head:])
		clear(f.items[n:])
		f.items, f.head = f.items[:n], 0
	}
	f.items = append(f.items, v)
}

// at returns the i-th oldest item, valid until the next push or pop.
func (f *fifo[T]) at(i int) *T { return &f.items[f.head+i] }

func (f *fifo[T]) pop() {
	var none T
	f.items[f.head] = none
	if f.head++; f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	}
}
