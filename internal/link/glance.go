package link

import (
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// Who has long messages under way, and waits for one before it begins the next, finds it over at the first look where as much comes the
// other way: the background has received meanwhile, and with it the acknowledgements. So the process has one thread that sends and one that
// receives, which take turns on one processor, and by the time that one has its turn all that the other side could send has left the cache.
// Such a waiter takes what has come before it goes on, therefore, and the background leaves links to it as long as it comes by: that moves a tenth to a
// sixth more both ways at once. It takes all of it, as far as that has an end: of long messages, of which there are always some that the
// socket has no room for, a few calls leave so much that the other side stands still, and what the waiter sends next is in its way.
// Between two looks it writes a turn of what is left to be written: see byTurns.
const (
	glanceFrom = 64 << 10

	glanceWithin = time.Millisecond // since such a message came
	glancedLast  = restTick / 2     // since a waiter came by
	glancedNow   = restTick / 5     // the same, of one who sends and looks by turns
	glanceTurns  = 16               // looks that bring something, of 1 MiB at most, and turns of writing, each with another look
)

// glancer knows when there was reason to, and when somebody did, of [unix.Monotonic]; 0 for never.
type glancer struct{ came, looked atomic.Int64 }

// arrived is of a message of n bytes.
func (g *glancer) arrived(n uint64) {
	if n >= glanceFrom {
		g.came.Store(unix.Monotonic())
	}
}

// comes says whether a waiter will look soon, and recent whether one has just looked.
func (g *glancer) comes() bool  { return g.since(glancedLast) }
func (g *glancer) recent() bool { return g.since(glancedNow) }

// lately says that a long message has come, so that others may be on their way.
func (g *glancer) lately() bool {
	t := g.came.Load()
	return t != 0 && unix.Monotonic()-t < int64(glanceWithin)
}

func (g *glancer) since(within time.Duration) bool {
	t := g.looked.Load()
	return t != 0 && unix.Monotonic()-t < int64(within)
}

// glance is for a waiter that has found at once what it waited for.
func (e *Engine) glance() {
	came := e.glancer.came.Load()
	if came == 0 {
		return
	}
	now := unix.Monotonic()
	if now-came > int64(glanceWithin) || e.sleepers.Asleep() || !e.spinning.CompareAndSwap(false, true) {
		return
	}
	e.glancer.looked.Store(now)
	var held [len(e.hot)]*stream
	n := e.grasp(&held)
	var more [len(e.hot)]bool
	for i, s := range held[:n] {
		more[i] = s.receive(1) // that one sends without end does not keep the others' from being seen
	}
	var w writers
	brought, wrote := 0, 0
	for any := true; any && brought < glanceTurns; {
		any = false
		for i, s := range held[:n] {
			if more[i] {
				if more[i] = s.receive(1); more[i] {
					brought++
					any = true
				}
			}
			if wrote < glanceTurns && w.help(s, true) {
				wrote++
				more[i], any = true, true // it is looked at before the next turn
			}
		}
	}
	e.budget.Looked(n, brought)
	if n > 0 {
		e.guard.frequent(now)
		for _, s := range held[:n] {
			s.rest()
		}
		w.leave(true) // behind that: most are on the guard's list now
		e.guard.visit()
	}
	e.spinning.Store(false)
}

// awaited says whether the background may leave s to a waiter.
func (s *stream) awaited() bool {
	return s.warm.Load() && s.e.glancer.comes() && !s.e.sleepers.Asleep()
}
