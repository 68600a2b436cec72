package link

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// On loopback a raw call that writes 256 KiB takes 23 µs where four of 64 KiB take 40. So who has long messages under way, and waits for one of them
// before it begins the next, has those that it begins meanwhile written together: as one call's worth, or when it waits, or by the
// guard, within a rearmTick. As long as enough is on its way the far end does not notice. A link that no waiter has left at
// rest lately has a sender who does not come back soon: there each message is written at once, and where somebody sleeps, too.
const coalesceInFlight = 128 << 10 // on the way, and not acknowledged, and two messages

// Both ways at once each end receives between two sends, and finds all that it has sent acknowledged: so little is on its way, and each message,
// and its acknowledgement, would have calls of its own. There this many bytes, or messages, are gathered, whatever is on its way.
const (
	coalesceBidirectional = 1 << 20
	coalesceMessages      = 8
)

// coalesceBytes is how many bytes of messages of size are gathered: a chunk's, or those of as many messages as any call may write, if that is more. A longer
// message goes by itself.
func coalesceBytes(size uint64) uint64 {
	if size > chunk {
		return chunk
	}
	return max(chunk, minPartsPerCall*size)
}

// ackStride is how many bytes of messages of size share an acknowledgement, where there are more of
// them: what it costs both ends is small beside that. Two messages of 256 KiB do; a longer one has one by itself.
func ackStride(size uint64) uint64 {
	if size > chunk {
		return chunk
	}
	return max(chunk, 2*size)
}

// canShareAck says whether so much is on its way with a message of size that its acknowledgement need not come by itself: those before
// it make one without it. It says nothing of what follows, and if that is nothing the far end looks for it a few times in vain.
// tmu is held.
func (rq *Requester) canShareAck(size int) bool {
	return size > maxInline && size <= chunk && rq.inFlight.after(rq.ackedSeq.Load())+uint64(size) >= 2*ackStride(uint64(size))
}

// shouldCoalesce says whether a message of size bytes that was just queued is left to those that follow; tmu is held. The guard looks for
// what is gathered after it has let go of a link, and whenever a waiter or sender passes by before: who finds it guarded here, with the message queued, is seen there.
func (rq *Requester) shouldCoalesce(size int) bool {
	n, most := uint64(size), coalesceBytes(uint64(size))
	both := rq.e.bulkActivity.justDrained()
	if both {
		most = max(most, min(coalesceBidirectional, coalesceMessages*n))
	}
	switch {
	case rq.tx.checksum: // each of its frames takes a call
	case uint64(rq.queuedOps.Load())*n >= most: // those that wait with it are likely to be as long
	case !rq.onWatchdog.Load() || rq.e.sleepers.Asleep():
	case !both && rq.inFlight.after(rq.ackedSeq.Load()) < max(coalesceInFlight, 2*n):
	default:
		return rq.e.addToBulkBatch(rq) && rq.onWatchdog.Load()
	}
	return false
}

// inFlightBytes is what was written of the last long asynchronous messages; with tmu.
type inFlightBytes struct {
	recent [16]struct {
		seq uint64
		sum uint64 // of bytes up to it
	}
	n   uint64 // of messages
	sum uint64
}

func (f *inFlightBytes) add(seq uint64, size int) {
	f.sum += uint64(size)
	at := &f.recent[f.n%uint64(len(f.recent))]
	at.seq, at.sum = seq, f.sum
	f.n++
}

// after is how many bytes there are of messages after acked, of the last ones at least.
func (f *inFlightBytes) after(acked uint64) (size uint64) {
	for k := range min(f.n, uint64(len(f.recent))) {
		at := &f.recent[(f.n-1-k)%uint64(len(f.recent))]
		if at.seq <= acked {
			return f.sum - at.sum
		}
		if k+1 == f.n { // the first of all
			return f.sum
		}
		size = f.sum - at.sum
	}
	return size
}

// A short asynchronous message is left to whoever waits next in this process, and if nobody does, to the
// background after a moment. To wake the background's thread at once for the first of a burst takes the
// sender's processor from it while that thread writes: up to 0.47 µs a message in bursts of 64, 0.18 without.
const batchDelay = 20 * time.Microsecond

// batch is the links that have such messages.
type batch struct {
	// pending says that there are any, of either kind. It is stored with mu; who looks without it and misses it leaves them to
	// the timer, which is set before mu is free, or to the guard.
	pending atomic.Bool

	mu         sync.Mutex
	requesters []*Requester
	spare      []*Requester  // memory for the next ones
	bulk       [4]*Requester // with messages that are gathered, see send_coalesce.go
	bulkCount  int
	timer      *unix.Timer // nil before the first message, and if there can be none
	closed     bool
}

// batchTimerID is that of the timer's events: streams are numbered from 1.
const batchTimerID = 0

// addToBatch leaves o's messages for a moment, and says whether somebody will come for them.
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

// startBatchTimer is with the batch's lock.
func (e *Engine) startBatchTimer() (ok bool) {
	var err error
	e.batch.timer, err = newTimer(e.ep, batchTimerID)
	return err == nil
}

// addToBulkBatch leaves o's long messages to who waits next, and says whether it could.
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

// flush writes what was left, and says whether any of it is own's, and whether there were short ones, whose answers nobody may
// listen for. Whoever adds later than it takes the list sets the timer again.
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
		if rq.inboxReady.Load() { // else somebody else has, who may have the lock for long
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

// batchTimerExpired serves the timer's event. The descriptor is armed for the next one last: until then no other
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
