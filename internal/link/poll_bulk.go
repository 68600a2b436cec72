package link

import (
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// A sender that keeps long messages in flight and waits for the oldest before it begins the next
// finds it complete at the first look if as much data comes the other way: the background goroutine
// has received meanwhile, and the acknowledgements with it. Then one thread of the process sends
// and another receives, and they alternate on one CPU. When one of them runs, the data that the
// peer could send has left the cache.
//
// So such a waiter drains the hot sockets before it goes on, and the background goroutine leaves
// the links to it while it keeps coming. That moves a tenth to a sixth more data in both directions
// together. The waiter drains all that is there within maxDrainRounds. Long messages always have a
// rest for which the socket had no room. After a few calls only, so much would be left that the
// peer stands still, and what the waiter sends next would be in its way. Between two receives the
// waiter writes one quantum of unwritten data; see writeQuantum.
const (
	bulkSize = 64 << 10

	bulkWindow  = time.Millisecond // How long a long message counts as recent.
	drainWindow = rearmTick / 2    // How long a waiter is expected to come again.
	recentDrain = rearmTick / 5    // The same for one that sends and drains by turns.
	// Bounds receives of up to 1 MiB, and quanta written, each of which adds a receive.
	maxDrainRounds = 16
)

// bulkActivity records the last long message and the last drain, in [unix.Monotonic] time; 0 for
// never.
type bulkActivity struct{ lastBulk, lastDrain atomic.Int64 }

// noteArrival records the arrival of a message of n bytes.
func (g *bulkActivity) noteArrival(n uint64) {
	if n >= bulkSize {
		g.lastBulk.Store(unix.Monotonic())
	}
}

// waiterExpected reports whether a waiter will drain the sockets soon, and justDrained whether one
// has just done so.
func (g *bulkActivity) waiterExpected() bool { return g.drainedWithin(drainWindow) }
func (g *bulkActivity) justDrained() bool    { return g.drainedWithin(recentDrain) }

// bulkArriving reports whether a long message has arrived lately, so more are likely.
func (g *bulkActivity) bulkArriving() bool {
	t := g.lastBulk.Load()
	return t != 0 && unix.Monotonic()-t < int64(bulkWindow)
}

func (g *bulkActivity) drainedWithin(within time.Duration) bool {
	t := g.lastDrain.Load()
	return t != 0 && unix.Monotonic()-t < int64(within)
}

// drainReady is called by a waiter that found its condition at once. It receives what has come on
// the hot links.
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
		more[i] = s.receive(1) // one link that sends without end does not starve the others
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
				more[i], any = true, true // receive before the next quantum
			}
		}
	}
	e.budget.AddLooks(n, brought)
	if n > 0 {
		e.watchdog.frequentWaits(now)
		for _, s := range held[:n] {
			s.releaseUnarmed()
		}
		w.finish(true) // after that: most are on the watchdog's list now
		e.watchdog.sweep()
	}
	e.polling.Store(false)
}
