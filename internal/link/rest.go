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
// processor, which has one each 4 ms anyway. So the timer is for a restTick at first, and for twice as long whenever it is put off, up to
// longestTick: a link that is no longer polled is served late by no longer than it was polled before, or by that.
const (
	restTick    = time.Millisecond
	longestTick = 4 * time.Millisecond
	visitEvery  = restTick / 2
	seldomWaits = 16 * time.Millisecond
)

// guardID is that of its timer's events. Those of links are from 2 on.
const guardID = 1

// guard arms links at rest. Its timer is set as long as there are any.
type guard struct {
	last int64 // when a wait ended, of [unix.Monotonic]; with spinning

	mu      sync.Mutex // held for a moment, and while what was left to the guard is written: what is armed is served, which may take longer, without it
	resting []*stream
	spare   []*stream // memory for the next ones
	timer   *unix.Timer
	span    time.Duration // for which the timer was set
	closed  bool

	visited atomic.Int64 // when a waiter last saw to the list; stored with mu
	renew   atomic.Int64 // from when on the timer is to be put off; stored with mu
	brief   atomic.Bool  // something was gathered, or left to the guard, since the timer was set
}

func (e *Engine) startGuard() (err error) {
	e.guard.timer, err = newTimer(e.ep, guardID)
	return err
}

// frequent notes that a wait ends now, and says whether another one did lately.
func (g *guard) frequent(now int64) bool {
	before := g.last
	g.last = now
	return now-before < int64(seldomWaits)
}

// rest lets go of the token without arming.
func (s *stream) rest() {
	if invariant.Enabled {
		s.checkHeld("rest")
	}
	if s.later { // it may be long until the next turn
		s.settle(false)
	}
	s.used.Store(true) // before the token is free, see visit
	if !s.token.CompareAndSwap(held, free) {
		s.token.Store(held) // an event was on its way when the descriptor was disarmed
		s.receive(drain)
		s.release()
		return
	}
	if s.guarded.CompareAndSwap(false, true) {
		s.e.guard.take(s)
	}
	if s.e.sleepers.Asleep() { // since the holder looked, see leave
		s.hear()
		if s.writeDue() {
			s.e.guard.hasten()
		}
	}
}

// take puts s into the list.
func (g *guard) take(s *stream) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.resting) == 0 {
		if unix.Monotonic()-g.visited.Load() >= int64(longestTick) {
			g.span = 0
		}
		g.putOff()
	}
	g.resting = append(g.resting, s)
}

// set has the timer go off after span; mu is held.
func (g *guard) set(span time.Duration) {
	if g.closed {
		return
	}
	g.span = span
	g.renew.Store(unix.Monotonic() + int64(span*7/8))
	g.timer.Set(span)
}

// visit is for a waiter that has just left links at rest.
func (g *guard) visit() {
	now := g.last
	if now-g.visited.Load() < int64(visitEvery) && now < g.renew.Load() || !g.mu.TryLock() {
		return
	}
	g.visited.Store(now)
	keep, left := g.resting[:0], g.lend()
	more := false
	for _, s := range g.resting {
		if s.used.Swap(false) {
			keep = append(keep, s)
			more = s.writeDue() || more
		} else {
			left = append(left, s)
		}
	}
	clear(g.resting[len(keep):])
	g.resting = keep
	if more {
		g.brief.Store(true)
	}
	if len(keep) > 0 && (now >= g.renew.Load() || more && g.span > restTick) {
		g.putOff()
	}
	g.mu.Unlock()
	g.arm(left)
}

// lend is memory for a list of links that are off the guard's; mu is held. arm gives it back.
func (g *guard) lend() []*stream {
	m := g.spare
	g.spare = nil
	return m
}

// hush is for who sends on a link that the background has armed between two waits of those who send and wait by turns: it puts
// the link to rest again, else each acknowledgement would wake the background's thread, and what that takes nobody waits for.
func (s *stream) hush() {
	if s.warm.Load() && s.listening.Load() && unix.Monotonic()-s.e.guard.visited.Load() < int64(longestTick) && !s.e.sleepers.Asleep() && s.tryQuiet() {
		s.rest()
	}
}

// pass is for who sends on a link at rest: between two waits that look for anything there may be many that find it at once.
func (g *guard) pass() {
	now := unix.Monotonic()
	if now < g.renew.Load() || now-g.visited.Load() >= int64(longestTick) || !g.mu.TryLock() {
		return
	}
	defer g.mu.Unlock()
	if len(g.resting) == 0 {
		return
	}
	for _, s := range g.resting {
		if s.writeDue() {
			g.brief.Store(true)
		}
	}
	g.putOff()
}

// putOff sets the timer anew; mu is held.
func (g *guard) putOff() {
	if g.brief.Swap(false) {
		g.set(restTick)
	} else {
		g.set(min(max(2*g.span, restTick), longestTick))
	}
}

// hasten is for who has gathered something on a link at rest, or left it to the guard, with no lock held: it is not to wait for longer than a restTick.
func (g *guard) hasten() {
	if g.brief.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.brief.Swap(true) || len(g.resting) == 0 || g.span == restTick {
		return
	}
	g.set(restTick)
}

// expired serves the timer's event. Where that is of before the timer was put off links are armed early, which is no harm.
func (g *guard) expired(ep *unix.Epoll) {
	g.arm(g.off())
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		_ = ep.Arm(g.timer.Descriptor(), guardID, false)
	}
}

// leave is for a waiter that goes to sleep, when others can know that: what it sleeps for may come on a link at rest. Who leaves one
// at rest looks for sleepers after that, so one of the two arms it.
func (g *guard) leave() { g.arm(g.off()) }

// off empties the list, and says what was in it, for arm.
func (g *guard) off() []*stream {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.resting) == 0 || g.closed {
		return nil
	}
	left := g.resting
	g.resting = g.lend()
	g.timer.Set(0) // one that has gone off would raise another event at once
	return left
}

// arm arms links that have gone off the list, those that are not armed, with no lock held.
// A holder that comes to rest meanwhile either finds guarded false and comes
// back into the list, or had freed the token before, and then hear takes it.
func (g *guard) arm(left []*stream) {
	for _, s := range left {
		s.guarded.Store(false)
		s.hear()
		if s.writeDue() { // it is on the list again
			g.hasten()
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

// writeDue writes what was gathered, or left to the guard, if anything was.
// More says that something is left to the guard again.
func (s *stream) writeDue() (more bool) {
	o, is := s.h.(*Out)
	due := is && o.due.Load()
	if !due && !s.tx.stuck.Load() {
		return false
	}
	s.tmu.Lock()
	defer s.tmu.Unlock()
	if due || s.tx.attended.Load() == 0 && !s.tx.armed {
		return s.offer()
	}
	return false
}

// close is called when there are no links any more.
func (g *guard) close() {
	g.mu.Lock()
	g.closed = true
	g.timer.Close()
	g.mu.Unlock()
}
