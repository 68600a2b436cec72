package link

import (
	"context"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/link/pacing"
	"github.com/vmmc-go/vmmc/internal/shm"
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
	return rq.backlog.deferOp(ctx, m.Ended, &deferredOp{mayWait: true, notify: m.Notify, run: func(ctx context.Context, d *deferredOp) error {
		q := outgoing{msg: m, size: m.Len()}
		err := rq.waitNoOverlap(ctx, m.Ended, m.ID, m.Off, uint64(q.size))
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
			err = rq.waitFetchSlot(ctx, q.msg.Ended)
		case rq.queuedOps.Load() >= maxQueue:
			rq.inboxMu.Unlock()
			err = rq.waitQueueSpace(ctx, q.msg.Ended)
		default:
			// A link that has ended would not write it. Under inboxMu: Cancel does not come again.
			err = rq.waiterError(q.msg.Ended)
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
	case rq.tx.activeWriters.Load() > 0 || !rq.e.batch.add(rq):
		// a waiter or the background goroutine will write it
		rq.tmu.Lock()
		rq.markWriteBlocked()
		rq.tmu.Unlock()
	}
}

// On loopback one raw call that writes 256 KiB takes 23 µs, while four calls of 64 KiB take 40. So
// messages that a sender begins while it keeps long messages in flight are coalesced. They are
// written once they fill a call, when the sender waits, or by the watchdog within rearmTick. While
// enough is in flight, the receiver does not notice. On a link that no waiter has released unarmed
// lately the sender does not come back soon: there, and where a goroutine sleeps, each message is
// written at once.
const coalesceInFlight = 128 << 10 // on the way, and not acknowledged, and two messages

// With traffic in both directions each end receives between two sends and finds all its messages
// acknowledged. Little is in flight then, and each message and acknowledgement would have a call of
// its own. So this many bytes or messages are coalesced, whatever is in flight.
const (
	coalesceBidirectional = 1 << 20
	coalesceMessages      = 8
)

// canShareAck reports whether enough bytes are in flight, with a message of the given size, that
// the receiver may acknowledge the message together with later ones. Earlier messages cause an
// acknowledgement without it. If no message follows, the receiver acknowledges after a few empty
// polls. The caller holds tmu.
func (rq *Requester) canShareAck(size int) bool {
	return size > maxInline && size <= chunk &&
		rq.inFlight.After(rq.ackedSeq.Load())+uint64(size) >= 2*pacing.AckStride(uint64(size))
}

// shouldCoalesce reports whether a message that was just queued is left to be written with later
// ones. The caller holds tmu. The watchdog checks for coalesced messages after it has taken a link
// off its list, and whenever a waiter or sender sweeps before. So a message queued while onWatchdog
// is set is found.
func (rq *Requester) shouldCoalesce(size int) bool {
	n, most := uint64(size), pacing.CoalesceBytes(uint64(size))
	both := rq.e.bulkActivity.justDrained()
	if both {
		most = max(most, min(coalesceBidirectional, coalesceMessages*n))
	}
	switch {
	case rq.tx.checksum: // each checked frame takes a call
	case uint64(rq.queuedOps.Load())*n >= most: // the messages that wait with it are likely as long
	case !rq.onWatchdog.Load() || rq.e.sleepers.Asleep():
	case !both && rq.inFlight.After(rq.ackedSeq.Load()) < max(coalesceInFlight, 2*n):
	default:
		return rq.e.batch.addBulk(rq) && rq.onWatchdog.Load()
	}
	return false
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

// abortUnreadableQueued makes aborts of queued messages whose memory cannot be read: a header that
// is written cannot be taken back. The caller holds tmu and inboxMu.
func (rq *Requester) abortUnreadableQueued() {
	for i, n := 0, rq.queue.len(); i < n; i++ {
		err := shm.Guard(func() { // one Guard for all readable messages
			for ; i < n; i++ {
				if q := rq.queue.at(i); q.fetch == nil && !q.abort {
					q.msg.touch()
				}
			}
		})
		if err != nil {
			rq.abortFaulted(rq.queue.at(i), err)
		}
	}
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
