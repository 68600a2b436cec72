package link

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// A short asynchronous message is left to whoever waits next in this process, and if nobody does, to the
// background after a moment. To wake the background's thread at once for the first of a burst takes the
// sender's processor from it while that thread writes: up to 0.47 µs a message in bursts of 64, 0.18 without.
const moment = 20 * time.Microsecond

// batch is the links that have such messages.
type batch struct {
	// some says that there are any, of either kind. It is stored with mu; who looks without it and misses it leaves them to
	// the timer, which is set before mu is free, or to the guard.
	some atomic.Bool

	mu     sync.Mutex
	outs   []*Out
	spare  []*Out  // memory for the next ones
	long   [4]*Out // with messages that are gathered, see gather.go
	longs  int
	timer  *unix.Timer // nil before the first message, and if there can be none
	closed bool
}

// timerID is that of the timer's events: streams are numbered from 1.
const timerID = 0

// add leaves o's messages for a moment, and says whether somebody will come for them.
func (e *Engine) add(o *Out) bool {
	b := &e.batch
	b.mu.Lock()
	defer b.mu.Unlock()
	if o.listed.Load() {
		return true
	}
	if b.closed || b.timer == nil && !e.startTimer() {
		return false
	}
	if len(b.outs) == 0 {
		b.some.Store(true)
		b.timer.Set(moment)
	}
	o.listed.Store(true)
	b.outs = append(b.outs, o)
	return true
}

// startTimer is with the batch's lock.
func (e *Engine) startTimer() (ok bool) {
	var err error
	e.batch.timer, err = newTimer(e.ep, timerID)
	return err == nil
}

// gather leaves o's long messages to who waits next, and says whether it could.
func (e *Engine) gather(o *Out) bool {
	b := &e.batch
	b.mu.Lock()
	defer b.mu.Unlock()
	if o.gathered.Load() {
		return true
	}
	if b.closed || b.longs == len(b.long) {
		return false
	}
	b.long[b.longs] = o
	b.longs++
	o.gathered.Store(true)
	b.some.Store(true)
	return true
}

// ungather forgets a link that has ended.
func (e *Engine) ungather(o *Out) {
	b := &e.batch
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.long[:b.longs], o); i >= 0 {
		b.longs--
		b.long[i], b.long[b.longs] = b.long[b.longs], nil
	}
}

// write writes what was left, and says whether any of it is own's, and whether there were short ones, whose answers nobody may
// listen for. Whoever adds later than it takes the list sets the timer again.
func (b *batch) write(own *stream) (any, short bool) {
	b.mu.Lock()
	outs, long, longs := b.outs, b.long, b.longs
	if longs > 0 {
		b.long, b.longs = [len(b.long)]*Out{}, 0
		for _, o := range long[:longs] {
			o.gathered.Store(false)
		}
	}
	b.some.Store(false)
	if len(outs) > 0 {
		b.outs, b.spare = b.spare, nil
		if !b.closed {
			b.timer.Set(0)
		}
		for _, o := range outs {
			o.listed.Store(false)
		}
	}
	b.mu.Unlock()
	for _, o := range long[:longs] {
		if o.due.Load() {
			o.tmu.Lock()
			left := o.offer()
			o.tmu.Unlock()
			if left {
				o.e.guard.hasten()
			}
			any = any || &o.stream == own
		}
	}
	if len(outs) == 0 {
		return any, false
	}
	for _, o := range outs {
		if o.due.Load() { // else somebody else has, who may have the lock for long
			o.advance(false)
		}
		o.hear()
		any = any || &o.stream == own
	}
	clear(outs)
	b.mu.Lock()
	b.spare = outs[:0]
	b.mu.Unlock()
	return any, true
}

// expired serves the timer's event. The descriptor is armed for the next one last: until then no other
// event of it comes.
func (e *Engine) expired() {
	b := &e.batch
	b.write(nil)
	b.mu.Lock()
	if !b.closed {
		_ = e.ep.Arm(b.timer.Descriptor(), timerID, false)
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
