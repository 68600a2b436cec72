package link

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// A long copy that was begun asynchronously is left to whoever waits next in this process, who would have nothing to do but look. A
// goroutine that copies at once is a thread more, which takes a processor of those on which both ends look: of 128 KiB both ways a tenth to
// a quarter moved that way of what does now. Where somebody sleeps, and where nobody waits within minHold or maxHold, a goroutine has to be at it.
//
// To set the timer takes as long as many a copy, if it is its processor's next, so where waiters come it is put off only when most of its time
// is over, and to twice as much. It takes with it what has been left for half of its time.
const (
	minHold = 200 * time.Microsecond
	maxHold = 800 * time.Microsecond
)

// startWorkerAfter is how often who has begun to wait before looks in vain until it has a goroutine come.
const startWorkerAfter = 64

// copiesTimerID is that of its timer's events. Those of links have low numbers.
const copiesTimerID = ^uint64(0)

// deferredCopies is the links that have such copies and nobody who works them off.
type deferredCopies struct {
	// pending says that there are any. It is stored with mu. Who leaves one stores it and then looks for sleepers; who goes to sleep is known to
	// and then loads it. Both are sequentially consistent, so one of them sees the other.
	pending atomic.Bool

	mu         sync.Mutex // never with a backlog's
	requesters []*Requester
	timer      *unix.Timer // nil before the first copy, and if there can be none
	timerAt    int64       // when it goes off, of [unix.Monotonic]; 0 if it is not set
	holdTime   int64       // how long what is left is left
	closed     bool
}

// deferCopies has who waits work off o's backlog, without whose lock it is called by whom it was left, who has worked at it or has
// begun one more.
func (e *Engine) deferCopies(rq *Requester, worked bool) {
	// Who sleeps after the second look finds o listed, see start; with the first nothing is listed where somebody sleeps anyway.
	if e.sleepers.Asleep() || !e.deferredCopies.add(e.ep, rq, worked) || e.sleepers.Asleep() {
		rq.startWorker()
	}
}

// add lists o and says whether somebody will come.
func (c *deferredCopies) add(ep *unix.Epoll, rq *Requester, worked bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.timer == nil && !c.startTimer(ep) {
		return false
	}
	now := unix.Monotonic()
	if !rq.backlog.inCopyList {
		rq.backlog.inCopyList = true
		c.requesters = append(c.requesters, rq)
		c.pending.Store(true)
		worked = true
	}
	if worked {
		rq.backlog.idleSince = now
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

// setTimer has the timer go off when the link that nobody has worked at for longest has been left for span.
func (c *deferredCopies) setTimer(now int64) {
	if len(c.requesters) == 0 {
		c.timerAt = 0
		return
	}
	oldest := now
	for _, rq := range c.requesters {
		oldest = min(oldest, rq.backlog.idleSince)
	}
	c.timerAt = oldest + c.holdTime
	c.timer.Set(time.Duration(max(c.timerAt-now, 1)))
}

// startBatchTimer is with mu.
func (c *deferredCopies) startTimer(ep *unix.Epoll) (ok bool) {
	var err error
	c.timer, err = newTimer(ep, copiesTimerID)
	return err == nil
}

// drop takes o off the list, if it has nothing more. Who adds to its backlog counts before it lists.
func (c *deferredCopies) drop(rq *Requester) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rq.backlog.inCopyList && !rq.backlog.busy() {
		c.unlist(slices.Index(c.requesters, rq))
	}
}

func (c *deferredCopies) unlist(i int) {
	c.requesters[i].backlog.inCopyList = false
	c.requesters = slices.Delete(c.requesters, i, i+1)
	if len(c.requesters) == 0 {
		c.pending.Store(false)
	}
}

// copyWhileWaiting copies until l holds, the context ends, it has copied maxDeferredCopy bytes, or others are at it. Unless l holds, goroutines have the rest then,
// and the caller other things to see to. It waits for nothing: the caller may be in the middle of a message that others wait for.
func (c *deferredCopies) copyWhileWaiting(ctx context.Context, l *wait.Cond) (found bool) {
	most := maxDeferredCopy
	for i := 0; most > 0 && ctx.Err() == nil; {
		rq := c.at(i)
		if rq == nil {
			break
		}
		n := rq.copyBacklog(ctx, l, most)
		if l.Done() {
			return true
		}
		most -= n
		if n == 0 { // somebody else is at it, or has been
			i++
		}
	}
	c.startWorkers()
	return false
}

// at is the ith, or nil.
func (c *deferredCopies) at(i int) *Requester {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i >= len(c.requesters) {
		return nil
	}
	return c.requesters[i]
}

// copyBacklog works off pieces of o's backlog until l holds, and says how many bytes that were. The engine's end waits for it as for a goroutine.
func (rq *Requester) copyBacklog(ctx context.Context, l *wait.Cond, most int) (n int) {
	b := &rq.backlog
	b.mu.Lock()
	if b.hasWorker || b.closed {
		b.mu.Unlock()
		return 0
	}
	b.hasWorker = true
	rq.e.wg.Add(1) // as in employ
	b.mu.Unlock()
	defer rq.e.wg.Done()
	for found := false; n < most && !found && ctx.Err() == nil; {
		d := rq.firstCopy()
		if d == nil {
			break
		}
		n += rq.copyStep(d)
		// A condition is the caller's code, which may end the process or panic: not with the turn.
		found = l.Until != nil || l.Done()
	}
	rq.yieldWorker()
	return n
}

// firstCopy is the operation that who waits may go on with, if there is one.
func (rq *Requester) firstCopy() *deferredOp {
	b := &rq.backlog
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ops) == 0 || b.closed || b.mayWaitCount > 0 {
		return nil
	}
	d := b.ops[0]
	if !d.copyOp.ready() {
		d.mayWait = true
		b.mayWaitCount++
		return nil
	}
	return d
}

// copyStep makes a piece of d, with the turn, and says how long it was.
func (rq *Requester) copyStep(d *deferredOp) (n int) {
	had := d.copyOp.copied
	over, err := d.copyOp.step()
	if n = d.copyOp.copied - had; over {
		d.err = err
		rq.backlog.mu.Lock()
		rq.opDone(d)
		rq.backlog.mu.Unlock()
	}
	return n
}

// yieldWorker ends the turn of who waits.
func (rq *Requester) yieldWorker() {
	b := &rq.backlog
	b.mu.Lock()
	left, all := false, len(b.ops) == 0
	switch b.hasWorker = false; {
	case all:
	case b.closed:
		b.hasWorker = true
		b.mu.Unlock()
		rq.runBacklog()
		return
	case b.mayWaitCount > 0:
		rq.startWorkerLocked()
	default:
		left = true
	}
	b.mu.Unlock()
	switch {
	case all:
		rq.e.deferredCopies.drop(rq)
	case left:
		rq.e.deferCopies(rq, true)
	}
}

// startWorkers has goroutines work off all that was left. It is called by who goes to sleep, when others can know that, and by who looks on.
func (c *deferredCopies) startWorkers() {
	if !c.pending.Load() {
		return
	}
	c.mu.Lock()
	outs := c.requesters
	c.requesters = nil
	for _, rq := range outs {
		rq.backlog.inCopyList = false
	}
	c.pending.Store(false)
	c.mu.Unlock()
	for _, rq := range outs {
		rq.startWorker()
	}
}

// timerExpired serves the timer's event.
func (c *deferredCopies) timerExpired(ep *unix.Epoll) {
	var late []*Requester
	c.mu.Lock()
	now := unix.Monotonic()
	for i := len(c.requesters) - 1; i >= 0; i-- {
		if rq := c.requesters[i]; now-rq.backlog.idleSince >= c.holdTime/2 {
			late = append(late, rq)
			c.unlist(i)
		}
	}
	if !c.closed {
		c.timer.Set(0) // one that has gone off would raise another event at once
		c.setTimer(now)
		_ = ep.Arm(c.timer.Descriptor(), copiesTimerID, false)
	}
	c.mu.Unlock()
	for _, rq := range late {
		rq.startWorker()
	}
}

// close is called when there are no links any more.
func (c *deferredCopies) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.timer != nil {
		c.timer.Close()
	}
}

// inline is the longest asynchronous message that is copied at once. maxDeferredCopy is the longest that is left to who waits, and the most
// that is copied in one wait for something else: with more a goroutine may as well be at it meanwhile.
const (
	maxSyncCopy     = 64 << 10
	maxDeferredCopy = 4 << 20
)

// copyOp is a copy between the caller's memory and the exporter's that was put off. It is made in pieces, of which each may
// be another goroutine's, who has the backlog's turn.
type copyOp struct {
	m      *Mapped
	off    int
	mem    []byte // the caller's
	get    bool   // into it
	notify bool   // the exporter, with a credit that was taken

	copied   int    // how much of it is
	lastWord uint32 // of a get: its last word, which is read before all others
}

// SendAsync copies a short message at once, unless something that is still
// under way must come first.
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
	r, err := rq.deferOp(ctx, m.newCopyOp(copyOp{off: off, mem: src, notify: notify}))
	if err != nil {
		rq.untakeCredit(notify)
	}
	return r, err
}

// sendNow sends a short message. It does nothing, and fails with errMustWait, where
// the message has to wait for another one or for the exporter.
func (m *Mapped) sendNow(ctx context.Context, off int, src []byte, notify bool) error {
	switch {
	case m.Claims != nil:
		t, err := m.trySendRedirected(ctx, off, src)
		switch {
		case err == nil && notify:
			m.postNotification(off+len(src)-shm.WordSize, t.lastWord, t.lastWordGen)
		case err != errMustWait: //nolint:errorlint // nothing wraps it
			m.req.untakeCredit(notify && err != nil)
		}
		return err
	case notify:
		return m.sendNotify(ctx, off, src, nil)
	}
	return m.send(ctx, off, src, nil)
}

// sendRedirectedAsync sends a message to a redirectable export in its turn, out of memory that was
// lent for it.
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
	return rq.deferOp(ctx, m.newCopyOp(copyOp{off: off, mem: dst, get: true}))
}

func (m *Mapped) newCopyOp(c copyOp) *deferredOp {
	c.m = m
	return &deferredOp{copyOp: c, mayWait: m.Claims != nil || len(c.mem) > maxDeferredCopy || !m.req.nothingPending()}
}

// nothingBefore says whether an operation would have to wait for none before it.
func (m *Mapped) nothingBefore() bool {
	return !m.req.backlog.busy() && m.req.lastSeq.Load() == m.req.ackedSeq.Load()
}

// canRunNow says whether a request that is over at once would be so in its turn.
func (m *Mapped) canRunNow() bool { return !m.req.backlog.busy() && m.req.nothingPending() }

// nothingPending says that nothing of the stream is under way.
func (rq *Requester) nothingPending() bool {
	return rq.lastSeq.Load() == rq.ackedSeq.Load() && rq.fetchCount.Load() == 0
}

// ready says whether the next piece has to wait for nothing. What comes on the stream after this look is of another goroutine's
// call, between which and this one there is no order.
func (c *copyOp) ready() bool { return c.copied > 0 || c.m.req.nothingPending() }

// run is in a goroutine of the backlog's own.
func (c *copyOp) run(ctx context.Context) (err error) {
	m, rq := c.m, c.m.req
	if c.copied == 0 {
		if err = rq.waitAnsweredBefore(ctx, rq.lastSeq.Load()+1); err == nil {
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

// step makes the next piece, and says whether the copy is over. It waits for nothing: it is run, too, for who waits for something else, and
// may be in the middle of a message.
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
		// The memory is lent, and this is not the goroutine of the lender.
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

// store sends n bytes, and with the last ones what is to come after all.
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

// load gets n bytes. Who finds a flag in the last word finds all that was stored before it.
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
