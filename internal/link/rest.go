package link

import (
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/invariant"
)

// Arming a descriptor and disarming it again around every wait costs two system
// calls a message. A waiter that found what it waited for therefore leaves the
// links it polled unarmed, at rest: the next wait, which usually follows at
// once, takes them as they are. Links at rest that no wait has taken for a tick
// are armed by the guard, so that one that is no longer polled is served by the
// background, at most two ticks late the first time. Where anybody sleeps, or
// the waiter goes to sleep itself, links are armed at once. What such a waiter has not written
// yet is left in the same way, but for one tick (see room.go).
const restTick = time.Millisecond

// guard arms links at rest. It sleeps without a timer when there are none.
type guard struct {
	mu      sync.Mutex
	resting []*stream
	more    chan struct{}
}

// rest lets go of the token without arming.
func (s *stream) rest() {
	if invariant.Enabled {
		s.checkHeld("rest")
	}
	if s.later { // it may be long until the next turn
		s.settle(false)
	}
	s.used.Store(true) // before the token is free, see tick
	if !s.token.CompareAndSwap(held, free) {
		s.token.Store(held) // an event was on its way when the descriptor was disarmed
		s.receive(drain)
		s.release()
		return
	}
	if s.guarded.CompareAndSwap(false, true) {
		g := &s.e.guard
		g.mu.Lock()
		g.resting = append(g.resting, s)
		g.mu.Unlock()
		select {
		case g.more <- struct{}{}:
		default:
		}
	}
}

func (g *guard) run(stop <-chan struct{}) {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		select {
		case <-g.more:
		case <-stop:
			return
		}
		for left := true; left; left = g.tick() {
			t.Reset(restTick)
			select {
			case <-t.C:
			case <-stop:
				return
			}
		}
	}
}

// tick arms what was not used since the last one, and says whether any is left.
// A holder that comes to rest meanwhile either finds guarded false and comes
// back into the list, or had freed the token before, and then try succeeds.
func (g *guard) tick() (left bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	keep := g.resting[:0]
	for _, s := range g.resting {
		if s.used.Swap(false) {
			keep = append(keep, s)
			s.inherit()
			continue
		}
		s.guarded.Store(false)
		if s.try() {
			s.receive(drain)
			s.release()
		}
		s.inherit()
	}
	clear(g.resting[len(keep):])
	g.resting = keep
	return len(keep) > 0
}
