package link

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// Arming a descriptor and disarming it again around every wait costs two system
// calls a message. A waiter that found what it waited for therefore leaves the
// links it polled unarmed, at rest: the next wait, which usually follows at
// once, takes them as they are. Links at rest that no wait takes any more are
// armed by the guard, so that the background serves them. Where anybody sleeps, where the waiter goes
// to sleep itself, or where waits are seldom, links are armed at once.
//
// The guard has no thread and looks at nothing by itself. Waiters that leave links at rest see to those of others as they go, and put off a
// timer, which goes off where none has come for a while. Each time that a timer goes off it takes 40 µs from both ends of a stream, of which it
// wakes two or three threads of the runtime one after another, and to set one takes 15 to 30 on a virtual machine if it is the next one of its
// processor, which has one each 4 ms anyway. So the timer is for a rearmTick at first, and for twice as long whenever it is put off, up to
// maxRearmTick: a link that is no longer polled is served late by no longer than it was polled before, or by that.
const (
	rearmTick    = time.Millisecond
	maxRearmTick = 4 * time.Millisecond
	sweepEvery   = rearmTick / 2
	maxWaitGap   = 16 * time.Millisecond
)

// watchdogTimerID is that of its timer's events. Those of links are from 2 on.
const watchdogTimerID = 1

// rearmWatchdog arms links at rest. Its timer is set as long as there are any.
type rearmWatchdog struct {
	lastWaitEnd int64 // when a wait ended, of [unix.Monotonic]; with spinning

	mu       sync.Mutex // held for a moment, and while what was left to the guard is written: what is armed is served, which may take longer, without it
	unarmed  []*stream
	spare    []*stream // memory for the next ones
	timer    *unix.Timer
	interval time.Duration // for which the timer was set
	closed   bool

	lastSweep atomic.Int64 // when a waiter last saw to the list; stored with mu
	renewAt   atomic.Int64 // from when on the timer is to be put off; stored with mu
	urgent    atomic.Bool  // something was gathered, or left to the guard, since the timer was set
}

func (e *Engine) startWatchdog() (err error) {
	e.watchdog.timer, err = newTimer(e.ep, watchdogTimerID)
	return err
}

// frequentWaits notes that a wait ends now, and says whether another one did lately.
func (g *rearmWatchdog) frequentWaits(now int64) bool {
	before := g.lastWaitEnd
	g.lastWaitEnd = now
	return now-before < int64(maxWaitGap)
}

// releaseUnarmed lets go of the token without arming.
func (s *stream) releaseUnarmed() {
	if invariant.Enabled {
		s.checkHeld("rest")
	}
	if s.ackDeferred { // it may be long until the next turn
		s.flushDeferredAck(false)
	}
	s.touched.Store(true) // before the token is free, see visit
	if !s.token.CompareAndSwap(tokenHeld, tokenFree) {
		s.token.Store(tokenHeld) // an event was on its way when the descriptor was disarmed
		s.receive(maxRecvCalls)
		s.releaseArmed()
		return
	}
	if s.onWatchdog.CompareAndSwap(false, true) {
		s.e.watchdog.add(s)
	}
	if s.e.sleepers.Asleep() { // since the holder looked, see leave
		s.armRead()
		if s.flushDue() {
			s.e.watchdog.expedite()
		}
	}
}

// add puts s into the list.
func (g *rearmWatchdog) add(s *stream) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.unarmed) == 0 {
		if unix.Monotonic()-g.lastSweep.Load() >= int64(maxRearmTick) {
			g.interval = 0
		}
		g.postpone()
	}
	g.unarmed = append(g.unarmed, s)
}

// setTimer has the timer go off after span; mu is held.
func (g *rearmWatchdog) setTimer(span time.Duration) {
	if g.closed {
		return
	}
	g.interval = span
	g.renewAt.Store(unix.Monotonic() + int64(span*7/8))
	g.timer.Set(span)
}

// sweep is for a waiter that has just left links at rest.
func (g *rearmWatchdog) sweep() {
	now := g.lastWaitEnd
	if now-g.lastSweep.Load() < int64(sweepEvery) && now < g.renewAt.Load() || !g.mu.TryLock() {
		return
	}
	g.lastSweep.Store(now)
	keep, left := g.unarmed[:0], g.takeSpare()
	more := false
	for _, s := range g.unarmed {
		if s.touched.Swap(false) {
			keep = append(keep, s)
			more = s.flushDue() || more
		} else {
			left = append(left, s)
		}
	}
	clear(g.unarmed[len(keep):])
	g.unarmed = keep
	if more {
		g.urgent.Store(true)
	}
	if len(keep) > 0 && (now >= g.renewAt.Load() || more && g.interval > rearmTick) {
		g.postpone()
	}
	g.mu.Unlock()
	g.armList(left)
}

// takeSpare is memory for a list of links that are off the guard's; mu is held. arm gives it back.
func (g *rearmWatchdog) takeSpare() []*stream {
	m := g.spare
	g.spare = nil
	return m
}

// disarmRead is for who sends on a link that the background has armed between two waits of those who send and wait by turns: it puts
// the link to rest again, else each acknowledgement would wake the background's thread, and what that takes nobody waits for.
func (s *stream) disarmRead() {
	if s.hot.Load() && s.readArmed.Load() && unix.Monotonic()-s.e.watchdog.lastSweep.Load() < int64(maxRearmTick) && !s.e.sleepers.Asleep() && s.tryTokenDisarmed() {
		s.releaseUnarmed()
	}
}

// postponeIfDue is for who sends on a link at rest: between two waits that look for anything there may be many that find it at once.
func (g *rearmWatchdog) postponeIfDue() {
	now := unix.Monotonic()
	if now < g.renewAt.Load() || now-g.lastSweep.Load() >= int64(maxRearmTick) || !g.mu.TryLock() {
		return
	}
	defer g.mu.Unlock()
	if len(g.unarmed) == 0 {
		return
	}
	for _, s := range g.unarmed {
		if s.flushDue() {
			g.urgent.Store(true)
		}
	}
	g.postpone()
}

// postpone sets the timer anew; mu is held.
func (g *rearmWatchdog) postpone() {
	if g.urgent.Swap(false) {
		g.setTimer(rearmTick)
	} else {
		g.setTimer(min(max(2*g.interval, rearmTick), maxRearmTick))
	}
}

// expedite is for who has gathered something on a link at rest, or left it to the guard, with no lock held: it is not to wait for longer than a rearmTick.
func (g *rearmWatchdog) expedite() {
	if g.urgent.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.urgent.Swap(true) || len(g.unarmed) == 0 || g.interval == rearmTick {
		return
	}
	g.setTimer(rearmTick)
}

// timerExpired serves the timer's event. Where that is of before the timer was put off links are armed early, which is no harm.
func (g *rearmWatchdog) timerExpired(ep *unix.Epoll) {
	g.armList(g.takeAll())
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		_ = ep.Arm(g.timer.Descriptor(), watchdogTimerID, false)
	}
}

// armAll is for a waiter that goes to sleep, when others can know that: what it sleeps for may come on a link at rest. Who leaves one
// at rest looks for sleepers after that, so one of the two arms it.
func (g *rearmWatchdog) armAll() { g.armList(g.takeAll()) }

// takeAll empties the list, and says what was in it, for arm.
func (g *rearmWatchdog) takeAll() []*stream {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.unarmed) == 0 || g.closed {
		return nil
	}
	left := g.unarmed
	g.unarmed = g.takeSpare()
	g.timer.Set(0) // one that has gone off would raise another event at once
	return left
}

// armList arms links that have gone off the list, those that are not armed, with no lock held.
// A holder that comes to rest meanwhile either finds guarded false and comes
// back into the list, or had freed the token before, and then hear takes it.
func (g *rearmWatchdog) armList(left []*stream) {
	for _, s := range left {
		s.onWatchdog.Store(false)
		s.armRead()
		if s.flushDue() { // it is on the list again
			g.expedite()
		}
	}
	if cap(left) == 0 {
		return
	}
	clear(left)
	g.mu.Lock()
	g.spare = left[:0]
	g.mu.Unlock()
}

// flushDue writes what was gathered, or left to the guard, if anything was.
// More says that something is left to the guard again.
func (s *stream) flushDue() (more bool) {
	rq, is := s.h.(*Requester)
	due := is && rq.inboxReady.Load()
	if !due && !s.tx.writeBlocked.Load() {
		return false
	}
	s.tmu.Lock()
	defer s.tmu.Unlock()
	if due || s.tx.activeWriters.Load() == 0 && !s.tx.writeArmed {
		return s.tryFlush()
	}
	return false
}

// close is called when there are no links any more.
func (g *rearmWatchdog) close() {
	g.mu.Lock()
	g.closed = true
	g.timer.Close()
	g.mu.Unlock()
}
