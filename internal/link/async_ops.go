package link

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// Request is an asynchronous operation. It is a value: a message's number on its link is all its
// state. The zero Request is none.
type Request struct {
	requester *Requester
	seq       uint64      // Done when this message is acknowledged,
	fetch     *fetch      // or when this is answered,
	deferred  *deferredOp // once this has begun.
}

// Valid reports whether there is an operation.
func (r *Request) Valid() bool { return r.requester != nil }

// Seq returns the message's number, or 0 if it was not on the stream or has no number yet.
func (r *Request) Seq() uint64 {
	if r.deferred != nil && r.deferred.done.Load() {
		return r.deferred.seq
	}
	return r.seq
}

// Result reports whether the operation is complete, and its error. If it is not, Result requests an
// acknowledgement, or starts a worker for a deferred operation.
func (r *Request) Result() (done bool, err error) {
	done, err = r.poll()
	if !done && r.deferred != nil && !r.deferred.done.Load() {
		r.requester.backlog.startWorker()
	}
	return done, err
}

// poll is Result for a waiter, which runs deferred operations itself.
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
		if r.fetch.canceled.Load() {
			return true, ErrEnded
		}
		if r.fetch.done.Load() == 0 {
			return false, nil
		}
		return true, r.fetch.err
	}
	// before ackedSeq is loaded: what was acknowledged before the link's end has arrived
	over := rq.State() == shmlayout.ConnReleased
	if rq.ackedSeq.Load() >= seq {
		if done := !rq.fetches.unansweredBefore(seq); !done || !rq.hasFaults.Load() {
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

// Wait returns when the operation is complete, or with the context's error.
func (r *Request) Wait(ctx context.Context) (done bool, err error) { return r.WaitOf(ctx, nil) }

// WaitOf is Wait for a request of an import, which c is the end of. c may be nil.
func (r *Request) WaitOf(ctx context.Context, c *Cancellation) (done bool, err error) {
	for {
		tick := r.requester.ackEvent.Load()
		done, err := r.poll()
		if done, err = r.canceledOr(c, done, err); done {
			r.requester.e.drainReady()
			return true, err
		}
		l := wait.Cond{Word: r.requester.ackEvent.Word(), Old: tick, LocalOnly: true}
		if c != nil && r.Seq() > 0 { // others advance ackEvent when they are canceled
			l.Ended = &c.canceled
		}
		if err := r.requester.e.wait(ctx, &l, &r.requester.stream); err != nil {
			return false, err
		}
	}
}

// ResultOf is Result of a request of an import, which c is the end of.
func (r *Request) ResultOf(c *Cancellation) (done bool, err error) {
	done, err = r.Result()
	return r.canceledOr(c, done, err)
}

// canceledOr returns the result of a message that was canceled, or the given one, which the caller has
// found before: so if that is of a message up to Cancellation.acked, it came before the cancellation.
func (r *Request) canceledOr(c *Cancellation, was bool, why error) (done bool, err error) {
	done, err = was, why
	if c == nil || !c.canceled.Load() {
		return done, err
	}
	switch seq := r.Seq(); {
	case seq == 0:
	case seq > c.acked:
		return true, unknown(ErrEnded)
	case !done: // an earlier get, which is canceled, has no answer
		return true, r.requester.faultOf(seq)
	}
	return done, err
}

// Cancellation is the end of an import for its requests, see [Requester.CancelRequests].
type Cancellation struct {
	canceled atomic.Bool // Set under rmu, after acked.
	acked    uint64      // The last message that was acknowledged before.
}

// CancelRequests ends all requests of an import that has ended, with [ErrEnded], whether the exporter
// answers or not. A goroutine that is just running an operation notices at once, and ends it. ended is
// the import's flag. It is already set, and all the import's requests carry it. When a request is over,
// its memory is not used any more. Messages that are acknowledged later have an
// unknown outcome all the same, so that a request's result never changes.
func (rq *Requester) CancelRequests(handle uint32, ended *atomic.Bool, c *Cancellation) {
	rq.backlog.cancel(ended)
	rq.Cancel(handle) // also what was queued since the first call, until ended was set
	rq.rmu.Lock()     // the receiver stores no payload and no acknowledgement
	rq.fetches.mu.Lock()
	for _, f := range rq.fetches.list {
		if f.handle != handle || f.op != 0 {
			continue
		}
		f.dst, f.storeErr = nil, ErrEnded // a synchronous get may be answered before it notices
		if rq.fetches.arriving == f {
			rq.rx.discardRest()
		}
		f.canceled.Store(true)
	}
	rq.fetches.mu.Unlock()
	if rq.State() != shmlayout.ConnReleased { // else all messages have their result
		c.acked = rq.ackedSeq.Load()
		c.canceled.Store(true)
	}
	rq.rmu.Unlock()
	rq.fetches.event.Advance() // what is canceled overlaps with nothing
	rq.ackEvent.Advance()
	rq.e.sleepers.Wake()
}

// deferredOp is an asynchronous operation that was not begun at once: one on mapped memory behind
// messages of the stream, a long copy, or an update behind a get that reads the same bytes.
type deferredOp struct {
	run    func(context.Context, *deferredOp) error // nil for a copy.
	copyOp copyOp
	// It may have to wait. Guarded by the backlog's mu once it is listed.
	mayWait bool
	ended   *atomic.Bool // The import's, as [Requester.await] has it.
	notify  bool         // A credit was taken, and is not returned unless the operation is run.
	// The message to be acknowledged, if it is on the stream.
	seq  uint64
	err  error
	done atomic.Bool // seq and err are set before.

	// See [Request.StoreWhenDone]. Guarded by the backlog's mu.
	doneWord  *atomic.Uint64
	doneValue uint64
}

// storeDone tells code outside of Go that the operation is over, if that is so and there is nothing
// more to say of it. The caller holds the backlog's mu.
func (d *deferredOp) storeDone() {
	if d.doneWord != nil && d.done.Load() && d.err == nil && d.seq == 0 {
		d.doneWord.Store(d.doneValue)
	}
}

// StoreWhenDone stores a value in a word when the operation has succeeded, which may be now. It does
// so only for an operation on mapped memory: the result of one on the stream depends on words that
// change without a call.
func (r *Request) StoreWhenDone(word *atomic.Uint64, value uint64) {
	switch d := r.deferred; {
	case d != nil:
		b := &r.requester.backlog
		b.mu.Lock()
		d.doneWord, d.doneValue = word, value
		d.storeDone()
		b.mu.Unlock()
	case r.fetch == nil && r.seq == 0: // done within the call that began it
		word.Store(value)
	}
}

// backlog holds the deferred operations of one link in order. While there are any, later operations
// on the link are deferred too, so the order between two processes holds over both paths. A
// goroutine runs them and ends when none is left. While all of them are copies, waiters run them
// instead (see async_copies.go). There is one worker at a time.
type backlog struct {
	rq            *Requester
	mu            sync.Mutex
	ops           []*deferredOp
	mayWaitCount  int  // Operations that may have to wait.
	hasWorker     bool // A goroutine or a waiter runs the operations.
	closed        bool
	deferredTotal atomic.Uint64 // Operations deferred in all.
	doneTotal     atomic.Uint64 // Operations done in all.
	// The difference, separately: every message loads it.
	pending atomic.Int32

	// In deferredCopies, left to waiters. Guarded by deferredCopies.mu.
	inCopyList bool
	// When it was listed or last worked at, in [unix.Monotonic] time. Guarded by deferredCopies.mu.
	idleSince int64
}

func (b *backlog) busy() bool { return b.pending.Load() != 0 }

// deferOp defers an operation once there is room. ended is as in [Requester.await].
func (b *backlog) deferOp(ctx context.Context, ended *atomic.Bool, d *deferredOp) (Request, error) {
	rq := b.rq
	b.mu.Lock()
	for len(b.ops) >= maxQueue {
		tick := rq.ackEvent.Load()
		b.mu.Unlock()
		if err := rq.waiterError(ended); err != nil {
			return Request{}, err
		}
		if err := rq.e.Wait(ctx, wait.Cond{Word: rq.ackEvent.Word(), Old: tick, Failed: &rq.failed, Ended: ended, LocalOnly: true}); err != nil {
			return Request{}, err
		}
		b.mu.Lock()
	}
	switch {
	case b.closed:
		b.mu.Unlock()
		return Request{}, rq.err()
	case ended != nil && ended.Load(): // cancel does not come again
		b.mu.Unlock()
		return Request{}, ErrEnded
	}
	d.ended = ended
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
		b.startWorkerLocked()
	}
	b.mu.Unlock()
	if left {
		b.leaveToWaiters(false)
	}
	return Request{requester: rq, deferred: d}, nil
}

// startWorkerLocked starts a goroutine that runs the backlog unless it has a worker. The caller
// holds mu. A link that has ended has a worker until its backlog is empty, so the
// engine is not yet waiting for its goroutines.
func (b *backlog) startWorkerLocked() {
	if !b.hasWorker && len(b.ops) > 0 {
		b.hasWorker = true
		b.rq.e.wg.Go(b.run)
	}
}

// startWorker starts a goroutine for operations that were left to waiters.
func (b *backlog) startWorker() {
	b.mu.Lock()
	b.startWorkerLocked()
	b.mu.Unlock()
}

// run runs the deferred operations as their worker. After the link's end each operation fails.
func (b *backlog) run() {
	rq := b.rq
	b.mu.Lock()
	for len(b.ops) > 0 {
		d := b.ops[0]
		if d.done.Load() { // canceled
			b.opDone(d)
			continue
		}
		b.mu.Unlock()
		d.err = rq.err()
		switch {
		case d.err != nil && d.copyOp.copied == 0:
			rq.untakeCredit(d.copyOp.notify || d.notify)
		case d.run != nil:
			d.err = d.run(context.Background(), d)
		default:
			d.err = d.copyOp.run(context.Background())
		}
		b.mu.Lock()
		b.opDone(d)
	}
	b.hasWorker = false
	b.mu.Unlock()
	rq.e.deferredCopies.drop(b)
}

// opDone removes the first operation, which is complete. The caller holds mu and is the worker.
func (b *backlog) opDone(d *deferredOp) {
	d.done.Store(true)
	d.storeDone()
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
	b.rq.ackEvent.Advance()
	b.rq.e.sleepers.Wake()
}

// cancel completes the operations of an import that has ended, but for one that a worker is running.
// They stay listed until the worker or a waiter comes to them.
func (b *backlog) cancel(ended *atomic.Bool) {
	// Without the lock busy could miss an operation: deferOp has found that the import has not ended,
	// and counts the operation later.
	b.mu.Lock()
	for i, d := range b.ops {
		if d.ended != ended || d.done.Load() || i == 0 && b.hasWorker {
			continue
		}
		d.err = ErrEnded
		if d.copyOp.copied > 0 && !d.copyOp.get {
			d.err = unknown(ErrEnded)
		}
		b.rq.untakeCredit(d.copyOp.notify || d.notify)
		d.done.Store(true)
	}
	b.mu.Unlock()
}

// wait waits until the operations deferred before this call are done. It is one load if there are
// none. ended is as in [Requester.await].
func (b *backlog) wait(ctx context.Context, ended *atomic.Bool) error {
	if !b.busy() {
		return nil
	}
	return b.waitSlow(ctx, ended)
}

func (b *backlog) waitSlow(ctx context.Context, ended *atomic.Bool) error {
	upTo := b.deferredTotal.Load()
	return b.rq.await(ctx, ended, &b.rq.ackEvent, nil, func() bool { return b.doneTotal.Load() >= upTo })
}

// close lets no operation be deferred any more and makes those without a worker fail.
func (b *backlog) close() {
	b.mu.Lock()
	b.closed = true
	idle := !b.hasWorker
	b.hasWorker = true
	b.mu.Unlock()
	if idle {
		b.run()
	}
}

// leaveToWaiters leaves the backlog to waiters. It is called without its lock, after adding an
// operation or after working at it (worked).
func (b *backlog) leaveToWaiters(worked bool) {
	// A goroutine that sleeps after the second check finds b listed, see startWorkers. The first
	// check avoids listing where a goroutine sleeps anyway.
	if e := b.rq.e; e.sleepers.Asleep() || !e.deferredCopies.add(b, worked) || e.sleepers.Asleep() {
		b.startWorker()
	}
}

// copyWhileWaiting copies pieces until l holds, and returns the number of bytes. Engine.Close waits
// for it as for a goroutine.
func (b *backlog) copyWhileWaiting(ctx context.Context, l *wait.Cond, most int) (n int) {
	e := b.rq.e
	b.mu.Lock()
	if b.hasWorker || b.closed {
		b.mu.Unlock()
		return 0
	}
	b.hasWorker = true
	e.wg.Add(1) // as in startWorkerLocked
	b.mu.Unlock()
	defer e.wg.Done()
	for found := false; n < most && !found && ctx.Err() == nil; {
		d := b.firstCopy()
		if d == nil {
			break
		}
		n += b.copyStep(d)
		// Until is the caller's code, which may end the process or panic: do not call it as the
		// backlog's worker.
		found = l.Until != nil || l.Done()
	}
	b.yieldWorker()
	return n
}

// firstCopy returns the first operation if a waiter may run it, or nil.
func (b *backlog) firstCopy() *deferredOp {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ops) == 0 || b.closed || b.mayWaitCount > 0 {
		return nil
	}
	d := b.ops[0]
	if !d.done.Load() && !d.copyOp.ready() {
		d.mayWait = true
		b.mayWaitCount++
		return nil
	}
	return d
}

// copyStep copies a piece of d as the backlog's worker, and returns its length.
func (b *backlog) copyStep(d *deferredOp) (n int) {
	if d.done.Load() { // canceled
		b.mu.Lock()
		b.opDone(d)
		b.mu.Unlock()
		return 1 // it is progress, and no copy
	}
	had := d.copyOp.copied
	over, err := d.copyOp.step()
	if n = d.copyOp.copied - had; over {
		d.err = err
		b.mu.Lock()
		b.opDone(d)
		b.mu.Unlock()
	}
	return n
}

// yieldWorker ends a waiter's role as the backlog's worker.
func (b *backlog) yieldWorker() {
	b.mu.Lock()
	left, all := false, len(b.ops) == 0
	switch b.hasWorker = false; {
	case all:
	case b.closed:
		b.hasWorker = true
		b.mu.Unlock()
		b.run()
		return
	case b.mayWaitCount > 0:
		b.startWorkerLocked()
	default:
		left = true
	}
	b.mu.Unlock()
	switch {
	case all:
		b.rq.e.deferredCopies.drop(b)
	case left:
		b.leaveToWaiters(true)
	}
}
