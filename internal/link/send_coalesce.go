package link

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// A short asynchronous message is left to the next waiter in this process, and without one to the
// background goroutine after batchDelay. Waking the background goroutine's thread at once for the
// first message of a burst would take the sender's CPU while that thread writes: up to 0.47 µs a
// message in bursts of 64, instead of 0.18.
const batchDelay = 20 * time.Microsecond

// batch lists the links with such messages.
type batch struct {
	// pending reports that any link is listed, in either list. It is stored under mu. A waiter that
	// reads it without mu and misses a link leaves the link to the timer, which is set before mu is
	// free, or to the watchdog.
	pending atomic.Bool

	mu         sync.Mutex
	requesters []*Requester
	spare      []*Requester // Memory for the next list.
	// Links with coalesced long messages; see shouldCoalesce.
	bulk      [4]*Requester
	bulkCount int
	// nil before the first message, and if there can be none.
	timer  *unix.Timer
	closed bool
}

// batchTimerID identifies the timer's events: streams are numbered from 1.
const batchTimerID = 0

// addToBatch leaves rq's messages unwritten for batchDelay, and reports whether they will be
// written then.
func (e *Engine) addToBatch(rq *Requester) bool {
	b := &e.batch
	b.mu.Lock()
	defer b.mu.Unlock()
	if rq.inBatch.Load() {
		return true
	}
	if b.closed || b.timer == nil && !e.startBatchTimer() {
		return false
	}
	if len(b.requesters) == 0 {
		b.pending.Store(true)
		b.timer.Set(batchDelay)
	}
	rq.inBatch.Store(true)
	b.requesters = append(b.requesters, rq)
	return true
}

// startBatchTimer is called with batch.mu held.
func (e *Engine) startBatchTimer() (ok bool) {
	var err error
	e.batch.timer, err = newTimer(e.ep, batchTimerID)
	return err == nil
}

// addToBulkBatch leaves rq's long messages to the next waiter, and reports whether it could.
func (e *Engine) addToBulkBatch(rq *Requester) bool {
	b := &e.batch
	b.mu.Lock()
	defer b.mu.Unlock()
	if rq.inBulkBatch.Load() {
		return true
	}
	if b.closed || b.bulkCount == len(b.bulk) {
		return false
	}
	b.bulk[b.bulkCount] = rq
	b.bulkCount++
	rq.inBulkBatch.Store(true)
	b.pending.Store(true)
	return true
}

// dropFromBulkBatch forgets a link that has ended.
func (e *Engine) dropFromBulkBatch(rq *Requester) {
	b := &e.batch
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.bulk[:b.bulkCount], rq); i >= 0 {
		b.bulkCount--
		b.bulk[i], b.bulk[b.bulkCount] = b.bulk[b.bulkCount], nil
	}
}

// flush writes the messages of all listed links. any reports whether some were on own, and short
// whether there were short ones, for whose answers no goroutine may listen. A link that is listed
// after flush has taken the list sets the timer again.
func (b *batch) flush(own *stream) (any, short bool) {
	b.mu.Lock()
	outs, long, longs := b.requesters, b.bulk, b.bulkCount
	if longs > 0 {
		b.bulk, b.bulkCount = [len(b.bulk)]*Requester{}, 0
		for _, rq := range long[:longs] {
			rq.inBulkBatch.Store(false)
		}
	}
	b.pending.Store(false)
	if len(outs) > 0 {
		b.requesters, b.spare = b.spare, nil
		if !b.closed {
			b.timer.Set(0)
		}
		for _, rq := range outs {
			rq.inBatch.Store(false)
		}
	}
	b.mu.Unlock()
	for _, rq := range long[:longs] {
		if rq.inboxReady.Load() {
			rq.tmu.Lock()
			left := rq.tryFlush()
			rq.tmu.Unlock()
			if left {
				rq.e.watchdog.expedite()
			}
			any = any || &rq.stream == own
		}
	}
	if len(outs) == 0 {
		return any, false
	}
	for _, rq := range outs {
		// otherwise another goroutine writes, and may hold the lock for long
		if rq.inboxReady.Load() {
			rq.flushSome(false)
		}
		rq.armRead()
		any = any || &rq.stream == own
	}
	clear(outs)
	b.mu.Lock()
	b.spare = outs[:0]
	b.mu.Unlock()
	return any, true
}

// batchTimerExpired handles the timer's event. It arms the descriptor last: until then no other
// event of it comes.
func (e *Engine) batchTimerExpired() {
	b := &e.batch
	b.flush(nil)
	b.mu.Lock()
	if !b.closed {
		_ = e.ep.Arm(b.timer.Descriptor(), batchTimerID, false)
	}
	b.mu.Unlock()
}

// close is called when there are no links any more.
func (b *batch) close() {
	b.mu.Lock()
	b.closed = true
	if b.timer != nil {
		b.timer.Close()
	}
	b.mu.Unlock()
}
