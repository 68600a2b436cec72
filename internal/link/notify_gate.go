package link

import (
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// Gate blocks and unblocks handlers by words that code outside of Go changes without a call of this
// package. It counts its levels besides those of [Engine.Block]: a handler begins only where there
// are none of either.
//
// Two pairs of a store and a load decide. All four are sequentially consistent, so of each pair at
// least one side sees the other's store.
//
//   - Outside, a level is added and then Running is loaded. The dispatcher stores Running and then
//     loads Levels, before it takes a notification. So either no handler runs when the level is
//     there, or the outside waits until Running is GateIdle.
//   - Outside, the last level is taken away and then Pending is loaded. The dispatcher stores Pending
//     and then loads Levels, before it sleeps. So either the dispatcher finds no level, or the outside
//     finds that it has to call [Engine.GateOpened].
//
// docs/models/gate.pml is the model.
type Gate struct {
	Levels  *atomic.Uint32 // Above 0: no handler begins. This package only loads it.
	Running *atomic.Uint32 // GateIdle, GateRunning or GateAwaited.
	Pending *atomic.Uint32 // 1: the dispatcher sleeps until the gate opens.
}

// The values of [Gate.Running].
const (
	GateIdle    = iota // No handler runs.
	GateRunning        // One runs, or is about to.
	GateAwaited        // One runs, and the outside sleeps on the word.
)

// open reports whether a handler may begin. The answer may be old at once.
func (g *Gate) open() bool { return g == nil || g.Levels.Load() == 0 }

// enter reports whether a handler may begin. Then leave follows its end.
func (g *Gate) enter() bool {
	if g == nil {
		return true
	}
	g.Running.Store(GateRunning)
	if g.Levels.Load() == 0 {
		return true
	}
	g.leave()
	return false
}

func (g *Gate) leave() {
	if g != nil && g.Running.Swap(GateIdle) == GateAwaited {
		unix.RouseAll(g.Running)
	}
}

// SetGate has a gate decide besides the engine's own levels. No notification has come yet.
func (e *Engine) SetGate(g *Gate) {
	q := &e.dispatcher
	q.mu.Lock()
	q.gate = g
	q.mu.Unlock()
}

// GateOpened has the dispatcher look at the gate's levels again, if it sleeps until they are gone.
func (e *Engine) GateOpened() {
	q := &e.dispatcher
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.gate != nil && q.gate.Pending.Swap(0) != 0 {
		q.cond.Broadcast()
	}
}

// awaitGate is called where a job waits and the gate is shut. It polls no ring meanwhile, so that
// importers ring. The caller holds mu.
func (q *dispatcher) awaitGate() {
	switch {
	case q.rings.n > 0:
		q.stopPolling()
	case len(q.creditsDue) > 0:
		q.unlocked(func() bool { q.flushCredits(); return true })
	default:
		q.gate.Pending.Store(1)
		if !q.gate.open() {
			q.cond.Wait()
		}
	}
}
