package link

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// Request is an asynchronous operation. It is a value: a message's number on its
// link is all there is to remember of it. The zero Request is none.
type Request struct {
	requester *Requester
	seq       uint64      // done when this is acknowledged
	fetch     *fetch      // or when this is answered
	deferred  *deferredOp // or, before either, when this was begun
}

// Valid says whether there is an operation.
func (r *Request) Valid() bool { return r.requester != nil }

// Seq is the number of the message, 0 if it was not one of the stream or has none yet.
func (r *Request) Seq() uint64 {
	if r.deferred != nil && r.deferred.done.Load() {
		return r.deferred.seq
	}
	return r.seq
}

// Result says whether the operation is over, and how it went. When it is not, an
// acknowledgement is on its way after this, or somebody at work.
func (r *Request) Result() (done bool, err error) {
	done, err = r.poll()
	if !done && r.deferred != nil && !r.deferred.done.Load() {
		r.requester.startWorker()
	}
	return done, err
}

// poll is Result for who waits, and does himself what was put off.
func (r *Request) poll() (done bool, err error) {
	rq, seq := r.requester, r.seq
	if d := r.deferred; d != nil {
		switch {
		case !d.done.Load():
			return false, nil
		case d.err != nil:
			return true, d.err
		}
		seq = d.seq
	}
	if r.fetch != nil {
		if r.fetch.done.Load() == 0 {
			return false, nil
		}
		return true, r.fetch.err
	}
	over := rq.ended.Load() // before the look: what was acknowledged before the end has arrived
	if rq.ackedSeq.Load() >= seq {
		if done := !rq.unansweredBefore(seq); !done || !rq.hasFaults.Load() {
			return done, nil
		}
		return true, rq.faultOf(seq)
	}
	if over {
		return true, unknown(rq.err())
	}
	rq.requestAckOf(seq)
	return false, nil
}

// Wait returns when the operation is over, or with the context's error.
func (r *Request) Wait(ctx context.Context) (done bool, err error) {
	for {
		tick := r.requester.ackEvent.Load()
		if done, err := r.poll(); done {
			r.requester.e.drainReady()
			return true, err
		}
		if err := r.requester.e.wait(ctx, &wait.Cond{Word: r.requester.ackEvent.Word(), Old: tick, LocalOnly: true}, &r.requester.stream); err != nil {
			return false, err
		}
	}
}

// deferredOp is an asynchronous operation that was not begun at once: one on
// mapped memory behind messages of the stream, a long copy, an update behind a
// get that reads the same place.
type deferredOp struct {
	run     func(context.Context, *deferredOp) error // nil for a copy
	copyOp  copyOp
	mayWait bool   // it may wait for something; with the backlog's mu once it is listed
	seq     uint64 // what is to be acknowledged, if it went to the stream
	err     error
	done    atomic.Bool // seq and err are set before
}

// backlog is what was put off on one link, in order. While there is any, all
// that comes later on the link waits behind it, so that the order of a pair of
// processes holds over both ways. A goroutine works it off and ends with it, or, as long as all of it is copies, whoever
// waits for something meanwhile, see async_copies.go. One at a time has the turn to.
type backlog struct {
	mu            sync.Mutex
	ops           []*deferredOp
	mayWaitCount  int  // how many of them may wait for something
	hasWorker     bool // somebody works it off
	closed        bool
	deferredTotal atomic.Uint64 // in all
	doneTotal     atomic.Uint64
	pending       atomic.Int32 // the difference, by itself: it is looked at for every message

	inCopyList bool  // among those that are left to who waits; with copies.mu
	idleSince  int64 // since it is, or was worked at, of [unix.Monotonic]; with copies.mu
}

func (b *backlog) busy() bool { return b.pending.Load() != 0 }

// deferOp puts an operation off.
func (rq *Requester) deferOp(ctx context.Context, d *deferredOp) (Request, error) {
	b := &rq.backlog
	b.mu.Lock()
	for len(b.ops) >= maxQueue {
		tick := rq.ackEvent.Load()
		b.mu.Unlock()
		if err := rq.err(); err != nil {
			return Request{}, err
		}
		if err := rq.e.Wait(ctx, wait.Cond{Word: rq.ackEvent.Word(), Old: tick, Failed: &rq.failed, LocalOnly: true}); err != nil {
			return Request{}, err
		}
		b.mu.Lock()
	}
	if b.closed {
		b.mu.Unlock()
		return Request{}, rq.err()
	}
	b.ops = append(b.ops, d)
	b.deferredTotal.Add(1)
	b.pending.Add(1)
	if d.mayWait {
		b.mayWaitCount++
	}
	if invariant.Enabled {
		b.check()
	}
	left := b.mayWaitCount == 0 && !b.hasWorker
	if !left {
		rq.startWorkerLocked()
	}
	b.mu.Unlock()
	if left {
		rq.e.deferCopies(rq, false)
	}
	return Request{requester: rq, deferred: d}, nil
}

// startWorkerLocked has a goroutine work off what there is, unless somebody has the turn; b.mu is held. Of a dead link somebody has the turn
// until nothing is left, so the engine does not wait for its goroutines yet.
func (rq *Requester) startWorkerLocked() {
	if b := &rq.backlog; !b.hasWorker && len(b.ops) > 0 {
		b.hasWorker = true
		rq.e.wg.Go(rq.runBacklog)
	}
}

// startWorker has a goroutine work off what was left to who waits.
func (rq *Requester) startWorker() {
	b := &rq.backlog
	b.mu.Lock()
	rq.startWorkerLocked()
	b.mu.Unlock()
}

// runBacklog runs what was put off, with the turn. The link's end makes each operation fail.
func (rq *Requester) runBacklog() {
	b := &rq.backlog
	b.mu.Lock()
	for len(b.ops) > 0 {
		d := b.ops[0]
		b.mu.Unlock()
		d.err = rq.err()
		switch {
		case d.err != nil && d.copyOp.copied == 0:
			rq.untakeCredit(d.copyOp.notify)
		case d.run != nil:
			d.err = d.run(context.Background(), d)
		default:
			d.err = d.copyOp.run(context.Background())
		}
		b.mu.Lock()
		rq.opDone(d)
	}
	b.hasWorker = false
	b.mu.Unlock()
	rq.e.deferredCopies.drop(rq)
}

// opDone takes the first operation, which is over, off the list; b.mu is held, and the turn is the caller's.
func (rq *Requester) opDone(d *deferredOp) {
	b := &rq.backlog
	d.done.Store(true)
	n := copy(b.ops, b.ops[1:])
	b.ops[n] = nil
	b.ops = b.ops[:n]
	if d.mayWait {
		b.mayWaitCount--
	}
	b.doneTotal.Add(1)
	b.pending.Add(-1)
	if invariant.Enabled {
		b.check()
	}
	rq.ackEvent.Advance()
	rq.e.sleepers.Wake()
}

// waitBacklog waits until what was put off before this call is done. One load
// where nothing was.
func (rq *Requester) waitBacklog(ctx context.Context) error {
	if !rq.backlog.busy() {
		return nil
	}
	return rq.waitBacklogSlow(ctx)
}

func (rq *Requester) waitBacklogSlow(ctx context.Context) error {
	b := &rq.backlog
	upTo := b.deferredTotal.Load()
	for b.doneTotal.Load() < upTo {
		tick := rq.ackEvent.Load()
		if b.doneTotal.Load() >= upTo {
			break
		}
		if err := rq.err(); err != nil {
			return err
		}
		if err := rq.e.Wait(ctx, wait.Cond{Word: rq.ackEvent.Word(), Old: tick, Failed: &rq.failed, LocalOnly: true}); err != nil {
			return err
		}
	}
	return nil
}

// closeBacklog lets nothing more be put off, and has what nobody works off fail.
func (rq *Requester) closeBacklog() {
	b := &rq.backlog
	b.mu.Lock()
	b.closed = true
	idle := !b.hasWorker
	b.hasWorker = true
	b.mu.Unlock()
	if idle {
		rq.runBacklog()
	}
}
