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
	maxRings  = 4 // how many links' rings are watched
	ringLooks = 8 // looks at each ring that are worth one of a wait's looks

	// maxSpurious is for a ring that rouses, or has notes, for nothing: after so many
	// times since the last handler its link is left to its bell. An importer could
	// otherwise keep this process awake by plain stores.
	maxSpurious = 16

	// maxRefusals is how often polling begins anew where its thread cannot sleep: the
	// other goroutines may be about to.
	maxRefusals = 3
)

// ringPoller is the rings that the goroutine of the notifications polls for a while
// after each notification, as waits do for words, and then sleeps on: the next one
// is there without a bell, and without another thread or goroutine. Only that
// goroutine uses it.
type ringPoller struct {
	slots  [maxRings]ringSlot
	n      int
	budget wait.Budget

	procs      wait.SpareProcs
	words      unix.WordSet
	idleRounds uint32 // how often polling has found nothing for its time
	refusals   int    // how often in a row it could not sleep
}

// ringSlot is a link in a watch.
type ringSlot struct {
	responder *Responder
	head      uint32         // notes found in its ring
	stamp     *atomic.Uint32 // of the next one
	lastUsed  uint32         // rests, when its last handler ran
	spurious  int            // see patience
}

// moveTo moves on to the note after the first head ones.
func (s *ringSlot) moveTo(head uint32) { s.head, s.stamp = head, s.responder.pages.Ring.Stamp(head) }

func (s *ringSlot) ready() bool { return s.stamp.Load() == s.head+1 }

// add has the ring of in watched, or says that there is none or no seat. The
// importer does not ring from here on, what it has put before is found.
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

// leastRecent is the seat that was used longest ago, if that was before the last rest: links
// that are busy at the same time do not drive one another out.
func (w *ringPoller) leastRecent() int {
	at := -1
	for i := range w.n {
		if s := &w.slots[i]; s.lastUsed != w.idleRounds && (at < 0 || w.idleRounds-s.lastUsed > w.idleRounds-w.slots[at].lastUsed) {
			at = i
		}
	}
	return at
}

// poll runs the handlers of what comes until something is posted, or the time is up:
// then it says that it is quiet.
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

// enqueue puts the links whose rings have a note behind those that wait for their
// turn, among which whoever sends without end would be before them for ever. The
// queue's lock is held.
func (w *ringPoller) enqueue(q *dispatcher) {
	for i := range w.slots[:w.n] {
		s := &w.slots[i]
		if !s.ready() {
			continue
		}
		s.moveTo(s.head + 1) // one that cannot be run yet must not be found for ever
		if s.responder.inJobQueue.CompareAndSwap(false, true) {
			q.jobs = append(q.jobs, job{responder: s.responder})
		}
	}
}

// serve runs the handler of the note that is there, if it is its turn.
func (w *ringPoller) serve(q *dispatcher, s *ringSlot) {
	n, head, more, ok := s.responder.nextPolled()
	if ok {
		runningHandlers.Add(1)
		s.responder.runHandler(n)
		runningHandlers.Add(-1)
		s.lastUsed, s.spurious, w.refusals = w.idleRounds, 0, 0
	} else {
		s.spurious++
		if int32(head-s.head) <= 0 {
			head = s.head + 1 // one that cannot be run yet must not be found for ever
		}
	}
	s.moveTo(head)
	if more {
		q.enqueue(s.responder)
	}
}

// sleep sleeps on the rings until a note comes or something is posted, and says
// whether it could: else the caller is to end the watch, or poll.
func (w *ringPoller) sleep(q *dispatcher) bool {
	besides := int(sleepingPollers.Add(1)) - 1
	defer sleepingPollers.Add(-1)
	if q.e.polling.Load() {
		besides-- // it ends soon; one that has only begun to look, plainly, counts as who computes
	}
	if !unix.CanSleepOnWords() || !w.procs.Available(besides) {
		return false
	}
	w.words.Clear()
	w.words.Add(&q.posted, 0)
	note := false
	for i := range w.slots[:w.n] {
		s := &w.slots[i]
		s.responder.pages.Back.Awake().Store(shmlayout.Sleeps) // before the look, see shmlayout.Exporter.Awake
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

// sleepingPollers counts the watches of this program that sleep, or are about to.
var sleepingPollers atomic.Int32

// countSpurious counts a sleep that ended without a note for the ring that ended it, if that
// is known, or else whose word has changed.
func (w *ringPoller) countSpurious(at int) {
	for i := range w.slots[:w.n] {
		s := &w.slots[i]
		if !s.ready() && (i == at || at < 0 && w.words.Moved(i+1)) {
			s.spurious++
		}
	}
}

// prune leaves links that have ended, or rouse in vain.
func (w *ringPoller) prune(q *dispatcher) {
	for i := w.n - 1; i >= 0; i-- {
		if s := &w.slots[i]; s.spurious > maxSpurious || s.responder.failed.Load() {
			w.release(q, i)
		}
	}
}

// release leaves a link to its bell: from here on the importer rings, and what came
// before is queued.
func (w *ringPoller) release(q *dispatcher, at int) {
	rs := w.slots[at].responder
	rs.inRingPoller.Store(false)
	rs.notifyMu.Lock()
	rs.pages.Back.Head().Store(rs.ringHead)      // before it matters,
	rs.pages.Back.Awake().Store(shmlayout.Rings) // and both before the look, see shmlayout.Exporter.Awake
	_, there, err := rs.pages.Ring.Peek(rs.ringHead)
	there = there || len(rs.notifications) > 0 // what was taken out of the ring for a closed import
	rs.notifyMu.Unlock()
	w.n--
	w.slots[at] = w.slots[w.n]
	w.slots[w.n] = ringSlot{}
	if there || err != nil {
		q.enqueue(rs)
	}
}

// releaseAll leaves all links.
func (w *ringPoller) releaseAll(q *dispatcher) {
	for w.n > 0 {
		w.release(q, w.n-1)
	}
	w.words.Clear()
	w.refusals = 0
}

// A notification that comes over a stream is often followed by another one, as over rings (see watch). So the goroutine that has run its handler
// looks at the sockets for the time of a wait, as waiters do, and runs the next one itself: else the background's thread would be woken by
// the message, and would wake that goroutine's. It gives way to whoever waits for anything else, who would have to sleep.
type notifyPoller struct {
	active      atomic.Bool // that goroutine is who looks; stored by it, as long as it has the engine's spinning
	yieldWanted atomic.Bool // somebody else wants to; a hint, as who misses it looks no longer than a wait does

	deadline int64       // it looks no longer, of [unix.Monotonic]; with the engine's spinning
	done     func() bool // something is posted, or somebody wants to look, or the time is up
}

// maxNotifyPoll is for a link that brings something all the time, and no notification: credits wait for the end.
const maxNotifyPoll = 200 * time.Microsecond

func (o *notifyPoller) init(posted *atomic.Uint32) {
	o.done = func() bool {
		return posted.Load() != 0 || o.yieldWanted.Load() || unix.Monotonic() >= o.deadline
	}
}

// Looks that the goroutine of the notifications has to give way. One of its own may be a call that receives a lot, or a yield.
const yieldPolls = 64

// acquirePoller has the caller be the one who looks, and says whether it is.
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
			break // somebody else was first
		}
	}
	return false
}

// pollAfterHandler looks until something is posted, which is seen or was posted after the last look, or somebody else wants to, or the time is up.
func (e *Engine) pollAfterHandler() {
	if e.sleepers.Asleep() { // the handler may have woken somebody, who is next on this processor, and may wait for more
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
