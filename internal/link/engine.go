package link

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// Engine serves the links of one process.
type Engine struct {
	ep             *unix.Epoll
	sleepers       wait.Sleepers
	budget         wait.Budget
	polling        atomic.Bool // one waiter at a time polls; more would starve each other
	hot            [4]atomic.Pointer[stream]
	hotNext        atomic.Uint32
	dispatcher     dispatcher
	notifyPoller   notifyPoller
	batch          batch
	deferredCopies deferredCopies
	watchdog       rearmWatchdog
	bulkActivity   bulkActivity
	tailProber     tailProber
	segmentPool    segmentPool
	counters       *shmlayout.Counters
	tracer         func(Step) // nil, or of a program that traces

	mu        sync.RWMutex
	streams   map[uint64]*stream
	lastID    uint64
	noStreams *sync.Cond // no streams are left
	closed    bool

	stop chan struct{}
	wg   sync.WaitGroup
}

// NewEngine starts one. board is that of the process's own page.
func NewEngine(board wait.Board) (*Engine, error) {
	ep, err := unix.NewEpoll()
	if err != nil {
		return nil, err
	}
	counters, err := shmlayout.NewCounters()
	if err != nil {
		_ = ep.Close()
		return nil, err
	}
	e := &Engine{ep: ep, counters: counters, streams: map[uint64]*stream{}, stop: make(chan struct{})}
	if err := e.startWatchdog(); err != nil {
		_ = ep.Close()
		counters.Retire()
		return nil, err
	}
	e.sleepers.Board, e.sleepers.OnSleep = board, func() {
		e.watchdog.armAll()
		e.deferredCopies.startWorkers()
	}
	e.noStreams = sync.NewCond(&e.mu)
	e.dispatcher.init(e)
	e.notifyPoller.init(&e.dispatcher.posted)
	e.wg.Go(e.serve)
	e.wg.Go(e.dispatcher.run)
	e.tailProber.more = make(chan struct{}, 1)
	e.wg.Go(func() { e.tailProber.run(e.stop) })
	return e, nil
}

// Close ends all links with [ErrClosed] and waits until nothing of the engine
// runs any more. It must not be called from a notification handler.
func (e *Engine) Close() {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return
	}
	e.closed = true
	streams := make([]*stream, 0, len(e.streams))
	for _, s := range e.streams {
		streams = append(streams, s)
	}
	e.mu.Unlock()
	for _, s := range streams {
		s.fail(errLeaves)
	}
	close(e.stop)
	e.mu.Lock()
	for len(e.streams) > 0 {
		e.noStreams.Wait()
	}
	e.mu.Unlock()
	e.sleepers.Wake()
	e.dispatcher.close()
	for !e.polling.CompareAndSwap(false, true) { // a waiter may be about to look at the set
		runtime.Gosched()
	}
	e.watchdog.close()
	e.batch.close() // who comes late would add to a set that is another one's
	e.deferredCopies.close()
	_ = e.ep.Close()
	e.wg.Wait()
	e.counters.Retire()
}

// Counters is a descriptor of what all links count in, for the node; the caller closes it.
func (e *Engine) Counters() (int, error) { return e.counters.Descriptor() }

// serve is the background goroutine. It takes events until there are none and
// parks on the runtime's poller, in which the epoll set is edge-triggered.
func (e *Engine) serve() {
	var events [16]unix.Event
	for {
		n, err := e.ep.Wait(events[:])
		if err != nil {
			return // closed
		}
		e.dispatch(events[:n])
	}
}

// dispatch serves events. Whoever takes an event off the set must serve it:
// it is one-shot, and nobody else will hear of it.
func (e *Engine) dispatch(events []unix.Event) {
	for _, ev := range events {
		switch ev.ID {
		case batchTimerID:
			e.batchTimerExpired()
			continue
		case watchdogTimerID:
			e.watchdog.timerExpired(e.ep)
			continue
		case copiesTimerID:
			e.deferredCopies.timerExpired(e.ep)
			continue
		}
		e.mu.RLock()
		s := e.streams[ev.ID>>1]
		e.mu.RUnlock()
		switch {
		case s == nil: // closed meanwhile
		case ev.ID&1 == 1:
			s.handleWritable()
		default:
			s.handleReadable()
		}
	}
}

// register gives s a number and arms it; s is served from then on.
func (e *Engine) register(s *stream) error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return ErrClosed
	}
	e.lastID++
	s.id = e.lastID
	e.streams[s.id] = s
	e.mu.Unlock()
	return e.ep.Add(s.fd, s.id<<1, false)
}

func (e *Engine) unregister(s *stream) {
	e.mu.Lock()
	delete(e.streams, s.id)
	if len(e.streams) == 0 {
		e.noStreams.Broadcast()
	}
	e.mu.Unlock()
	e.markCold(s)
}

// markCold ends the polling of s.
func (e *Engine) markCold(s *stream) {
	for i := range e.hot {
		if e.hot[i].CompareAndSwap(s, nil) {
			s.hot.Store(false)
		}
	}
}

// maxEmptyPolls is after how many looks in vain, over all waits, a link is left to the
// background: polling it costs a system call a look.
const maxEmptyPolls = 4096

// On a processor that is shared the other end waits for each look, a system call: of several links one that
// has brought nothing for skipAfter of them gets every seldom'th.
const (
	skipAfter = 64
	pollEvery = 8
)

// skipPoll says whether to leave s out this time; with the token.
func (s *stream) skipPoll() bool {
	if s.emptyPolls < skipAfter {
		return false
	}
	if s.waiterAsleep.Load() {
		s.waiterAsleep.Store(false)
		s.emptyPolls = 0
		return false
	}
	s.skippedPolls = (s.skippedPolls + 1) % pollEvery
	return s.skippedPolls != 0
}

// markHot notes that messages arrive on s: waiters will poll it.
func (e *Engine) markHot(s *stream) {
	if s.hot.Load() {
		return
	}
	s.hot.Store(true)
	i := e.hotNext.Add(1) % uint32(len(e.hot))
	if old := e.hot[i].Swap(s); old != nil {
		old.hot.Store(false)
	}
}

// Wait returns when l holds. An error is the context's, or [ErrClosed].
func (e *Engine) Wait(ctx context.Context, l wait.Cond) error { return e.wait(ctx, &l, nil) }

// PlainLooks is how often who waits for a word alone looks at it first, with no call that the return from would come between its store
// and who waited, and then calls [Engine.WaitPolled].
func (e *Engine) PlainLooks() int {
	if !e.onlyMemory() {
		return 0
	}
	return e.budget.PlainLooks()
}

// WaitPolled is Wait for who has looked.
func (e *Engine) WaitPolled(ctx context.Context, l wait.Cond) error {
	if l.Done() || e.pollSockets(ctx, &l, nil) {
		return nil
	}
	return e.sleep(ctx, &l, nil)
}

// wait is Wait for something that writing on own helps to come about; nil for none.
func (e *Engine) wait(ctx context.Context, l *wait.Cond, own *stream) error {
	if e.poll(ctx, l, own) {
		return nil
	}
	if own != nil {
		own.waiterAsleep.Store(true)
	}
	return e.sleep(ctx, l, own)
}

// poll looks for as long as looking is worth while, and says whether l holds.
func (e *Engine) poll(ctx context.Context, l *wait.Cond, own *stream) (found bool) {
	if l.Done() || own == nil && e.onlyMemory() && e.budget.PollPlain(l) {
		return true
	}
	return e.pollSockets(ctx, l, own)
}

// pollSockets is look after plain looks.
func (e *Engine) pollSockets(ctx context.Context, l *wait.Cond, own *stream) (found bool) {
	if e.deferredCopies.pending.Load() && e.deferredCopies.copyWhileWaiting(ctx, l) {
		return true
	}
	if !e.acquirePoller() {
		return false
	}
	found = e.spin(ctx, l, own)
	e.polling.Store(false)
	return found
}

// onlyMemory says that nobody who waits has anything else to look at. What becomes busy after these loads is seen by the looking that
// follows plain looks in vain, or by the background, which has whatever no waiter holds; so no order among them is needed.
func (e *Engine) onlyMemory() bool {
	for i := range e.hot {
		if e.hot[i].Load() != nil {
			return false
		}
	}
	return !e.batch.pending.Load() && !e.deferredCopies.pending.Load()
}

// shortSleep is how short a sleep is that was broken off by something else than what was
// waited for, for its end to be worth looking on.
const shortSleep = time.Millisecond

// sleep parks the goroutine until l holds. Where messages come that are not what
// is waited for, it looks again, and serves them while it does.
func (e *Engine) sleep(ctx context.Context, l *wait.Cond, own *stream) error {
	for {
		found, err := e.sleepers.Sleep(ctx, l, e.stop, shortSleep)
		switch {
		case errors.Is(err, wait.ErrStopped):
			return ErrClosed
		case err != nil || found || e.poll(ctx, l, own):
			return err
		}
	}
}

// assistedWriters are the streams whose unwritten frames a waiter writes.
type assistedWriters struct {
	list [len(Engine{}.hot) + 1]*stream
	n    int
}

// assist writes on s if it was stuck, and says whether the socket took anything. Long messages may come the other way: see writeQuantum.
func (w *assistedWriters) assist(s *stream, both bool) bool {
	if !s.tx.writeBlocked.Load() {
		return false
	}
	if !slices.Contains(w.list[:w.n], s) {
		s.beginWrite()
		w.list[w.n] = s
		w.n++
	}
	return s.flushSome(both || s.e.bulkActivity.bulkArriving())
}

// finish ends that. again says that the waiter does not sleep next.
func (w *assistedWriters) finish(again bool) {
	for _, s := range w.list[:w.n] {
		if again {
			s.endWriteSoon()
		} else {
			s.endWrite()
		}
	}
}

// spin looks, and polls the hot links between looks, until the budget is used.
func (e *Engine) spin(ctx context.Context, l *wait.Cond, own *stream) (found bool) {
	sp := e.budget.Begin(own != nil && own.bulkInFlight()) // which may yield: before anything is held
	var held [len(e.hot)]*stream
	n := e.acquireHot(&held)
	var events [4]unix.Event
	var w assistedWriters
	wrote := false
	for i := 0; ; i++ {
		if found = l.Done(); found {
			break
		}
		cost := 1
		moved := own != nil && w.assist(own, false)
		if e.batch.pending.Load() {
			any, short := e.batch.flush(own)
			moved, wrote = any || moved, short || wrote
			cost += 16
		}
		for _, s := range held[:n] {
			if n == 1 || s == own || !sp.Shared() || !s.skipPoll() {
				cost += 16
				if s.emptyPolls++; s.receive(1) {
					s.emptyPolls = 0
					moved = true
				}
				if s.ackDeferred && sp.Shared() { // the next look comes when others have run
					s.flushDeferredAck(true)
				}
			}
			if s != own && w.assist(s, false) {
				moved = true
			}
		}
		if i%startWorkerAfter == startWorkerAfter-1 {
			e.deferredCopies.startWorkers()
		}
		if n > 0 && i&31 == 31 {
			e.watchdog.postponeIfDue()
			e.dispatch(events[:e.ep.Look(events[:])])
		}
		if moved {
			if found = l.Done(); found { // before all that is only for looking on
				break
			}
			if ctx.Err() != nil { // a peer can go on for ever
				break
			}
			if r := &e.dispatcher.justRoused; r.Load() { // before its thread is woken, which takes longer than a handler may
				r.Store(false)
				runtime.Gosched()
			}
			sp.Restart() // where something goes on more will come
			cost = 1     // and may be what was waited for: no yield before it is looked at
		}
		if !sp.Next(cost) {
			break
		}
	}
	sp.End()
	often := n > 0 && e.watchdog.frequentWaits(sp.Now())
	// What was written may be answered, and nobody listen; and who knows how long a handler takes.
	rest := often && found && !wrote && !e.notifyPoller.active.Load() && !e.sleepers.Asleep()
	for _, s := range held[:n] {
		if s.emptyPolls > maxEmptyPolls {
			s.emptyPolls = 0
			e.markCold(s)
			s.releaseArmed()
			continue
		}
		if rest {
			s.releaseUnarmed()
		} else {
			s.releaseArmed()
		}
	}
	w.finish(found && !e.notifyPoller.active.Load()) // the lookout sleeps next, in any case
	if rest {
		e.watchdog.sweep()
	}
	return found
}

// acquireHot takes the hot links that nobody else has, and says how many.
func (e *Engine) acquireHot(held *[len(Engine{}.hot)]*stream) (n int) {
	for i := range e.hot {
		if s := e.hot[i].Load(); s != nil && s.tryTokenDisarmed() {
			held[n] = s
			n++
		}
	}
	return n
}

// newTimer is one of the set, whose events have the id: who takes events off the set hears it, and setting it wakes nobody.
// There is none where descriptors have run out.
func newTimer(ep *unix.Epoll, id uint64) (*unix.Timer, error) {
	t, err := unix.NewTimer()
	if err != nil {
		return nil, err
	}
	if err := ep.Add(t.Descriptor(), id, false); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}
