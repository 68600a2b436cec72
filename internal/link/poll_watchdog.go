package link

import (
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// Arming a descriptor and disarming it around every wait costs two system calls a message. So a
// waiter that found its condition releases the links it polled unarmed. The next wait usually
// follows at once and takes them as they are. The watchdog arms unarmed links that no wait takes
// any more, so that the background goroutine serves them. Links are armed at once if a goroutine
// sleeps, if the waiter goes to sleep, or if waits are rare.
//
// The watchdog has no thread. Waiters that release links sweep those of other waiters, and postpone
// a timer. The timer expires when no waiter has come for a while. An expiry costs both ends of a
// stream 40 µs, because it wakes two or three threads of the runtime in turn. Setting the timer
// takes 15 to 30 µs on a virtual machine if it is the CPU's next one, which the CPU has every 4 ms
// anyway. So the timer first runs for rearmTick, and for twice as long whenever it is postponed, up
// to maxRearmTick. A link that is no longer polled is served late by at most the time it was polled
// before, or maxRearmTick.
const (
	rearmTick    = time.Millisecond
	maxRearmTick = 4 * time.Millisecond
	sweepEvery   = rearmTick / 2
	maxWaitGap   = 16 * time.Millisecond
)

// watchdogTimerID identifies the events of the watchdog's timer. Links have identifiers from 2 on.
const watchdogTimerID = 1

// rearmWatchdog arms unarmed links that waiters have left. Its timer is set while there are any.
type rearmWatchdog struct {
	// End of the last wait, in [unix.Monotonic] time. Guarded by Engine.polling.
	lastWaitEnd int64

	// Unarmed links. Its lock is held briefly, and while unwritten data is flushed. Links are armed,
	// and thereby served, without it.
	workQueue[*stream]
	interval time.Duration // For which the timer was set.

	// When a waiter last swept the list. Stored under mu.
	lastSweep atomic.Int64
	// From when the timer should be postponed. Stored under mu.
	renewAt atomic.Int64
	// Data was coalesced or left unwritten since the timer was set.
	urgent atomic.Bool
}

// frequentWaits records the end of a wait, and reports whether another wait ended shortly before.
func (g *rearmWatchdog) frequentWaits(now int64) bool {
	before := g.lastWaitEnd
	g.lastWaitEnd = now
	return now-before < int64(maxWaitGap)
}

// add puts s into the list.
func (g *rearmWatchdog) add(s *stream) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.list) == 0 {
		if unix.Monotonic()-g.lastSweep.Load() >= int64(maxRearmTick) {
			g.interval = 0
		}
		g.postpone()
	}
	g.list = append(g.list, s)
}

// setTimer makes the timer expire after span. The caller holds mu.
func (g *rearmWatchdog) setTimer(span time.Duration) {
	if g.closed {
		return
	}
	g.interval = span
	g.renewAt.Store(unix.Monotonic() + int64(span*7/8))
	g.timer.Set(span)
}

// sweep is called by a waiter that has just released links unarmed. It arms links that no waiter
// has used since the last sweep, and flushes the others.
func (g *rearmWatchdog) sweep() {
	now := g.lastWaitEnd
	if now-g.lastSweep.Load() < int64(sweepEvery) && now < g.renewAt.Load() || !g.mu.TryLock() {
		return
	}
	g.lastSweep.Store(now)
	keep, left := g.list[:0], g.takeSpare()
	more := false
	for _, s := range g.list {
		if s.touched.Swap(false) {
			keep = append(keep, s)
			more = s.flushDue() || more
		} else {
			left = append(left, s)
		}
	}
	clear(g.list[len(keep):])
	g.list = keep
	if more {
		g.urgent.Store(true)
	}
	if len(keep) > 0 && (now >= g.renewAt.Load() || more && g.interval > rearmTick) {
		g.postpone()
	}
	g.mu.Unlock()
	g.armList(left)
}

// postponeIfDue is called by a sender on an unarmed link: between two waits that poll there may be
// many that find their condition at once.
func (g *rearmWatchdog) postponeIfDue() {
	now := unix.Monotonic()
	if now < g.renewAt.Load() || now-g.lastSweep.Load() >= int64(maxRearmTick) || !g.mu.TryLock() {
		return
	}
	defer g.mu.Unlock()
	if len(g.list) == 0 {
		return
	}
	for _, s := range g.list {
		if s.flushDue() {
			g.urgent.Store(true)
		}
	}
	g.postpone()
}

// postpone sets the timer again. The caller holds mu.
func (g *rearmWatchdog) postpone() {
	if g.urgent.Swap(false) {
		g.setTimer(rearmTick)
	} else {
		g.setTimer(min(max(2*g.interval, rearmTick), maxRearmTick))
	}
}

// expedite is called, with no lock held, after data was coalesced or left unwritten on an unarmed
// link: it must not wait for longer than rearmTick.
func (g *rearmWatchdog) expedite() {
	if g.urgent.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.urgent.Swap(true) || len(g.list) == 0 || g.interval == rearmTick {
		return
	}
	g.setTimer(rearmTick)
}

// timerExpired handles the timer's event. An event from before the timer was postponed arms links
// early, which does no harm.
func (g *rearmWatchdog) timerExpired() {
	g.armAll()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rearm()
}

// armAll is called by a waiter that goes to sleep, once other goroutines can see that: its
// condition may come on an unarmed link. A waiter that releases a link unarmed checks for sleepers
// after that. So one of the two arms it.
func (g *rearmWatchdog) armAll() {
	var left []*stream
	g.mu.Lock()
	if len(g.list) > 0 && !g.closed {
		left = g.takeAll()
		g.stop()
	}
	g.mu.Unlock()
	g.armList(left)
}

// armList arms links taken off the list that are still unarmed. It is called with no lock held. A
// holder that releases its link meanwhile either finds onWatchdog false and lists the link again,
// or had freed the token before, so armRead takes it.
func (g *rearmWatchdog) armList(left []*stream) {
	for _, s := range left {
		s.onWatchdog.Store(false)
		s.armRead()
		if s.flushDue() { // the link is on the list again
			g.expedite()
		}
	}
	if cap(left) > 0 {
		g.recycle(left)
	}
}
