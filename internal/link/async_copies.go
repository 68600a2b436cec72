package link

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// A long asynchronous copy is left to the next waiter in this process, which could do nothing but
// look. A goroutine that copied at once would be one more thread, and would take a CPU from the two
// ends that poll: with 128 KiB in both directions that moved a tenth to a quarter of the data per
// second. A worker goroutine is needed where a goroutine sleeps, and where no goroutine waits
// within minHold or maxHold.
//
// Setting the timer takes as long as many a copy, if it becomes its CPU's next one. So while
// waiters come the timer is postponed only when most of its time is over, and to twice the time.
// When it expires it starts workers for all links that were left for half of its time.
const (
	minHold = 200 * time.Microsecond
	maxHold = 800 * time.Microsecond
)

// A waiter that was already polling when a copy was deferred starts a worker after this many
// further polls.
const startWorkerAfter = 64

// copiesTimerID identifies the timer's events. Links have low identifiers.
const copiesTimerID = ^uint64(0)

// deferredCopies lists the links that have deferred copies and no worker.
type deferredCopies struct {
	// pending reports that any link is listed. It is stored under mu. The goroutine that lists a
	// link stores pending and then checks for sleepers. A goroutine that goes to sleep is counted
	// and then loads pending. Both are sequentially consistent, so one of them sees the other.
	pending atomic.Bool

	workQueue[*backlog] // Its lock is never held with a backlog's mu.
	// When the timer expires, in [unix.Monotonic] time; 0: it is not set.
	timerAt  int64
	holdTime int64 // How long copies are left to waiters.
}

// add lists b and reports whether a waiter or the timer will come for it.
func (c *deferredCopies) add(b *backlog, worked bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open() != nil {
		return false
	}
	now := unix.Monotonic()
	if !b.inCopyList {
		b.inCopyList = true
		c.list = append(c.list, b)
		c.pending.Store(true)
		worked = true
	}
	if worked {
		b.idleSince = now
	}
	switch {
	case c.timerAt == 0:
		c.holdTime = int64(minHold)
		c.setTimer(now)
	case worked && c.timerAt-now < c.holdTime/4:
		c.holdTime = min(2*c.holdTime, int64(maxHold))
		c.setTimer(now)
	}
	return true
}

// setTimer makes the timer expire when the link idle for longest has been left for holdTime.
func (c *deferredCopies) setTimer(now int64) {
	if len(c.list) == 0 {
		c.timerAt = 0
		return
	}
	oldest := now
	for _, b := range c.list {
		oldest = min(oldest, b.idleSince)
	}
	c.timerAt = oldest + c.holdTime
	c.timer.Set(time.Duration(max(c.timerAt-now, 1)))
}

// drop removes b from the list if it is empty. A new operation is counted before it is listed.
func (c *deferredCopies) drop(b *backlog) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.inCopyList && !b.busy() {
		c.unlist(slices.Index(c.list, b))
	}
}

func (c *deferredCopies) unlist(i int) {
	c.list[i].inCopyList = false
	c.list = slices.Delete(c.list, i, i+1)
	if len(c.list) == 0 {
		c.pending.Store(false)
	}
}

// copyWhileWaiting copies until l holds, the context ends, it has copied maxDeferredCopy bytes, or
// only backlogs with other workers are left. Unless l holds, it then starts goroutines for the
// rest, because the caller has other work. It never waits: the caller may be in the middle of a
// message that others wait for.
func (c *deferredCopies) copyWhileWaiting(ctx context.Context, l *wait.Cond) (found bool) {
	most := maxDeferredCopy
	for i := 0; most > 0 && ctx.Err() == nil; {
		b := c.at(i)
		if b == nil {
			break
		}
		n := b.copyWhileWaiting(ctx, l, most)
		if l.Done() {
			return true
		}
		most -= n
		if n == 0 { // it has, or had, another worker
			i++
		}
	}
	c.startWorkers()
	return false
}

// at returns the i-th listed backlog, or nil.
func (c *deferredCopies) at(i int) *backlog {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i >= len(c.list) {
		return nil
	}
	return c.list[i]
}

// startWorkers starts goroutines for all listed links. A goroutine that goes to sleep calls it once
// it is counted, and so does a waiter that polls on.
func (c *deferredCopies) startWorkers() {
	if !c.pending.Load() {
		return
	}
	c.mu.Lock()
	all := c.list
	c.list = nil
	for _, b := range all {
		b.inCopyList = false
	}
	c.pending.Store(false)
	c.mu.Unlock()
	for _, b := range all {
		b.startWorker()
	}
}

// timerExpired handles the timer's event.
func (c *deferredCopies) timerExpired() {
	var late []*backlog
	c.mu.Lock()
	now := unix.Monotonic()
	for i := len(c.list) - 1; i >= 0; i-- {
		if b := c.list[i]; now-b.idleSince >= c.holdTime/2 {
			late = append(late, b)
			c.unlist(i)
		}
	}
	if !c.closed {
		c.timer.Set(0) // an expired timer would raise another event at once
		c.setTimer(now)
		c.rearm()
	}
	c.mu.Unlock()
	for _, b := range late {
		b.startWorker()
	}
}

// maxSyncCopy is the longest asynchronous message that is copied at once. maxDeferredCopy is the
// longest that is left to waiters, and the most that is copied in one wait for something else: a
// goroutine may as well copy more meanwhile.
const (
	maxSyncCopy     = 64 << 10
	maxDeferredCopy = 4 << 20
)

// copyOp is a deferred copy between the caller's memory and the exporter's. It is made in pieces.
// Each piece may be copied by another goroutine, the backlog's worker at that time.
type copyOp struct {
	m      *Mapped
	off    int
	mem    []byte // The caller's.
	get    bool   // It copies into mem.
	notify bool   // Notify the exporter; a credit was taken.

	copied   int    // Bytes copied.
	lastWord uint32 // Of a get: the last word, read before all others.
}

// SendAsync copies a short message at once unless an unfinished operation must come first.
func (m *Mapped) SendAsync(ctx context.Context, off int, src []byte, notify bool) (Request, error) {
	rq := m.req
	if notify {
		if err := rq.takeCredit(ctx, m.Ended); err != nil {
			return Request{}, err
		}
	}
	if len(src) <= maxSyncCopy && m.canRunNow() {
		err := m.sendNow(ctx, off, src, notify)
		if err != errMustWait { //nolint:errorlint // nothing wraps it
			return Request{requester: rq}, err
		}
	}
	r, err := rq.backlog.deferOp(ctx, m.Ended, m.newCopyOp(copyOp{off: off, mem: src, notify: notify}))
	if err != nil {
		rq.untakeCredit(notify)
	}
	return r, err
}

// sendNow sends a short message. It does nothing and returns errMustWait if the message has to wait
// for another one or for the exporter.
func (m *Mapped) sendNow(ctx context.Context, off int, src []byte, notify bool) error {
	switch {
	case m.Claims != nil:
		t, err := m.trySendRedirected(ctx, off, src)
		switch {
		case err == nil && notify:
			m.postNotification(off+len(src)-shm.WordSize, t.LastWord, t.LastWordGen)
		case err != errMustWait: //nolint:errorlint // nothing wraps it
			m.req.untakeCredit(notify && err != nil)
		}
		return err
	case notify:
		return m.sendNotify(ctx, off, src, nil)
	}
	return m.send(ctx, off, src, nil)
}

// sendRedirectedAsync sends a message to a redirectable export in its turn, from memory that was
// borrowed for it.
func (m *Mapped) sendRedirectedAsync(ctx context.Context, off int, src []byte, notify bool) error {
	if notify {
		return m.sendNotifyRedirected(ctx, off, src, nil, true)
	}
	_, err := m.sendRedirected(ctx, off, src, nil, false, true)
	return err
}

// GetAsync copies at once what is short and need not wait.
func (m *Mapped) GetAsync(ctx context.Context, off int, dst []byte) (Request, error) {
	rq := m.req
	if len(dst) <= maxSyncCopy && m.canRunNow() {
		return Request{requester: rq}, m.get(ctx, off, dst, false)
	}
	return rq.backlog.deferOp(ctx, m.Ended, m.newCopyOp(copyOp{off: off, mem: dst, get: true}))
}

func (m *Mapped) newCopyOp(c copyOp) *deferredOp {
	c.m = m
	return &deferredOp{copyOp: c, mayWait: m.Claims != nil || len(c.mem) > maxDeferredCopy || !m.req.nothingPending()}
}

// nothingBefore reports whether an operation need not wait for earlier ones.
func (m *Mapped) nothingBefore() bool {
	return !m.req.backlog.busy() && m.req.lastSeq.Load() == m.req.ackedSeq.Load()
}

// canRunNow reports whether a request that completes at once would do so in its order.
func (m *Mapped) canRunNow() bool { return !m.req.backlog.busy() && m.req.nothingPending() }

// ready reports whether the next piece need not wait. A message that enters the stream after this
// check belongs to another goroutine's call, which has no order with this one.
func (c *copyOp) ready() bool { return c.copied > 0 || c.m.req.nothingPending() }

// run copies on a goroutine of the backlog.
func (c *copyOp) run(ctx context.Context) (err error) {
	m, rq := c.m, c.m.req
	if c.copied == 0 {
		if err = rq.waitAnsweredBefore(ctx, m.Ended, rq.lastSeq.Load()+1); err == nil {
			err = m.waitStreamApplied(ctx)
		}
		switch {
		case err != nil:
			rq.untakeCredit(c.notify)
			return err
		case m.Claims != nil && !c.get:
			return m.sendRedirectedAsync(ctx, c.off, c.mem, c.notify)
		}
	}
	for over := false; !over; {
		over, err = c.step()
	}
	return err
}

// step copies the next piece, and reports whether the copy is complete. It never waits: a waiter
// for something else may run it, maybe in the middle of a message.
func (c *copyOp) step() (over bool, err error) {
	n := min(len(c.mem)-c.copied, shm.Piece)
	over = c.copied+n == len(c.mem)
	switch err = c.m.check(); {
	case err != nil:
		over = true
		if c.copied > 0 && !c.get {
			err = unknown(err)
		}
	default:
		// The memory is borrowed, and this is not the goroutine of its owner.
		if gerr := shm.Guard(func() {
			if c.get {
				err = c.load(n, over)
			} else {
				err = c.store(n, over)
			}
		}); gerr != nil {
			over, err = true, gerr
		}
	}
	if err != nil {
		c.m.req.untakeCredit(c.notify)
	}
	c.copied += n
	return over, err
}

// store sends n bytes; the last call sends the last word and the notification after all else.
func (c *copyOp) store(n int, last bool) error {
	m := c.m
	if c.copied == 0 && invariant.Enabled {
		m.traceSend(c.off, c.mem, nil)
	}
	dst, src := m.mem[c.off+c.copied:][:n], c.mem[c.copied:][:n]
	if !last {
		shm.Copy(dst, src)
		return nil
	}
	shm.Put(dst, src)
	if err := m.finishMessage(c.off, len(c.mem)); err != nil {
		return err
	}
	if c.notify {
		m.postNotification(c.off+len(c.mem)-shm.WordSize, lastWord(c.mem), 0)
	}
	return nil
}

// load gets n bytes. A reader that finds a flag in the last word finds all that was stored before
// it.
func (c *copyOp) load(n int, last bool) error {
	m := c.m
	if c.copied == 0 {
		if invariant.Enabled {
			m.trace("mapped get", c.off, len(c.mem))
		}
		c.lastWord = shm.Word(m.mem, c.off+len(c.mem)-shm.WordSize).Load()
	}
	dst, src := c.mem[c.copied:][:n], m.mem[c.off+c.copied:][:n]
	if !last {
		shm.Copy(dst, src)
		runtime.KeepAlive(m)
		return nil
	}
	shm.Copy(dst[:n-shm.WordSize], src[:n-shm.WordSize])
	shm.SetLastWord(dst, c.lastWord)
	if runtime.GOARCH != "amd64" {
		m.fence.Add(1) // as in Get
	}
	err := m.check()
	m.counters.Add2(shmlayout.Gets, 1, shmlayout.GetBytes, uint64(len(c.mem)))
	runtime.KeepAlive(m)
	return err
}
