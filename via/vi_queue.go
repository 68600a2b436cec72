package via

import (
	"context"
	"sync/atomic"
)

// queue is one of a VI's two queues of descriptors. Its lists are guarded by NIC.mu.
type queue struct {
	cq      *CompletionQueue
	pending fifo // not complete
	ready   fifo // complete, not taken by the program
	waiters waitList
	// Handlers. While there are any, ready is empty.
	notifies notifyList[*Descriptor]

	outstanding atomic.Int32 // pending.n
	complete    atomic.Int32 // ready.n
}

// PostSend appends a SEND to the send queue (VipPostSend) and never waits. What is wrong with the
// descriptor is told by its Status. If the VI is not connected it is completed at once, as
// [Flushed]. Errors: [ErrInvalidParameter] if d is nil or posted already, or the VI is destroyed;
// [ErrResource] if the queue has MaxDescriptors. The last two of a VI that is there are asynchronous
// errors, too.
//
// Experimental: it may change in any release.
func (vi *VI) PostSend(d *Descriptor) error {
	vi.n.mu.Lock()
	defer vi.n.mu.Unlock()
	if err := vi.accept(&vi.send, d, "post a SEND"); err != nil {
		return err
	}
	vi.add(&vi.send, d)
	if vi.state != Connected {
		vi.flush(&vi.send) // it is the only one
		return nil
	}
	if vi.current == nil {
		vi.begin(d)
		if !vi.backlog {
			vi.link.serve(vi)
		}
	}
	return nil
}

// PostReceive appends a receive to the receive queue (VipPostRecv) and never waits. It may be posted
// before the VI is connected. A VI in state Error completes it at once, as [Flushed]. Errors as
// [VI.PostSend].
//
// Experimental: it may change in any release.
func (vi *VI) PostReceive(d *Descriptor) error {
	vi.n.mu.Lock()
	defer vi.n.mu.Unlock()
	if err := vi.accept(&vi.recv, d, "post a receive"); err != nil {
		return err
	}
	vi.add(&vi.recv, d)
	if vi.state == Failed {
		vi.flush(&vi.recv)
		return nil
	}
	vi.settle()
	return nil
}

// accept refuses descriptors that cannot be posted. mu is held.
func (vi *VI) accept(q *queue, d *Descriptor, op string) error {
	if d == nil {
		return fail(op, ErrInvalidParameter, "the descriptor is nil")
	}
	if err := vi.check(op); err != nil {
		return err
	}
	if q.pending.n+q.ready.n >= maxDescriptors {
		vi.n.raise(AsyncError{VI: vi, Descriptor: d, Code: Overrun})
		return fail(op, ErrResource, "the queue has %d descriptors", maxDescriptors)
	}
	if !d.posted.CompareAndSwap(false, true) {
		vi.n.raise(AsyncError{VI: vi, Descriptor: d, Code: PostDescriptor})
		return fail(op, ErrInvalidParameter, "the descriptor is posted already")
	}
	d.Status, d.Length, d.sent, d.lost = 0, 0, false, false
	return nil
}

// add appends an outstanding descriptor. mu is held.
func (vi *VI) add(q *queue, d *Descriptor) {
	q.pending.push(d)
	q.outstanding.Store(int32(q.pending.n))
	vi.reportQueue(q)
}

// finish completes the head of a queue. mu is held.
func (vi *VI) finish(q *queue, status Status) {
	d := q.pending.pop()
	if q == &vi.send {
		status |= d.op()
	} else if status&OpMask == 0 {
		status |= OpReceive
	}
	d.Status = status | Done
	d.sent, d.reads = false, false
	q.ready.push(d)
	q.complete.Store(int32(q.ready.n))
	q.outstanding.Store(int32(q.pending.n))
	vi.reportQueue(q)
	vi.reportCompletion(q, d)
	if q.cq != nil {
		q.cq.add(vi, q == &vi.recv)
	}
	q.waiters.wake()
	if len(q.notifies) > 0 {
		vi.n.enqueue(call{descriptor: q.notifies.pop(vi.n), d: vi.dequeue(q)})
	}
}

// flush completes all outstanding descriptors of a queue. mu is held.
func (vi *VI) flush(q *queue) {
	for q.pending.n > 0 {
		vi.finish(q, Flushed)
	}
}

func (vi *VI) flushAll() {
	vi.flush(&vi.send)
	vi.flush(&vi.recv)
}

// take returns the completed head of a queue. mu is held.
func (vi *VI) take(q *queue) *Descriptor {
	d := vi.dequeue(q)
	if d != nil {
		d.posted.Store(false)
	}
	return d
}

// dequeue is take that leaves the descriptor one that must not be posted. mu is held.
func (vi *VI) dequeue(q *queue) *Descriptor {
	d := q.ready.pop()
	if d != nil {
		q.complete.Store(int32(q.ready.n))
		vi.reportQueue(q)
	}
	return d
}

// SendDone returns the head of the send queue if it is complete (VipSendDone), and never waits.
// Errors: [ErrNotDone]; [ErrDescriptor] with the descriptor if that has failed, see its Status, and
// without one if the queue is empty; [ErrInvalidParameter] if the VI is destroyed.
//
// Experimental: it may change in any release.
func (vi *VI) SendDone() (*Descriptor, error) { return vi.done(&vi.send) }

// ReceiveDone is SendDone for the receive queue (VipRecvDone).
//
// Experimental: it may change in any release.
func (vi *VI) ReceiveDone() (*Descriptor, error) { return vi.done(&vi.recv) }

func (vi *VI) done(q *queue) (*Descriptor, error) {
	if q.outstanding.Load() > 0 && q.complete.Load() == 0 && !vi.n.hasNews() {
		return nil, ErrNotDone
	}
	vi.n.mu.Lock()
	defer vi.n.mu.Unlock()
	vi.n.progress()
	if d := vi.take(q); d != nil {
		return d, d.Err()
	}
	switch {
	case vi.gone:
		return nil, vi.check("take a descriptor")
	case q.pending.n > 0:
		return nil, ErrNotDone
	default:
		return nil, ErrDescriptor
	}
}

// SendWait is [VI.SendDone] that waits until the head of the queue is complete (VipSendWait).
// Errors: [ErrTimeout] when the context ends; [ErrDescriptor] as SendDone; [ErrInvalidParameter] if
// the queue is attached to a completion queue, the VI is destroyed or the context is nil;
// [ErrInvalidState] in a handler of package vmmc.
//
// Experimental: it may change in any release.
func (vi *VI) SendWait(ctx context.Context) (*Descriptor, error) {
	return vi.wait(ctx, &vi.send, "wait for a SEND")
}

// ReceiveWait is SendWait for the receive queue (VipRecvWait).
//
// Experimental: it may change in any release.
func (vi *VI) ReceiveWait(ctx context.Context) (*Descriptor, error) {
	return vi.wait(ctx, &vi.recv, "wait for a receive")
}

func (vi *VI) wait(ctx context.Context, q *queue, op string) (*Descriptor, error) {
	if err := checkCall(ctx, op); err != nil {
		return nil, err
	}
	if q.cq != nil {
		return nil, fail(op, ErrInvalidParameter, "the queue is attached to a completion queue: wait for that")
	}
	vi.n.mu.Lock()
	defer vi.n.mu.Unlock()
	for {
		vi.n.progress()
		if d := vi.take(q); d != nil {
			return d, d.Err()
		}
		if err := vi.check(op); err != nil {
			return nil, err
		}
		if q.pending.n == 0 {
			return nil, ErrDescriptor
		}
		if err := vi.n.sleep(ctx, op, &q.waiters); err != nil {
			return nil, err
		}
	}
}
