package link

import (
	"slices"
	"sync/atomic"
	"time"
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

	workQueue[*Requester]
	// Links with coalesced long messages; see shouldCoalesce.
	bulk      [4]*Requester
	bulkCount int
}

// batchTimerID identifies the timer's events: streams are numbered from 1.
const batchTimerID = 0

// add leaves rq's messages unwritten for batchDelay, and reports whether they will be written then.
func (b *batch) add(rq *Requester) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if rq.inBatch.Load() {
		return true
	}
	if b.open() != nil {
		return false
	}
	if len(b.list) == 0 {
		b.pending.Store(true)
		b.timer.Set(batchDelay)
	}
	rq.inBatch.Store(true)
	b.list = append(b.list, rq)
	return true
}

// addBulk leaves rq's long messages to the next waiter, and reports whether it could.
func (b *batch) addBulk(rq *Requester) bool {
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

// dropBulk forgets a link that has ended.
func (b *batch) dropBulk(rq *Requester) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.bulk[:b.bulkCount], rq); i >= 0 {
		b.bulkCount--
		b.bulk[i], b.bulk[b.bulkCount] = b.bulk[b.bulkCount], nil
	}
}

// flush writes the messages of all listed links. any reports whether some were on own, and anyShort
// whether there were short ones, for whose answers no goroutine may listen. A link that is listed
// after flush has taken the list sets the timer again.
func (b *batch) flush(own *stream) (any, anyShort bool) {
	b.mu.Lock()
	var short []*Requester
	long, longs := b.bulk, b.bulkCount
	if longs > 0 {
		b.bulk, b.bulkCount = [len(b.bulk)]*Requester{}, 0
		for _, rq := range long[:longs] {
			rq.inBulkBatch.Store(false)
		}
	}
	b.pending.Store(false)
	if len(b.list) > 0 {
		short = b.takeAll()
		b.stop()
		for _, rq := range short {
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
	if len(short) == 0 {
		return any, false
	}
	for _, rq := range short {
		// otherwise another goroutine writes, and may hold the lock for long
		if rq.inboxReady.Load() {
			rq.flushSome(false)
		}
		rq.armRead()
		any = any || &rq.stream == own
	}
	b.recycle(short)
	return any, true
}

// timerExpired handles the timer's event.
func (b *batch) timerExpired() {
	b.flush(nil)
	b.mu.Lock()
	b.rearm()
	b.mu.Unlock()
}
