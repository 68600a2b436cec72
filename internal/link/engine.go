package link

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/link/sendbuf"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// Engine serves the links of one process.
type Engine struct {
	ep       *unix.Epoll
	sleepers wait.Sleepers
	budget   wait.Budget
	// A waiter polls the sockets. One does at a time; more would starve each other.
	polling        atomic.Bool
	hot            [4]atomic.Pointer[stream] // Links that waiters poll.
	hotNext        atomic.Uint32
	dispatcher     dispatcher
	notifyPoller   notifyPoller
	batch          batch
	deferredCopies deferredCopies
	watchdog       rearmWatchdog
	bulkActivity   bulkActivity
	tailProber     tailProber
	segmentPool    sendbuf.Pool
	counters       *shmlayout.Counters
	tracer         func(Step) // nil unless the program traces.

	mu        sync.RWMutex
	streams   map[uint64]*stream
	lastID    uint64
	noStreams *sync.Cond // Signaled when streams is empty.
	closed    bool

	stop chan struct{}
	wg   sync.WaitGroup
}

// NewEngine starts an engine. board is that of the process's own page.
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
	e.batch.init(ep, batchTimerID)
	e.deferredCopies.init(ep, copiesTimerID)
	e.watchdog.init(ep, watchdogTimerID)
	if err := e.watchdog.open(); err != nil { // there is no other goroutine yet
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

// Close ends all links with [ErrClosed] and waits until nothing of the engine runs any more. It
// must not be called from a notification handler.
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
	for !e.polling.CompareAndSwap(false, true) { // a waiter may be about to use the epoll set
		runtime.Gosched()
	}
	e.watchdog.close()
	// a late waiter would otherwise add to an epoll set whose descriptor has been reused
	e.batch.close()
	e.deferredCopies.close()
	_ = e.ep.Close()
	e.wg.Wait()
	e.counters.Retire()
}

// Counters returns a descriptor of the counters of all links, for the node. The caller closes it.
func (e *Engine) Counters() (int, error) { return e.counters.Descriptor() }

// serve is the background goroutine. It handles events until there are none and then parks on the
// runtime's poller, in which the epoll set is edge-triggered.
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

// dispatch handles events. The goroutine that takes an event off the set must handle it: events are
// one-shot, and no other goroutine sees it.
func (e *Engine) dispatch(events []unix.Event) {
	for _, ev := range events {
		switch ev.ID {
		case batchTimerID:
			e.batch.timerExpired()
			continue
		case watchdogTimerID:
			e.watchdog.timerExpired()
			continue
		case copiesTimerID:
			e.deferredCopies.timerExpired()
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

// register numbers s and arms it. s is served from then on.
func (e *Engine) register(s *stream) error {
	e.mu.Lock() // until it is armed: Close ends only streams whose start has not failed
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	e.lastID++
	s.id = e.lastID
	err := e.ep.Add(s.fd, s.id<<1, false)
	if err == nil {
		e.streams[s.id] = s // the event of one that is ready already finds it behind mu
	}
	return err
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

// markCold ends the polling of s by waiters.
func (e *Engine) markCold(s *stream) {
	for i := range e.hot {
		if e.hot[i].CompareAndSwap(s, nil) {
			s.hot.Store(false)
		}
	}
}

// maxEmptyPolls is the number of polls without data, over all waits, after which a link is left to
// the background goroutine: each poll costs a system call.
const maxEmptyPolls = 4096

// markHot records that messages arrive on s: waiters will poll it.
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

// PlainLooks returns how often a caller that waits for one word may look at it by itself before it
// calls [Engine.WaitPolled]. A look by the caller saves a return between the store and the waiter.
func (e *Engine) PlainLooks() int {
	if !e.onlyMemory() {
		return 0
	}
	return e.budget.PlainLooks()
}

// WaitPolled is Wait for a caller that has already looked.
func (e *Engine) WaitPolled(ctx context.Context, l wait.Cond) error {
	if l.Done() || e.pollSockets(ctx, &l, nil) {
		return nil
	}
	return e.sleep(ctx, &l, nil)
}

// wait is Wait for a condition that writing on own helps to bring about. own may be nil.
func (e *Engine) wait(ctx context.Context, l *wait.Cond, own *stream) error {
	if e.poll(ctx, l, own) {
		return nil
	}
	if own != nil {
		own.waiterAsleep.Store(true)
	}
	return e.sleep(ctx, l, own)
}

// poll looks for as long as that is worthwhile, and reports whether l holds.
func (e *Engine) poll(ctx context.Context, l *wait.Cond, own *stream) (found bool) {
	if l.Done() || own == nil && e.onlyMemory() && e.budget.PollPlain(l) {
		return true
	}
	return e.pollSockets(ctx, l, own)
}

// pollSockets is poll after the plain looks.
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

// onlyMemory reports whether a waiter has nothing to poll but memory. A link or copy that becomes
// active after these loads is noticed by the polling after the plain looks, or by the background
// goroutine, which serves whatever no waiter holds. So the loads need no order.
func (e *Engine) onlyMemory() bool {
	for i := range e.hot {
		if e.hot[i].Load() != nil {
			return false
		}
	}
	return !e.batch.pending.Load() && !e.deferredCopies.pending.Load()
}

// shortSleep bounds a sleep after whose interruption a waiter polls again instead of sleeping on.
const shortSleep = time.Millisecond

// sleep parks the goroutine until l holds. If other messages arrive, it polls again and serves
// them.
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

// assist writes on s if it was write-blocked, and reports whether the socket took anything. both
// applies the write quantum, because long messages may come the other way. See writeQuantum.
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

// finish ends that. again reports that the waiter does not sleep next.
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
	sp := e.budget.Begin(own != nil && own.h.bulkInFlight()) // may yield, so before any token is held
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
				// on a shared CPU the next poll comes after others have run
				if s.ackDeferred && sp.Shared() {
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
			if found = l.Done(); found { // before the work that only serves further polling
				break
			}
			if ctx.Err() != nil { // a peer can send without end
				break
			}
			// let the dispatcher run here: waking its thread takes longer than a handler may
			if r := &e.dispatcher.justRoused; r.Load() {
				r.Store(false)
				runtime.Gosched()
			}
			sp.Restart() // more is likely to come
			cost = 1     // it may be what the caller waits for: look before a yield
		}
		if !sp.Next(cost) {
			break
		}
	}
	sp.End()
	often := n > 0 && e.watchdog.frequentWaits(sp.Now())
	// Written data may be answered while no goroutine listens, and a handler may take long: arm the
	// links then.
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
	w.finish(found && !e.notifyPoller.active.Load()) // the notify poller sleeps next in any case
	if rest {
		e.watchdog.sweep()
	}
	return found
}

// acquireHot takes the tokens of the hot links that are free, and returns their number.
func (e *Engine) acquireHot(held *[len(Engine{}.hot)]*stream) (n int) {
	for i := range e.hot {
		if s := e.hot[i].Load(); s != nil && s.tryTokenDisarmed() {
			held[n] = s
			n++
		}
	}
	return n
}
