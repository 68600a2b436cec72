package link

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/page"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// Engine serves the links of one process.
type Engine struct {
	ep       *unix.Epoll
	sleepers wait.Sleepers
	budget   wait.Budget
	spinning atomic.Bool // one waiter at a time polls; more would starve each other
	hot      [4]atomic.Pointer[stream]
	hotNext  atomic.Uint32
	notes    noteQueue
	lookout  lookout
	batch    batch
	copies   copies
	guard    guard
	glancer  glancer
	idlers   idlers
	keeps    store
	counters *page.Counters
	tracer   func(Step) // nil, or of a program that traces

	mu      sync.RWMutex
	streams map[uint64]*stream
	next    uint64
	empty   *sync.Cond // no streams are left
	closed  bool

	stop chan struct{}
	wg   sync.WaitGroup
}

// NewEngine starts one. board is that of the process's own page.
func NewEngine(board wait.Board) (*Engine, error) {
	ep, err := unix.NewEpoll()
	if err != nil {
		return nil, err
	}
	counters, err := page.NewCounters()
	if err != nil {
		_ = ep.Close()
		return nil, err
	}
	e := &Engine{ep: ep, counters: counters, streams: map[uint64]*stream{}, stop: make(chan struct{})}
	if err := e.startGuard(); err != nil {
		_ = ep.Close()
		counters.Retire()
		return nil, err
	}
	e.sleepers.Board, e.sleepers.Left = board, func() {
		e.guard.leave()
		e.copies.start()
	}
	e.empty = sync.NewCond(&e.mu)
	e.notes.init(e)
	e.lookout.init(&e.notes.posted)
	e.wg.Go(e.serve)
	e.wg.Go(e.notes.run)
	e.idlers.more = make(chan struct{}, 1)
	e.wg.Go(func() { e.idlers.run(e.stop) })
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
		e.empty.Wait()
	}
	e.mu.Unlock()
	e.sleepers.Wake()
	e.notes.close()
	for !e.spinning.CompareAndSwap(false, true) { // a waiter may be about to look at the set
		runtime.Gosched()
	}
	e.guard.close()
	e.batch.close() // who comes late would add to a set that is another one's
	e.copies.close()
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
		case timerID:
			e.expired()
			continue
		case guardID:
			e.guard.expired(e.ep)
			continue
		case copiesID:
			e.copies.expired(e.ep)
			continue
		}
		e.mu.RLock()
		s := e.streams[ev.ID>>1]
		e.mu.RUnlock()
		switch {
		case s == nil: // closed meanwhile
		case ev.ID&1 == 1:
			s.writable()
		default:
			s.readable()
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
	e.next++
	s.id = e.next
	e.streams[s.id] = s
	e.mu.Unlock()
	return e.ep.Add(s.fd, s.id<<1, false)
}

func (e *Engine) forget(s *stream) {
	e.mu.Lock()
	delete(e.streams, s.id)
	if len(e.streams) == 0 {
		e.empty.Broadcast()
	}
	e.mu.Unlock()
	e.cool(s)
}

// cool ends the polling of s.
func (e *Engine) cool(s *stream) {
	for i := range e.hot {
		if e.hot[i].CompareAndSwap(s, nil) {
			s.warm.Store(false)
		}
	}
}

// stale is after how many looks in vain, over all waits, a link is left to the
// background: polling it costs a system call a look.
const stale = 4096

// On a processor that is shared the other end waits for each look, a system call: of several links one that
// has brought nothing for seldomAfter of them gets every seldom'th.
const (
	seldomAfter = 64
	seldom      = 8
)

// passOver says whether to leave s out this time; with the token.
func (s *stream) passOver() bool {
	if s.idle < seldomAfter {
		return false
	}
	if s.sought.Load() {
		s.sought.Store(false)
		s.idle = 0
		return false
	}
	s.passed = (s.passed + 1) % seldom
	return s.passed != 0
}

// warm notes that messages arrive on s: waiters will poll it.
func (e *Engine) warm(s *stream) {
	if s.warm.Load() {
		return
	}
	s.warm.Store(true)
	i := e.hotNext.Add(1) % uint32(len(e.hot))
	if old := e.hot[i].Swap(s); old != nil {
		old.warm.Store(false)
	}
}

// Wait returns when l holds. An error is the context's, or [ErrClosed].
func (e *Engine) Wait(ctx context.Context, l wait.Look) error { return e.wait(ctx, &l, nil) }

// Looks is how often who waits for a word alone looks at it first, with no call that the return from would come between its store
// and who waited, and then calls [Engine.WaitOn].
func (e *Engine) Looks() int {
	if !e.memoryAlone() {
		return 0
	}
	return e.budget.Looks()
}

// WaitOn is Wait for who has looked.
func (e *Engine) WaitOn(ctx context.Context, l wait.Look) error {
	if l.Done() || e.lookOn(ctx, &l, nil) {
		return nil
	}
	return e.sleep(ctx, &l, nil)
}

// wait is Wait for something that writing on own helps to come about; nil for none.
func (e *Engine) wait(ctx context.Context, l *wait.Look, own *stream) error {
	if e.look(ctx, l, own) {
		return nil
	}
	if own != nil {
		own.sought.Store(true)
	}
	return e.sleep(ctx, l, own)
}

// look looks for as long as looking is worth while, and says whether l holds.
func (e *Engine) look(ctx context.Context, l *wait.Look, own *stream) (found bool) {
	if l.Done() || own == nil && e.memoryAlone() && e.budget.Plain(l) {
		return true
	}
	return e.lookOn(ctx, l, own)
}

// lookOn is look after plain looks.
func (e *Engine) lookOn(ctx context.Context, l *wait.Look, own *stream) (found bool) {
	if e.copies.some.Load() && e.copies.work(ctx, l) {
		return true
	}
	if !e.turn() {
		return false
	}
	found = e.spin(ctx, l, own)
	e.spinning.Store(false)
	return found
}

// memoryAlone says that nobody who waits has anything else to look at. What becomes busy after these loads is seen by the looking that
// follows plain looks in vain, or by the background, which has whatever no waiter holds; so no order among them is needed.
func (e *Engine) memoryAlone() bool {
	for i := range e.hot {
		if e.hot[i].Load() != nil {
			return false
		}
	}
	return !e.batch.some.Load() && !e.copies.some.Load()
}

// nap is how short a sleep is that was broken off by something else than what was
// waited for, for its end to be worth looking on.
const nap = time.Millisecond

// sleep parks the goroutine until l holds. Where messages come that are not what
// is waited for, it looks again, and serves them while it does.
func (e *Engine) sleep(ctx context.Context, l *wait.Look, own *stream) error {
	for {
		found, err := e.sleepers.Sleep(ctx, l, e.stop, nap)
		switch {
		case errors.Is(err, wait.ErrStopped):
			return ErrClosed
		case err != nil || found || e.look(ctx, l, own):
			return err
		}
	}
}

// writers are the streams whose unwritten frames a waiter writes.
type writers struct {
	list [len(Engine{}.hot) + 1]*stream
	n    int
}

// help writes on s if it was stuck, and says whether the socket took anything. Long messages may come the other way: see byTurns.
func (w *writers) help(s *stream, both bool) bool {
	if !s.tx.stuck.Load() {
		return false
	}
	if !slices.Contains(w.list[:w.n], s) {
		s.attend()
		w.list[w.n] = s
		w.n++
	}
	return s.advance(both || s.e.glancer.lately())
}

// leave ends that. again says that the waiter does not sleep next.
func (w *writers) leave(again bool) {
	for _, s := range w.list[:w.n] {
		if again {
			s.handOver()
		} else {
			s.leave()
		}
	}
}

// spin looks, and polls the hot links between looks, until the budget is used.
func (e *Engine) spin(ctx context.Context, l *wait.Look, own *stream) (found bool) {
	sp := e.budget.Begin(own != nil && own.bulky()) // which may yield: before anything is held
	var held [len(e.hot)]*stream
	n := e.grasp(&held)
	var events [4]unix.Event
	var w writers
	wrote := false
	for i := 0; ; i++ {
		if found = l.Done(); found {
			break
		}
		cost := 1
		moved := own != nil && w.help(own, false)
		if e.batch.some.Load() {
			any, short := e.batch.write(own)
			moved, wrote = any || moved, short || wrote
			cost += 16
		}
		for _, s := range held[:n] {
			if n == 1 || s == own || !sp.Shared() || !s.passOver() {
				cost += 16
				if s.idle++; s.receive(1) {
					s.idle = 0
					moved = true
				}
				if s.later && sp.Shared() { // the next look comes when others have run
					s.settle(true)
				}
			}
			if s != own && w.help(s, false) {
				moved = true
			}
		}
		if i%leftLooks == leftLooks-1 {
			e.copies.start()
		}
		if n > 0 && i&31 == 31 {
			e.guard.pass()
			e.dispatch(events[:e.ep.Look(events[:])])
		}
		if moved {
			if found = l.Done(); found { // before all that is only for looking on
				break
			}
			if ctx.Err() != nil { // a peer can go on for ever
				break
			}
			if r := &e.notes.roused; r.Load() { // before its thread is woken, which takes longer than a handler may
				r.Store(false)
				runtime.Gosched()
			}
			sp.Again() // where something goes on more will come
			cost = 1   // and may be what was waited for: no yield before it is looked at
		}
		if !sp.Next(cost) {
			break
		}
	}
	sp.End()
	often := n > 0 && e.guard.frequent(sp.Now())
	// What was written may be answered, and nobody listen; and who knows how long a handler takes.
	rest := often && found && !wrote && !e.lookout.looks.Load() && !e.sleepers.Asleep()
	for _, s := range held[:n] {
		if s.idle > stale {
			s.idle = 0
			e.cool(s)
			s.release()
			continue
		}
		if rest {
			s.rest()
		} else {
			s.release()
		}
	}
	w.leave(found && !e.lookout.looks.Load()) // the lookout sleeps next, in any case
	if rest {
		e.guard.visit()
	}
	return found
}

// grasp takes the hot links that nobody else has, and says how many.
func (e *Engine) grasp(held *[len(Engine{}.hot)]*stream) (n int) {
	for i := range e.hot {
		if s := e.hot[i].Load(); s != nil && s.tryQuiet() {
			held[n] = s
			n++
		}
	}
	return n
}
