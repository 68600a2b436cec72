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

// dispatcher runs notification handlers on a goroutine of its own, one at a
// time for the whole process: never under a token nor on the goroutine that
// serves links, so that a handler may wait for a Get on the very link that
// notified it. External events take their turn among them.
type dispatcher struct {
	mu             sync.Mutex
	cond           *sync.Cond
	jobs           []job // each link at most once
	blockDepth     int   // depth of Block, of a handler that does not unblock too
	handlerRunning bool  // a handler runs, or may begin to: rings are polled
	ringsPolled    bool  // the watch has links, whose notes may be in no job
	handlerBlocks  int   // how often that one has blocked; only its goroutine stores it
	goroutineID    uint64
	closed         bool
	sleeping       bool // on posted, among other words

	posted         atomic.Uint32 // 1: something has come that polling and sleeping have to end for
	rings          ringPoller    // of who runs the queue
	creditsDue     []*Responder  // whose importers have credits to come; the same
	streamNotified bool          // a notification has come over a stream since the last look at streams; the same
	e              *Engine

	exportWaiters map[uint64]*notifyWaiters // by the exports of which one notification is waited for
	waiterCount   atomic.Int32              // how many wait; stored with mu
	recheck       bool                      // one may have come since the queue was looked through for them

	waitingForJobs bool        // for more
	justRoused     atomic.Bool // it did, and something has come: a hint, for who looks in this process
}

// job is a link that may have notifications, or an event, with in that of a link
// that has ended.
type job struct {
	responder *Responder
	event     func()
}

func (q *dispatcher) init(e *Engine) {
	q.cond, q.e, q.exportWaiters = sync.NewCond(&q.mu), e, map[uint64]*notifyWaiters{}
}

// enqueue queues a link. in.queued says whether it is in the queue already; it is
// cleared before the link is drained, so a note that comes meanwhile queues it
// again.
func (q *dispatcher) enqueue(rs *Responder) {
	if rs.inJobQueue.CompareAndSwap(false, true) {
		q.pushJob(job{responder: rs})
	} else if q.waiterCount.Load() > 0 {
		q.recheckWaiters()
	}
}

// recheckWaiters has the queue looked through, while notifications are blocked, for those that are
// waited for.
func (q *dispatcher) recheckWaiters() {
	q.mu.Lock()
	q.recheck = true
	q.post()
	q.mu.Unlock()
	q.cond.Broadcast()
}

// notifyWaiters are those that wait for the next notification of one export. It serves all of them.
type notifyWaiters struct{ n int32 }

// runAwaited runs the handler of a notification that is waited for while others are blocked; mu is
// held.
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
	if w := q.exportWaiters[served]; ran && w != nil { // whose waits are over: no other one runs for them
		q.waiterCount.Add(-w.n)
		delete(q.exportWaiters, served)
	}
	q.handlerDone()
	q.recheck = q.recheck || ran
}

// WaitNotification waits for what a handler of an export brings about. While notifications are blocked,
// those of that export run for it all the same, one for each wait, as sigsuspend lets a signal in.
// When it returns, none of them runs any more.
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
	for q.handlerRunning && q.blockDepth > 0 && !q.closed { // it may be this one's
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

// post ends polling and sleeping; mu is held.
func (q *dispatcher) post() {
	q.posted.Store(1)
	if q.sleeping {
		unix.Rouse(&q.posted)
	}
}

// linkEnded is of a link that has ended: it is watched no longer.
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
		q.handlerDone()
	}
}

// nextJob waits for the next job; mu is held. Where notifications have come before it
// polls for a while, and runs their handlers itself, and then sleeps on their rings.
func (q *dispatcher) nextJob() (j job, ok bool) {
	for !q.closed {
		switch {
		case q.creditsFirst():
			q.unlocked(func() bool { q.flushCredits(); return true })
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
			q.posted.Store(0) // nothing is there; what comes sets it again, with mu
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
			q.posted.Store(0) // nothing is there; what comes sets it again, with mu
			q.pollAndSleep()
		}
	}
	return job{}, false
}

// pollAndSleep polls, sleeps if nothing comes, or ends the watch if it cannot; mu is held.
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

// stopPolling ends the watch; mu is held. What it leaves behind is in jobs then.
func (q *dispatcher) stopPolling() {
	q.unlocked(func() bool { q.rings.releaseAll(q); return true })
	q.ringsPolled = false
	q.cond.Broadcast()
}

// creditsFirst says whether credits are to be paid that were put off: before a handler runs for another link's, which may take long; mu is held.
func (q *dispatcher) creditsFirst() bool {
	if len(q.creditsDue) == 0 {
		return false
	}
	return len(q.jobs) > 0 && (len(q.creditsDue) > 1 || q.jobs[0].responder != q.creditsDue[0])
}

// flushCredits returns the credits that were put off.
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

// unlocked does f without mu, which is held.
func (q *dispatcher) unlocked(f func() bool) bool {
	q.mu.Unlock()
	defer q.mu.Lock()
	return f()
}

// handlerDone says that no handler runs any more; mu is held.
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
		// Polling finds what comes to the ring; the next one may be among those that
		// came over the stream before.
		delivered := j.responder.runNext()
		q.streamNotified = q.streamNotified || delivered && j.responder.pages == nil
		if delivered && (!q.rings.add(q, j.responder) || j.responder.HasNotifications()) {
			q.enqueue(j.responder) // others first
		}
	case j.responder != nil && j.responder.HasNotifications():
		q.pushJob(*j) // behind it: the link is in the queue, and nothing is added to it any more
	default:
		j.event()
	}
}

// inHandler says whether the caller is this queue's handler.
func (q *dispatcher) inHandler() bool {
	id := goroutineID()
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.handlerRunning && q.goroutineID == id
}

// Block keeps handlers from running until as many Unblocks. When it returns,
// none runs, except the caller, and [Engine.Holds] and [Responder.Pending] find all that wait.
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
	for q.handlerRunning || q.ringsPolled && q.blockDepth > 0 && !q.closed { // somebody may unblock meanwhile
		q.post() // or it would poll on
		q.cond.Wait()
	}
}

// Unblock undoes one Block, and says how many are left. In a handler the last
// level is the handler's own and stays.
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

// Blocked says whether handlers are kept from running.
func (e *Engine) Blocked() bool {
	e.dispatcher.mu.Lock()
	defer e.dispatcher.mu.Unlock()
	return e.dispatcher.blockDepth > 0
}

// HasQueued says whether notifications of an export are queued whose import has ended
// meanwhile, which [Responder.Pending] does not find.
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

// Event runs f where handlers run, in its turn; of a link that has ended, which may
// be nil, after its notifications.
func (e *Engine) Event(of *Responder, f func()) { e.dispatcher.pushJob(job{responder: of, event: f}) }

// Wake makes all who wait look again.
func (e *Engine) Wake() { e.sleepers.Wake() }

// NotifyWaiters is how many wait for one export's notification.
func (e *Engine) NotifyWaiters() int { return int(e.dispatcher.waiterCount.Load()) }

// running counts the notification handlers that run in this program; who is not
// zero is asked for its goroutine. ids are those that run them.
var (
	runningHandlers   atomic.Int32
	handlerGoroutines sync.Map
)

// InHandler says whether the caller is a notification handler, of any process
// that this program has open. It costs one load while none runs.
func InHandler() bool {
	if runningHandlers.Load() == 0 {
		return false
	}
	_, ok := handlerGoroutines.Load(goroutineID())
	return ok
}

// goroutineID is the number of the calling one. The runtime tells it only in the
// first line of a trace, "goroutine 7 [running]:", whose form has not changed
// since Go 1.0; golang.org/x/net/http2 reads it there too.
func goroutineID() uint64 {
	var b [64]byte
	s := bytes.TrimPrefix(b[:runtime.Stack(b[:], false)], []byte("goroutine "))
	n, _ := strconv.ParseUint(string(s[:max(0, bytes.IndexByte(s, ' '))]), 10, 64)
	return n
}
