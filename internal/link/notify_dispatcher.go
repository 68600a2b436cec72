package link

import (
	"bytes"
	"context"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// dispatcher runs notification handlers on a goroutine of its own, one at a time for the whole
// process. It never runs them under a token or on the goroutine that serves links, so a handler may
// wait for a Get on the link that notified it. External events run in order among them.
type dispatcher struct {
	mu   sync.Mutex
	cond *sync.Cond
	jobs []job // Each link at most once.
	// Blocks in effect, without those of the running handler.
	blockDepth int
	// A handler runs or may begin to: rings are polled.
	handlerRunning bool
	// The ring poller has links, whose notifications may be in no job.
	ringsPolled bool
	gate        *Gate // nil: only blockDepth decides. Set before the first notification.
	// Blocks made by the running handler. Only its goroutine stores it.
	handlerBlocks int
	goroutineID   uint64
	closed        bool
	sleeping      bool // On posted, among other words.

	// 1: polling and sleeping must end, because something has come.
	posted atomic.Uint32
	rings  ringPoller // Used by the dispatcher's goroutine only.
	// Links with credits to return. Used by the dispatcher's goroutine only.
	creditsDue []*Responder
	// A notification came over a stream since the sockets were last polled. Used by the
	// dispatcher's goroutine only.
	streamNotified bool
	e              *Engine

	// By the export whose next notification is awaited.
	exportWaiters map[uint64]*notifyWaiters
	waiterCount   atomic.Int32 // Number of such waiters. Stored under mu.
	// A notification for them may have come since the queue was last searched.
	recheck bool

	waitingForJobs bool // The goroutine waits on cond.
	// It did, and a job has come: a hint to waiters that poll.
	justRoused atomic.Bool
}

// job is a link that may have notifications, or an event. in an event's job is the link that has
// ended, if any.
type job struct {
	responder *Responder
	event     func()
}

func (q *dispatcher) init(e *Engine) {
	q.cond, q.e, q.exportWaiters = sync.NewCond(&q.mu), e, map[uint64]*notifyWaiters{}
}

// enqueue queues a link. rs.inJobQueue reports whether it is queued already. It is cleared before
// the link's notifications are taken, so one that comes meanwhile queues the link again.
func (q *dispatcher) enqueue(rs *Responder) {
	if rs.inJobQueue.CompareAndSwap(false, true) {
		q.pushJob(job{responder: rs})
	} else if q.waiterCount.Load() > 0 {
		q.recheckWaiters()
	}
}

// recheckWaiters searches the queue for awaited notifications while handlers are blocked.
func (q *dispatcher) recheckWaiters() {
	q.mu.Lock()
	q.recheck = true
	q.post()
	q.mu.Unlock()
	q.cond.Broadcast()
}

// notifyWaiters are the goroutines that wait for the next notification of one export. One
// notification serves all of them.
type notifyWaiters struct{ n int32 }

// runAwaited runs the handler of an awaited notification while others are blocked. The caller holds
// mu.
func (q *dispatcher) runAwaited() {
	q.recheck = false
	var ins []*Responder
	for _, j := range q.jobs {
		if j.responder != nil && !slices.Contains(ins, j.responder) {
			ins = append(ins, j.responder)
		}
	}
	exports := slices.Collect(maps.Keys(q.exportWaiters))
	q.handlerRunning = true
	var served uint64
	ran := q.unlocked(func() bool {
		for _, rs := range ins {
			for _, export := range exports {
				if n, ok := rs.takeForExport(export); ok {
					runningHandlers.Add(1)
					rs.runHandler(n)
					runningHandlers.Add(-1)
					served = export
					return true
				}
			}
		}
		return false
	})
	// their waits are over: no other notification runs for them
	if w := q.exportWaiters[served]; ran && w != nil {
		q.waiterCount.Add(-w.n)
		delete(q.exportWaiters, served)
	}
	q.handlerDone()
	q.recheck = q.recheck || ran
}

// WaitNotification waits for a condition that a handler of an export brings about. While
// notifications are blocked, those of that export run all the same, one for each wait, as
// sigsuspend lets a signal in. When it returns, none of them runs any more.
func (e *Engine) WaitNotification(ctx context.Context, export uint64, l wait.Cond) error {
	q := &e.dispatcher
	q.mu.Lock()
	w := q.exportWaiters[export]
	if w == nil {
		w = new(notifyWaiters)
		q.exportWaiters[export] = w
	}
	w.n++
	q.waiterCount.Add(1)
	q.recheck = true
	if q.blockDepth > 0 {
		q.post()
		q.cond.Broadcast()
	}
	q.mu.Unlock()
	err := e.Wait(ctx, l)
	q.mu.Lock()
	// the running handler may be this wait's
	for q.handlerRunning && q.blockDepth > 0 && !q.closed {
		q.cond.Wait()
	}
	if q.exportWaiters[export] == w {
		q.waiterCount.Add(-1)
		if w.n--; w.n == 0 {
			delete(q.exportWaiters, export)
		}
	}
	q.mu.Unlock()
	if err != nil && l.Done() {
		err = nil
	}
	return err
}

func (q *dispatcher) pushJob(j job) {
	q.mu.Lock()
	q.jobs = append(q.jobs, j)
	q.recheck = true
	q.post()
	if q.waitingForJobs {
		q.waitingForJobs = false
		q.justRoused.Store(true)
	}
	q.mu.Unlock()
	q.cond.Broadcast()
}

func (q *dispatcher) close() {
	q.mu.Lock()
	q.closed = true
	q.post()
	q.mu.Unlock()
	q.cond.Broadcast()
}

// post ends polling and sleeping. The caller holds mu.
func (q *dispatcher) post() {
	q.posted.Store(1)
	if q.sleeping {
		unix.Rouse(&q.posted)
	}
}

// linkEnded ends the polling of a link that has ended.
func (q *dispatcher) linkEnded(rs *Responder) {
	if rs.inRingPoller.Load() {
		q.mu.Lock()
		q.post()
		q.mu.Unlock()
	}
}

func (q *dispatcher) run() {
	id := goroutineID()
	handlerGoroutines.Store(id, q)
	defer handlerGoroutines.Delete(id)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.goroutineID = id
	for {
		j, ok := q.nextJob()
		if !ok {
			q.ringsPolled = false
			q.cond.Broadcast()
			return
		}
		if invariant.Enabled {
			q.check(false)
		}
		q.handlerRunning = true
		q.mu.Unlock()
		runningHandlers.Add(1)
		q.runJob(&j)
		runningHandlers.Add(-1)
		q.mu.Lock()
		q.gate.leave()
		q.handlerDone()
	}
}

// nextJob waits for the next job, and enters the gate for it. The caller holds mu. After notifications
// it polls for a while, runs their handlers itself, and then sleeps on their rings.
func (q *dispatcher) nextJob() (j job, ok bool) {
	for !q.closed {
		switch {
		case q.creditsFirst():
			q.unlocked(func() bool { q.flushCredits(); return true })
		case q.blockDepth == 0 && len(q.jobs) > 0 && !q.gate.enter():
			q.awaitGate()
		case q.blockDepth == 0 && len(q.jobs) > 0:
			q.rings.enqueue(q)
			j = q.jobs[0]
			n := copy(q.jobs, q.jobs[1:])
			q.jobs[n] = job{}
			q.jobs = q.jobs[:n]
			return j, true
		case q.blockDepth > 0 && q.rings.n == 0 && q.recheck && len(q.exportWaiters) > 0:
			q.runAwaited()
		case q.rings.n == 0 && q.streamNotified && q.blockDepth == 0:
			q.streamNotified = false
			q.posted.Store(0) // nothing is there; a later job sets it again under mu
			q.unlocked(func() bool { q.e.pollAfterHandler(); return true })
		case len(q.creditsDue) > 0:
			q.unlocked(func() bool { q.flushCredits(); return true })
		case q.rings.n == 0:
			q.waitingForJobs = true
			q.cond.Wait()
			q.waitingForJobs = false
		case q.blockDepth > 0:
			q.stopPolling()
		default:
			q.posted.Store(0) // nothing is there; a later job sets it again under mu
			q.pollAndSleep()
		}
	}
	return job{}, false
}

// pollAndSleep polls, sleeps if nothing comes, and stops polling if it cannot sleep. The caller
// holds mu.
func (q *dispatcher) pollAndSleep() {
	q.handlerRunning = true
	quiet := q.unlocked(func() bool { return q.rings.poll(q) })
	q.handlerDone()
	if !quiet || q.posted.Load() != 0 {
		return
	}
	q.sleeping = true
	slept := q.unlocked(func() bool { return q.rings.sleep(q) })
	q.sleeping = false
	if !slept {
		if q.rings.refusals++; q.rings.refusals >= maxRefusals || !unix.CanSleepOnWords() {
			q.stopPolling()
		}
	}
}

// stopPolling releases all rings. What they hold is in jobs then. The caller holds mu.
func (q *dispatcher) stopPolling() {
	q.unlocked(func() bool { q.rings.releaseAll(q); return true })
	q.ringsPolled = false
	q.cond.Broadcast()
}

// creditsFirst reports whether deferred credits must be returned before a handler of another link
// runs, which may take long. The caller holds mu.
func (q *dispatcher) creditsFirst() bool {
	if len(q.creditsDue) == 0 {
		return false
	}
	return len(q.jobs) > 0 && (len(q.creditsDue) > 1 || q.jobs[0].responder != q.creditsDue[0])
}

// flushCredits returns the deferred credits.
func (q *dispatcher) flushCredits() {
	for _, rs := range q.creditsDue {
		rs.creditsDue = false
		rs.tmu.Lock()
		if rs.credits() != uint32(rs.lastAckSent[1]) {
			rs.ackDue = true
			rs.pump()
		}
		rs.tmu.Unlock()
	}
	clear(q.creditsDue)
	q.creditsDue = q.creditsDue[:0]
}

// unlocked calls f without mu, which the caller holds.
func (q *dispatcher) unlocked(f func() bool) bool {
	q.mu.Unlock()
	defer q.mu.Lock()
	return f()
}

// handlerDone records that no handler runs any more. The caller holds mu.
func (q *dispatcher) handlerDone() {
	if invariant.Enabled {
		q.check(true)
	}
	q.handlerRunning, q.ringsPolled = false, q.rings.n > 0
	q.blockDepth, q.handlerBlocks = q.blockDepth+q.handlerBlocks, 0
	q.cond.Broadcast()
}

// runJob runs one notification, or an event.
func (q *dispatcher) runJob(j *job) {
	switch {
	case j.event == nil:
		j.responder.inJobQueue.Store(false)
		// The ring poller finds what comes to the ring. The next notification may be among those
		// received over the stream.
		delivered := j.responder.runNext()
		q.streamNotified = q.streamNotified || delivered && j.responder.pages == nil
		if delivered && (!q.rings.add(q, j.responder) || j.responder.HasNotifications()) {
			q.enqueue(j.responder) // behind other links
		}
	case j.responder != nil && j.responder.HasNotifications():
		q.pushJob(*j) // behind the link's own job; nothing is added to the link any more
	default:
		j.event()
	}
}

// inHandler reports whether the caller is this dispatcher's running handler.
func (q *dispatcher) inHandler() bool {
	id := goroutineID()
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.handlerRunning && q.goroutineID == id
}

// Block keeps handlers from running until as many Unblocks. When it returns, no handler runs except
// the caller, and [Engine.HasQueued] and [Responder.Pending] find all notifications that wait.
func (e *Engine) Block() {
	q := &e.dispatcher
	if q.inHandler() {
		q.mu.Lock()
		q.handlerBlocks++
		q.mu.Unlock()
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.blockDepth++
	q.recheck = true
	// another goroutine may unblock meanwhile
	for q.handlerRunning || q.ringsPolled && q.blockDepth > 0 && !q.closed {
		q.post() // or the dispatcher would poll on
		q.cond.Wait()
	}
}

// Unblock undoes one Block and returns how many are left. In a handler the last level is the
// handler's own and stays.
func (e *Engine) Unblock() (remaining int, err error) {
	q := &e.dispatcher
	if q.inHandler() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.handlerBlocks == 0 {
			return 1, ErrInHandler
		}
		q.handlerBlocks--
		if invariant.Enabled {
			q.check(true)
		}
		return q.handlerBlocks + 1, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.blockDepth > 0 {
		q.blockDepth--
	}
	if invariant.Enabled {
		q.check(q.handlerRunning)
	}
	if q.blockDepth == 0 {
		q.cond.Broadcast()
	}
	return q.blockDepth, nil
}

// Blocked reports whether handlers are kept from running.
func (e *Engine) Blocked() bool {
	e.dispatcher.mu.Lock()
	defer e.dispatcher.mu.Unlock()
	return e.dispatcher.blockDepth > 0 || !e.dispatcher.gate.open()
}

// HasQueued reports whether notifications of an export are queued whose import has ended, which
// [Responder.Pending] does not find.
func (e *Engine) HasQueued(export uint64) bool {
	q := &e.dispatcher
	q.mu.Lock()
	jobs := slices.Clone(q.jobs)
	q.mu.Unlock()
	for _, j := range jobs {
		if j.responder != nil && j.responder.holdsExport(export) {
			return true
		}
	}
	return false
}

// Event runs f as handlers are run, in order. If of is not nil, f runs after the notifications of
// that link, which has ended.
func (e *Engine) Event(
	of *Responder, f func(),
) {
	e.dispatcher.pushJob(job{responder: of, event: f})
}

// Wake makes all waiters check their conditions.
func (e *Engine) Wake() { e.sleepers.Wake() }

// NotifyWaiters returns how many goroutines wait for the notification of one export.
func (e *Engine) NotifyWaiters() int { return int(e.dispatcher.waiterCount.Load()) }

// runningHandlers counts the notification handlers that run in this program. While it is not zero,
// a caller's goroutine is looked up in handlerGoroutines, those that run handlers.
var (
	runningHandlers   atomic.Int32
	handlerGoroutines sync.Map
)

// InHandler reports whether the caller is a notification handler of any process that this program
// has open. It costs one load while none runs.
func InHandler() bool {
	if runningHandlers.Load() == 0 {
		return false
	}
	_, ok := handlerGoroutines.Load(goroutineID())
	return ok
}

// goroutineID returns the number of the calling goroutine. The runtime tells it only in the first
// line of a trace, "goroutine 7 [running]:". That form has not changed since Go 1.0;
// golang.org/x/net/http2 reads it there too.
func goroutineID() uint64 {
	var b [64]byte
	s := bytes.TrimPrefix(b[:runtime.Stack(b[:], false)], []byte("goroutine "))
	n, _ := strconv.ParseUint(string(s[:max(0, bytes.IndexByte(s, ' '))]), 10, 64)
	return n
}
