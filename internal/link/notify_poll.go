package link

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
)

const (
	maxRings = 4 // Links whose rings are polled.
	// Looks at each ring that count as one poll of a wait.
	ringLooks = 8

	// maxSpurious bounds how often a ring may rouse, or have notifications, for nothing since its
	// last handler. Then its link is left to its bell. Otherwise an importer could keep this
	// process awake by plain stores.
	maxSpurious = 16

	// maxRefusals is how often polling starts again where the thread cannot sleep: the other
	// goroutines may be about to.
	maxRefusals = 3
)

// ringPoller polls rings for a while after each notification, as waits poll words, and then sleeps
// on them. The next notification is found without a bell and without another thread or goroutine.
// Only the dispatcher's goroutine uses it.
type ringPoller struct {
	slots  [maxRings]ringSlot
	n      int
	budget wait.Budget

	procs wait.SpareProcs
	words unix.WordSet
	// How often polling found nothing for its whole time.
	idleRounds uint32
	refusals   int // How often in a row it could not sleep.
}

// ringSlot is a polled link.
type ringSlot struct {
	responder *Responder
	head      uint32         // Notifications found in its ring.
	stamp     *atomic.Uint32 // Of the next one.
	lastUsed  uint32         // idleRounds when its last handler ran.
	spurious  int            // See maxSpurious.
}

// moveTo moves on to the notification after the first head ones.
func (s *ringSlot) moveTo(
	head uint32,
) {
	s.head, s.stamp = head, s.responder.pages.Ring.Stamp(head)
}

func (s *ringSlot) ready() bool { return s.stamp.Load() == s.head+1 }

// add polls the ring of rs from now on. It returns false if there is no ring or no free slot. The
// importer does not ring from here on; what it has put before is found.
func (w *ringPoller) add(q *dispatcher, rs *Responder) bool {
	if rs.pages == nil || rs.failed.Load() {
		return false
	}
	at := 0
	for at < w.n && w.slots[at].responder != rs {
		at++
	}
	if at == maxRings {
		if at = w.leastRecent(); at < 0 {
			return false
		}
		w.release(q, at)
		at = w.n
	}
	s := &w.slots[at]
	if at == w.n {
		w.n++
		*s = ringSlot{responder: rs}
		rs.inRingPoller.Store(true)
		rs.pages.Back.Awake().Store(shmlayout.Polls)
	}
	rs.notifyMu.Lock()
	s.moveTo(rs.ringHead)
	rs.notifyMu.Unlock()
	s.lastUsed, s.spurious = w.idleRounds, 0
	return true
}

// leastRecent returns the slot that was unused for longest, if it was unused for a whole round:
// links that are busy at the same time do not evict each other. It returns -1 if there is none.
func (w *ringPoller) leastRecent() int {
	at := -1
	for i := range w.n {
		if s := &w.slots[i]; s.lastUsed != w.idleRounds &&
			(at < 0 || w.idleRounds-s.lastUsed > w.idleRounds-w.slots[at].lastUsed) {
			at = i
		}
	}
	return at
}

// poll runs the handlers of what comes until something is posted or the time is over. quiet reports
// the latter.
func (w *ringPoller) poll(q *dispatcher) (quiet bool) {
	w.prune(q)
	sp := w.budget.Begin(false)
	defer sp.End()
	for w.n > 0 && q.posted.Load() == 0 {
		found := false
		for g := 0; g < ringLooks && !found; g++ {
			for i := range w.slots[:w.n] {
				if s := &w.slots[i]; s.ready() {
					found = true
					if w.serve(q, s); q.handlerBlocks != 0 {
						return false // the handler has left notifications blocked
					}
				}
			}
		}
		switch {
		case found:
			sp.Restart()
			w.prune(q)
		case !sp.Next(w.n):
			w.idleRounds++
			return true
		}
	}
	return false
}

// enqueue queues the links whose rings have a notification behind the waiting jobs. Otherwise an
// importer that sends without end would always precede them. The caller holds the dispatcher's
// lock.
func (w *ringPoller) enqueue(q *dispatcher) {
	for i := range w.slots[:w.n] {
		s := &w.slots[i]
		if !s.ready() {
			continue
		}
		s.moveTo(s.head + 1) // do not find one again that cannot run yet
		if s.responder.inJobQueue.CompareAndSwap(false, true) {
			q.jobs = append(q.jobs, job{responder: s.responder})
		}
	}
}

// serve runs the handler of the notification that is there, if it is the next one.
func (w *ringPoller) serve(q *dispatcher, s *ringSlot) {
	if !q.gate.enter() { // it stays where it is: a job ends this polling, and waits for the gate
		q.enqueue(s.responder)
		return
	}
	n, head, more, ok := s.responder.nextPolled()
	if ok {
		runningHandlers.Add(1)
		s.responder.runHandler(n)
		runningHandlers.Add(-1)
		s.lastUsed, s.spurious, w.refusals = w.idleRounds, 0, 0
	} else {
		s.spurious++
		if int32(head-s.head) <= 0 {
			head = s.head + 1 // do not find one again that cannot run yet
		}
	}
	q.gate.leave()
	s.moveTo(head)
	if more {
		q.enqueue(s.responder)
	}
}

// sleep sleeps on the rings until a notification comes or something is posted, and reports whether
// it could. Otherwise the caller should stop polling, or poll again.
func (w *ringPoller) sleep(q *dispatcher) bool {
	besides := int(sleepingPollers.Add(1)) - 1
	defer sleepingPollers.Add(-1)
	if q.e.polling.Load() {
		besides-- // a waiter that polls ends soon; one that makes plain looks counts as computing
	}
	if !unix.CanSleepOnWords() || !w.procs.Available(besides) {
		return false
	}
	w.words.Clear()
	w.words.Add(&q.posted, 0)
	note := false
	for i := range w.slots[:w.n] {
		s := &w.slots[i]
		// before the stamp is loaded; see shmlayout.Exporter.Awake
		s.responder.pages.Back.Awake().Store(shmlayout.Sleeps)
		v := s.stamp.Load()
		note = note || v == s.head+1
		w.words.Add(s.stamp, v)
	}
	var err error
	if !note {
		var which int
		if which, err = w.words.Sleep(); err == nil {
			w.countSpurious(which - 1)
		}
	}
	for i := range w.slots[:w.n] {
		w.slots[i].responder.pages.Back.Awake().Store(shmlayout.Polls)
	}
	if err != nil {
		return false
	}
	w.refusals = 0
	return true
}

// sleepingPollers counts the ring pollers of this program that sleep or are about to.
var sleepingPollers atomic.Int32

// countSpurious counts a sleep that ended without a notification for the ring that ended it, if
// that is known, or for all rings whose word has changed.
func (w *ringPoller) countSpurious(at int) {
	for i := range w.slots[:w.n] {
		s := &w.slots[i]
		if !s.ready() && (i == at || at < 0 && w.words.Moved(i+1)) {
			s.spurious++
		}
	}
}

// prune releases links that have ended or rouse spuriously.
func (w *ringPoller) prune(q *dispatcher) {
	for i := w.n - 1; i >= 0; i-- {
		if s := &w.slots[i]; s.spurious > maxSpurious || s.responder.failed.Load() {
			w.release(q, i)
		}
	}
}

// release leaves a link to its bell: from here on the importer rings, and what came before is
// queued.
func (w *ringPoller) release(q *dispatcher, at int) {
	rs := w.slots[at].responder
	rs.inRingPoller.Store(false)
	rs.notifyMu.Lock()
	rs.pages.Back.Head().Store(rs.ringHead) // before it matters,
	// and both before the look, see shmlayout.Exporter.Awake
	rs.pages.Back.Awake().Store(shmlayout.Rings)
	_, there, err := rs.pages.Ring.Peek(rs.ringHead)
	there = there || len(rs.notifications) > 0 // taken out of the ring for a closed import
	rs.notifyMu.Unlock()
	w.n--
	w.slots[at] = w.slots[w.n]
	w.slots[w.n] = ringSlot{}
	if there || err != nil {
		q.enqueue(rs)
	}
}

// releaseAll releases all links.
func (w *ringPoller) releaseAll(q *dispatcher) {
	for w.n > 0 {
		w.release(q, w.n-1)
	}
	w.words.Clear()
	w.refusals = 0
}

// A notification over a stream is often followed by another one, as over rings (see ringPoller). So
// the dispatcher's goroutine polls the sockets for the time of a wait after it has run a handler,
// as waiters do, and runs the next handler itself. Otherwise the message would wake the background
// goroutine's thread, which would wake the dispatcher's. The dispatcher yields to waiters, which
// would have to sleep.
type notifyPoller struct {
	// The dispatcher's goroutine polls. Stored by it while it holds Engine.polling.
	active atomic.Bool
	// A waiter wants to poll. A hint: a dispatcher that misses it polls no longer than a wait does.
	yieldWanted atomic.Bool

	// End of polling, in [unix.Monotonic] time. Guarded by Engine.polling.
	deadline int64
	// Reports that a job is posted, a waiter wants to poll, or the time is over.
	done func() bool
}

// maxNotifyPoll is for a link that keeps bringing data but no notification: credits wait for the
// end of the poll.
const maxNotifyPoll = 200 * time.Microsecond

func (o *notifyPoller) init(posted *atomic.Uint32) {
	o.done = func() bool {
		return posted.Load() != 0 || o.yieldWanted.Load() || unix.Monotonic() >= o.deadline
	}
}

// yieldPolls is how often a waiter yields to let the dispatcher stop polling. One poll of the
// dispatcher may be a call that receives a lot, or a yield.
const yieldPolls = 64

// acquirePoller makes the caller the polling goroutine, and reports whether it is.
func (e *Engine) acquirePoller() bool {
	if e.polling.CompareAndSwap(false, true) {
		return true
	}
	o := &e.notifyPoller
	if !o.active.Load() {
		return false
	}
	o.yieldWanted.Store(true)
	for range yieldPolls {
		runtime.Gosched()
		if e.polling.CompareAndSwap(false, true) {
			return true
		}
		if !o.active.Load() {
			break // another waiter was first
		}
	}
	return false
}

// pollAfterHandler polls until a job is posted, a waiter wants to poll, or the time is over. A job
// posted after the last look is seen by the caller.
func (e *Engine) pollAfterHandler() {
	if e.sleepers.Asleep() { // let a goroutine run that the handler has woken; it may wait for more
		runtime.Gosched()
	}
	if !e.polling.CompareAndSwap(false, true) {
		return
	}
	o := &e.notifyPoller
	o.yieldWanted.Store(false)
	o.deadline = unix.Monotonic() + int64(maxNotifyPoll)
	o.active.Store(true)
	l := wait.Cond{Until: o.done, LocalOnly: true}
	e.spin(context.Background(), &l, nil)
	o.active.Store(false)
	e.polling.Store(false)
}
