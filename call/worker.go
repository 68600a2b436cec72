package call

import (
	"bytes"
	"context"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// One worker, the leader, waits for the requests of all clients, and runs the handler of the one
// that it finds itself: to wake another goroutine would cost a short handler more than its own
// time. So that a long one does not hold up other requests, another worker leads meanwhile:
//
//   - from the beginning, if handlers have taken slowHandler lately, or if they have taken
//     shortHandler and there is another request;
//   - otherwise when a tick finds a handler that ran at the last tick, too. It comes while calls
//     do. Each tick wakes a thread, so it comes less often where all handlers are short: after
//     calmTicks in which none was found, the next ones take twice as long.
//
// If all workers run handlers, the first that has finished leads.
const (
	shortHandler = 3 * time.Microsecond
	slowHandler  = 20 * time.Microsecond

	minTick   = 200 * time.Microsecond
	maxTick   = 16 * minTick
	calmTicks = 16
)

// leading is which worker leads.
type leading struct {
	leader  atomic.Pointer[worker]
	handler atomic.Int64 // how long handlers have taken lately
	workers sync.WaitGroup
	late    sync.WaitGroup // answers that are sent later; workers add to it

	leadMu  sync.Mutex
	idle    []*worker // Guarded by leadMu.
	number  int       // Workers, idle ones included. Guarded by leadMu.
	vacant  bool      // No worker was there to lead. Guarded by leadMu.
	stopped bool      // No worker begins any more. Guarded by leadMu.

	sleepMu sync.Mutex
	sleep   context.Context    //nolint:containedctx // The leader's. Guarded by sleepMu.
	wake    context.CancelFunc // Guarded by sleepMu.

	ticker  *time.Timer
	started atomic.Uint32 // Handlers that leaders have begun.
	resting atomic.Bool   // No tick will come.
	tick    atomic.Int64  // The time between two.
	seen    atomic.Uint32 // What started was at the last one.
	calm    atomic.Uint32 // Ticks since tick was changed.
}

func (l *leading) initLeading(s *Server) {
	l.sleep, l.wake = context.WithCancel(s.taking)
	l.resting.Store(true)
	l.tick.Store(int64(minTick))
	l.ticker = time.AfterFunc(time.Hour, s.ticked)
}

// stopLeading has no worker begin any more. Those that sleep end with Server.taking.
func (l *leading) stopLeading() {
	l.leadMu.Lock()
	l.stopped = true
	l.leadMu.Unlock()
	l.ticker.Stop()
}

// The states of a worker.
const (
	leads      = iota // it waits for requests, or is about to
	runsLeads         // it runs a handler, and leads afterwards, unless a tick has another one lead
	runsBeside        // another worker leads, or none
)

// worker runs handlers.
type worker struct {
	values
	s     *Server
	out   []byte // of an answer's slot
	state atomic.Int32
	lead  chan struct{} // has an element when the worker is to lead

	// The call that it runs.
	conn *conn
	slot int
	void bool
}

func (s *Server) newWorker() *worker {
	return &worker{
		values: s.newValues(), s: s, out: make([]byte, s.answerStride()), lead: make(chan struct{}, 1),
	}
}

// handOver has another worker lead.
func (s *Server) handOver() {
	s.leadMu.Lock()
	defer s.leadMu.Unlock()
	switch n := len(s.idle); {
	case s.stopped:
	case n > 0:
		w := s.idle[n-1]
		s.idle = s.idle[:n-1]
		w.lead <- struct{}{}
	case s.number < s.opts.handlers:
		s.number++
		w := s.newWorker()
		s.workers.Go(w.work)
	default:
		s.vacant = true
	}
}

// awaitLead waits until the worker is to lead. It returns false when the server takes no requests
// any more.
func (w *worker) awaitLead() bool {
	s := w.s
	s.leadMu.Lock()
	if s.vacant {
		s.vacant = false
		s.leadMu.Unlock()
		return true
	}
	s.idle = append(s.idle, w)
	s.leadMu.Unlock()
	select {
	case <-w.lead:
		return true
	case <-s.taking.Done():
		return false
	}
}

// work is a worker's goroutine.
func (w *worker) work() {
	over := false
	defer func() {
		if !over { // the handler has called runtime.Goexit
			w.s.workers.Go(func() {
				w.answer(w.failure(nil))
				if w.finish() || w.awaitLead() {
					w.work()
				}
			})
		}
	}()
	for w.await() {
		w.run()
		if !w.finish() && !w.awaitLead() {
			break
		}
	}
	over = true
}

// await leads: it waits for a request and takes it. It returns false when the server takes no
// requests any more.
func (w *worker) await() bool {
	s := w.s
	w.state.Store(leads)
	s.leader.Store(w)
	for s.taking.Err() == nil {
		if s.take(w) != nil {
			pair.At("serve.taken")
			return true
		}
		s.sleepMu.Lock()
		ctx := s.sleep
		s.sleepMu.Unlock()
		pair.At("serve.sleeps")
		if s.p.WaitUntil(ctx, s.ready) != nil && ctx.Err() == nil {
			return false // the process is closed
		}
	}
	return false
}

// wakeLeader has the leader look again.
func (s *Server) wakeLeader() {
	s.sleepMu.Lock()
	defer s.sleepMu.Unlock()
	s.wake()
	s.sleep, s.wake = context.WithCancel(s.taking)
}

// run runs the handler of the call that the worker has taken, and sends the answer.
func (w *worker) run() {
	s := w.s
	if w.void || w.conn.ctx.Err() != nil {
		w.state.Store(runsLeads)
		w.answer(putText(w.out, voided, "", w.callNumber()))
		return
	}
	if took := time.Duration(s.handler.Load()); took > slowHandler ||
		took > shortHandler && s.anyRequest() {
		w.state.Store(runsBeside)
		s.handOver()
	} else {
		w.state.Store(runsLeads)
		s.started.Add(1) // before the look, see ticked
		if s.resting.Load() && s.resting.CompareAndSwap(true, false) {
			s.ticker.Reset(time.Duration(s.tick.Load()))
		}
	}
	start := time.Now()
	pair.At("serve.runs")
	b := w.call()
	pair.At("serve.ran")
	// One that another thread has interrupted does not count for much more. What other workers
	// store meanwhile may be lost.
	took, was := int64(min(time.Since(start), 5*slowHandler)), s.handler.Load()
	s.handler.Store(was + (took-was)/8)
	w.answer(b)
}

// call runs the handler, and returns the answer.
func (w *worker) call() (b []byte) {
	defer func() {
		if v := recover(); v != nil {
			b = w.failure(v)
		}
	}()
	clear(w.a)
	err := w.values.run(w.conn.ctx)
	number := w.callNumber()
	if err != nil {
		b = putText(w.out, failed, err.Error(), number)
	} else {
		b = w.out[len(w.out)-answerTail-words(len(w.a)):]
		copy(b, w.a)
		clear(b[len(w.a):words(len(w.a))])
		putAnswerTail(b, succeeded, 0, number)
	}
	return b
}

func (w *worker) callNumber() uint64 { return w.conn.slots[w.slot].number }

// failure is the answer of a call whose handler has panicked, or with nil has called
// runtime.Goexit. It is called where the handler's stack is there, in the first case.
func (w *worker) failure(v any) []byte {
	text := "the handler has panicked: see the server's log"
	if v == nil {
		text = "the handler has ended its goroutine"
	}
	w.s.logger().Error("call: "+text, "server", w.s.name, "client", w.conn.im.Exporter(),
		"panic", v, "stack", string(debug.Stack()))
	return putText(w.out, panicked, text, w.callNumber())
}

// answer sends an answer. It never waits: if the link is disconnected, or busy, a goroutine sends
// it later, and so it does with what takes long. A client that does not receive delays only itself.
func (w *worker) answer(b []byte) {
	c, i := w.conn, w.slot
	at := c.answerEnd(i) - len(b)
	if c.ctx.Err() != nil {
		return // the answer might only say that the handler was told to end
	}
	if len(b) <= largeValue || c.im.Path() == vmmc.PathMapped {
		for len(b) > 0 { // a send that has copied a piece looks at its context
			n := min(len(b), shm.Piece)
			if c.im.Send(pair.NoWait, b[:n], at) != nil {
				break
			}
			b, at = b[n:], at+n
		}
		if len(b) == 0 {
			pair.At("serve.answered")
			return
		}
	}
	pair.At("serve.late")
	b = bytes.Clone(b)
	w.conn = nil
	w.s.late.Go(func() { // the worker's own goroutine has not ended
		_ = c.im.Send(c.ctx, b, at)
		w.s.free(c, i, true)
	})
}

// finish frees the slot of the call that the worker has run. It reports whether the worker leads.
func (w *worker) finish() (leads bool) {
	leads = w.state.CompareAndSwap(runsLeads, 0)
	if w.conn != nil {
		w.s.free(w.conn, w.slot, !leads)
		w.conn = nil
	}
	return leads
}

// free frees a slot whose answer was sent. If another worker leads, it may have passed over the
// slot's next request before, and sleep.
func (s *Server) free(c *conn, i int, othersLead bool) {
	r := &c.slots[i]
	r.busy.Store(false)
	if othersLead && r.isNew() {
		s.wakeLeader()
	}
	c.active.Done()
}

// ticked has another worker lead if the leader runs the handler that it ran at the last tick.
func (s *Server) ticked() {
	n := s.started.Load()
	if n == s.seen.Load() {
		if w := s.leader.Load(); w != nil && w.state.CompareAndSwap(runsLeads, runsBeside) {
			s.tick.Store(int64(minTick))
			s.calm.Store(0)
			s.handOver()
		}
		s.resting.Store(true)
		if s.started.Load() == n || !s.resting.CompareAndSwap(true, false) {
			return // the next call has it tick
		}
	}
	s.seen.Store(n)
	pause := s.tick.Load()
	if s.calm.Add(1) == calmTicks {
		s.calm.Store(0)
		pause = min(2*pause, int64(maxTick))
		s.tick.Store(pause)
	}
	s.ticker.Reset(time.Duration(pause))
}
