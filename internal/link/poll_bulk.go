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
// Between two looks it writes a turn of what is left to be written: see writeQuantum.
const (
	bulkSize = 64 << 10

	bulkWindow     = time.Millisecond // since such a message came
	drainWindow    = rearmTick / 2    // since a waiter came by
	recentDrain    = rearmTick / 5    // the same, of one who sends and looks by turns
	maxDrainRounds = 16               // looks that bring something, of 1 MiB at most, and turns of writing, each with another look
)

// bulkActivity knows when there was reason to, and when somebody did, of [unix.Monotonic]; 0 for never.
type bulkActivity struct{ lastBulk, lastDrain atomic.Int64 }

// noteArrival is of a message of n bytes.
func (g *bulkActivity) noteArrival(n uint64) {
	if n >= bulkSize {
		g.lastBulk.Store(unix.Monotonic())
	}
}

// waiterExpected says whether a waiter will look soon, and recent whether one has just looked.
func (g *bulkActivity) waiterExpected() bool { return g.drainedWithin(drainWindow) }
func (g *bulkActivity) justDrained() bool    { return g.drainedWithin(recentDrain) }

// bulkArriving says that a long message has come, so that others may be on their way.
func (g *bulkActivity) bulkArriving() bool {
	t := g.lastBulk.Load()
	return t != 0 && unix.Monotonic()-t < int64(bulkWindow)
}

func (g *bulkActivity) drainedWithin(within time.Duration) bool {
	t := g.lastDrain.Load()
	return t != 0 && unix.Monotonic()-t < int64(within)
}

// drainReady is for a waiter that has found at once what it waited for.
func (e *Engine) drainReady() {
	came := e.bulkActivity.lastBulk.Load()
	if came == 0 {
		return
	}
	now := unix.Monotonic()
	if now-came > int64(bulkWindow) || e.sleepers.Asleep() || !e.polling.CompareAndSwap(false, true) {
		return
	}
	e.bulkActivity.lastDrain.Store(now)
	var held [len(e.hot)]*stream
	n := e.acquireHot(&held)
	var more [len(e.hot)]bool
	for i, s := range held[:n] {
		more[i] = s.receive(1) // that one sends without end does not keep the others' from being seen
	}
	var w assistedWriters
	brought, wrote := 0, 0
	for any := true; any && brought < maxDrainRounds; {
		any = false
		for i, s := range held[:n] {
			if more[i] {
				if more[i] = s.receive(1); more[i] {
					brought++
					any = true
				}
			}
			if wrote < maxDrainRounds && w.assist(s, true) {
				wrote++
				more[i], any = true, true // it is looked at before the next turn
			}
		}
	}
	e.budget.AddLooks(n, brought)
	if n > 0 {
		e.watchdog.frequentWaits(now)
		for _, s := range held[:n] {
			s.releaseUnarmed()
		}
		w.finish(true) // behind that: most are on the guard's list now
		e.watchdog.sweep()
	}
	e.polling.Store(false)
}

// leaveToWaiter says whether the background may leave s to a waiter.
func (s *stream) leaveToWaiter() bool {
	return s.hot.Load() && s.e.bulkActivity.waiterExpected() && !s.e.sleepers.Asleep()
}
