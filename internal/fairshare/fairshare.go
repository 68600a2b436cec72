// Package fairshare divides a daemon's processors among its users.
//
// Go's scheduler runs goroutines in the order in which they become ready, so a user with a thousand
// ready requests would delay each request of another user by a thousand. A [Share] lets few
// requests of one user run at a time. The others wait in its queue, in the order in which they came.
// While the queue is long, the connections that they came by hold their further requests, and at a
// bound are not read. So a request waits for the requests that run of each other user, however many
// these have sent.
//
// A request that waits for an event does not count: it leaves its share by [Leave], and queues again
// when the event has come. A request that runs for longer than the limit has most likely begun to
// wait where nothing tells the share of it. It becomes overdue and the next one begins. The limit
// grows with the number of requests that are overdue, so that long requests cannot pile up. A
// request that asks another node ([MayWait]) is waiting then, and not overdue. When the answer has
// come, it queues again.
package fairshare

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/state"
)

const (
	// A request runs for this long until it is overdue: most take 50 µs.
	baseLimit = time.Millisecond
	// Each request that is overdue lengthens the limit by this, up to the longest.
	overdueStep  = 100 * time.Microsecond
	longestLimit = 10 * time.Millisecond
	// A connection whose request is queued behind so many begins no other one until that one runs.
	maxQueued = 64
)

// Share is what the requests of one user have of the processors.
type Share struct {
	slots int

	mu      sync.Mutex
	running []*Turn     // the one that began first is the first. Guarded by mu.
	queue   []*Turn     // Guarded by mu.
	overdue int         // turns in that state. Guarded by mu.
	clock   *time.Timer // finds overdue turns; nil: none were queued yet. Guarded by mu.
	armed   bool        // reports whether clock will call tick. Guarded by mu.
}

// New returns a share of which so many requests run at a time.
func New(slots int) *Share { return &Share{slots: max(1, slots)} }

// Turn is one request.
type Turn struct {
	share *Share
	run   func(*Turn) // nil: it has begun. Guarded by share.mu.

	mayWait bool          // reports whether it asks another node: see MayWait. Guarded by share.mu.
	state   turnState     // Guarded by share.mu.
	began   time.Time     // when it began to run. Guarded by share.mu.
	granted chan struct{} // nil, or closed when the turn is no longer queued. Guarded by share.mu.
}

// turnState is that of a request.
//
//	queued --> running --> overdue
//	   ^          |           |
//	   |          v           |
//	   +------ waiting <------+
//
// Only a running turn has a slot. A waiting turn waits for an event that the share knows of: it
// leaves by [Leave], or the clock takes its slot while it asks another node ([MayWait]); until it
// has asked, it works without a slot. When the wait has ended it queues. An overdue turn has run for
// longer than the limit, and the clock has taken its slot. It has no slot and works on until it
// leaves or ends. A turn becomes over when the request ends. It may be queued then: a goroutine of the
// request may still be in enter, or the request is withdrawn before it has begun.
type turnState uint8

const (
	turnQueued turnState = iota
	turnRunning
	turnWaiting
	turnOverdue
	turnOver
)

func (s turnState) String() string {
	return [...]string{"queued", "running", "waiting", "overdue", "over"}[s]
}

var turnTransitions = state.Table[turnState]{
	turnQueued:  {turnRunning, turnOver},
	turnRunning: {turnWaiting, turnOverdue, turnOver},
	turnWaiting: {turnQueued, turnOver},
	turnOverdue: {turnWaiting, turnOver},
}

// setState is the only writer of a turn's state. share.mu is held.
func (t *Turn) setState(to turnState) {
	turnTransitions.Check(t.state, to)
	switch {
	case t.state == turnOverdue:
		t.share.overdue--
	case to == turnOverdue:
		t.share.overdue++
	}
	t.state = to
}

// Begin has run called on a goroutine of its own when the request's turn comes; run calls
// [Turn.End]. The caller begins no further request of the same connection before the channel is
// closed that Begin returns; nil: at once. withdraw ends a request that run was not called of, which
// is not called then, and reports whether it has done so.
func (s *Share) Begin(run func(*Turn)) (begun <-chan struct{}, withdraw func() bool) {
	t := &Turn{share: s, run: run}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(t)
	if t.state == turnQueued && len(s.queue) > maxQueued {
		t.granted = make(chan struct{})
	}
	return t.granted, t.withdraw
}

// withdraw ends a request that has not begun, and reports whether it has done so.
func (t *Turn) withdraw() bool {
	t.share.mu.Lock()
	defer t.share.mu.Unlock()
	if t.state != turnQueued || t.run == nil { // a turn that has begun may queue, too
		return false
	}
	t.run = nil
	t.release(turnOver)
	return true
}

// add has a queued turn run, now or later. mu is held.
func (s *Share) add(t *Turn) {
	s.queue = append(s.queue, t)
	s.dispatch()
}

// dispatch lets queued turns run while there are slots. mu is held.
func (s *Share) dispatch() {
	for len(s.queue) > 0 && len(s.running) < s.slots {
		t := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		t.setState(turnRunning)
		t.began = time.Now()
		s.running = append(s.running, t)
		t.wake()
		if run := t.run; run != nil {
			t.run = nil
			go run(t)
		}
	}
	if len(s.queue) == 0 {
		s.queue = nil // a burst's memory goes with it
		return
	}
	if s.armed {
		return
	}
	s.armed = true
	after := max(0, s.limit()-time.Since(s.running[0].began))
	if s.clock == nil {
		s.clock = time.AfterFunc(after, s.tick)
	} else {
		s.clock.Reset(after)
	}
}

// limit is how long a request runs until it is overdue. mu is held.
func (s *Share) limit() time.Duration {
	return min(baseLimit+time.Duration(s.overdue)*overdueStep, longestLimit)
}

// tick lets others run in the place of a request that is overdue.
func (s *Share) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	if len(s.queue) == 0 {
		return
	}
	if t := s.running[0]; time.Since(t.began) >= s.limit() {
		s.running = slices.Delete(s.running, 0, 1)
		if t.mayWait {
			t.setState(turnWaiting)
		} else {
			t.setState(turnOverdue)
		}
	}
	s.dispatch()
}

// End ends a request.
func (t *Turn) End() {
	t.share.mu.Lock()
	defer t.share.mu.Unlock()
	t.release(turnOver)
}

// release gives up the turn's slot or its place in the queue, if it has one. share.mu is held.
func (t *Turn) release(to turnState) {
	s, from := t.share, t.state
	t.setState(to)
	is := func(other *Turn) bool { return other == t }
	switch from {
	case turnRunning:
		s.running = slices.DeleteFunc(s.running, is)
		s.dispatch()
	case turnQueued:
		s.queue = slices.DeleteFunc(s.queue, is)
		t.wake()
	}
}

// wake ends the wait for a queued turn. share.mu is held.
func (t *Turn) wake() {
	if t.granted != nil {
		close(t.granted)
		t.granted = nil
	}
}

// key is of the turn in a request's context.
type key struct{}

// Context returns a context of the request.
func (t *Turn) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, key{}, t)
}

// Leave begins a wait of the request that ctx is of, which must be for an event and not for the
// processor. The caller calls enter after it, also when the wait has failed: enter returns when the
// request may run again. Without
// a request, and within another wait of it, both do nothing.
func Leave(ctx context.Context) (enter func()) {
	t, _ := ctx.Value(key{}).(*Turn)
	if t == nil {
		return func() {}
	}
	t.share.mu.Lock()
	defer t.share.mu.Unlock()
	if t.state != turnRunning && t.state != turnOverdue {
		return func() {}
	}
	t.release(turnWaiting)
	return func() { t.enter(ctx) }
}

// MayWait begins a part of the request that ctx is of in which it asks another node. Unlike a
// request that has left, it keeps its slot up to the limit, so that questions to other nodes do not
// all run at once either. At the limit it becomes waiting, and not overdue. The caller calls enter
// when the answer has come: if the request has lost its slot, enter queues. Without a request, and
// within another wait of it, both do nothing.
func MayWait(ctx context.Context) (enter func()) {
	t, _ := ctx.Value(key{}).(*Turn)
	if t == nil {
		return func() {}
	}
	t.share.mu.Lock()
	defer t.share.mu.Unlock()
	switch {
	case t.state == turnRunning && !t.mayWait:
		t.mayWait = true
	case t.state == turnOverdue:
		t.release(turnWaiting)
	default:
		return func() {}
	}
	return func() {
		t.share.mu.Lock()
		t.mayWait = false
		t.share.mu.Unlock()
		t.enter(ctx)
	}
}

// enter queues a turn that has waited, and returns when it runs. A turn whose context has ended
// passes the others: it only cleans up, and what waits for the end of its connection waits for that.
func (t *Turn) enter(ctx context.Context) {
	granted := t.requeue()
	if granted == nil {
		return
	}
	select {
	case <-granted:
	case <-ctx.Done():
		t.moveToFront()
		<-granted
	}
}

func (t *Turn) requeue() (granted <-chan struct{}) {
	t.share.mu.Lock()
	defer t.share.mu.Unlock()
	if t.state != turnWaiting { // it has kept its slot, or has ended and a goroutine of it waits on
		return nil
	}
	t.setState(turnQueued)
	t.share.add(t)
	if t.state == turnRunning {
		return nil
	}
	t.granted = make(chan struct{})
	return t.granted
}

// moveToFront makes a queued turn the next one.
func (t *Turn) moveToFront() {
	s := t.share
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.queue, t); i > 0 {
		copy(s.queue[1:i+1], s.queue[:i])
		s.queue[0] = t
	}
}
