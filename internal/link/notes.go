package link

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// noteQueue runs notification handlers on a goroutine of its own, one at a
// time for the whole process: never under a token nor on the goroutine that
// serves links, so that a handler may wait for a Get on the very link that
// notified it. External events take their turn among them.
type noteQueue struct {
	mu     sync.Mutex
	more   *sync.Cond
	jobs   []job // each link at most once
	level  int   // depth of Block, of a handler that does not unblock too
	busy   bool  // a handler runs, or may begin to: rings are polled
	seated bool  // the watch has links, whose notes may be in no job
	inner  int   // how often that one has blocked; only its goroutine stores it
	id     uint64
	closed bool
	asleep bool // on posted, among other words

	posted   atomic.Uint32 // 1: something has come that polling and sleeping have to end for
	watch    watch         // of who runs the queue
	unpaid   []*In         // whose importers have credits to come; the same
	streamed bool          // a notification has come over a stream since the last look at streams; the same
	e        *Engine

	sought map[uint64]*noteWaiters // by the exports of which one notification is waited for
	seeks  atomic.Int32            // how many wait; stored with mu
	look   bool                    // one may have come since the queue was looked through for them

	waits  bool        // for more
	roused atomic.Bool // it did, and something has come: a hint, for who looks in this process
}

// job is a link that may have notifications, or an event, with in that of a link
// that has ended.
type job struct {
	in    *In
	event func()
}

func (q *noteQueue) init(e *Engine) {
	q.more, q.e, q.sought = sync.NewCond(&q.mu), e, map[uint64]*noteWaiters{}
}

// add queues a link. in.queued says whether it is in the queue already; it is
// cleared before the link is drained, so a note that comes meanwhile queues it
// again.
func (q *noteQueue) add(in *In) {
	if in.queued.CompareAndSwap(false, true) {
		q.push(job{in: in})
	} else if q.seeks.Load() > 0 {
		q.lookAgain()
	}
}

// lookAgain has the queue looked through, while notifications are blocked, for those that are
// waited for.
func (q *noteQueue) lookAgain() {
	q.mu.Lock()
	q.look = true
	q.post()
	q.mu.Unlock()
	q.more.Broadcast()
}

// noteWaiters are those that wait for the next notification of one export. It serves all of them.
type noteWaiters struct{ n int32 }

// runSought runs the handler of a notification that is waited for while others are blocked; mu is
// held.
func (q *noteQueue) runSought() {
	q.look = false
	var ins []*In
	for _, j := range q.jobs {
		if j.in != nil && !slices.Contains(ins, j.in) {
			ins = append(ins, j.in)
		}
	}
	exports := slices.Collect(maps.Keys(q.sought))
	q.busy = true
	var served uint64
	ran := q.away(func() bool {
		for _, in := range ins {
			for _, export := range exports {
				if n, ok := in.wanted(export); ok {
					running.Add(1)
					in.run(n)
					running.Add(-1)
					served = export
					return true
				}
			}
		}
		return false
	})
	if w := q.sought[served]; ran && w != nil { // whose waits are over: no other one runs for them
		q.seeks.Add(-w.n)
		delete(q.sought, served)
	}
	q.idle()
	q.look = q.look || ran
}

// WaitNote waits for what a handler of an export brings about. While notifications are blocked,
// those of that export run for it all the same, one for each wait, as sigsuspend lets a signal in.
// When it returns, none of them runs any more.
func (e *Engine) WaitNote(ctx context.Context, export uint64, l wait.Look) error {
	q := &e.notes
	q.mu.Lock()
	w := q.sought[export]
	if w == nil {
		w = new(noteWaiters)
		q.sought[export] = w
	}
	w.n++
	q.seeks.Add(1)
	q.look = true
	if q.level > 0 {
		q.post()
		q.more.Broadcast()
	}
	q.mu.Unlock()
	err := e.Wait(ctx, l)
	q.mu.Lock()
	for q.busy && q.level > 0 && !q.closed { // it may be this one's
		q.more.Wait()
	}
	if q.sought[export] == w {
		q.seeks.Add(-1)
		if w.n--; w.n == 0 {
			delete(q.sought, export)
		}
	}
	q.mu.Unlock()
	if err != nil && l.Done() {
		err = nil
	}
	return err
}

func (q *noteQueue) push(j job) {
	q.mu.Lock()
	q.jobs = append(q.jobs, j)
	q.look = true
	q.post()
	if q.waits {
		q.waits = false
		q.roused.Store(true)
	}
	q.mu.Unlock()
	q.more.Broadcast()
}

func (q *noteQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.post()
	q.mu.Unlock()
	q.more.Broadcast()
}

// post ends polling and sleeping; mu is held.
func (q *noteQueue) post() {
	q.posted.Store(1)
	if q.asleep {
		unix.Rouse(&q.posted)
	}
}

// leave is of a link that has ended: it is watched no longer.
func (q *noteQueue) leave(in *In) {
	if in.watched.Load() {
		q.mu.Lock()
		q.post()
		q.mu.Unlock()
	}
}

func (q *noteQueue) run() {
	id := goroutine()
	ids.Store(id, q)
	defer ids.Delete(id)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.id = id
	for {
		j, ok := q.take()
		if !ok {
			q.seated = false
			q.more.Broadcast()
			return
		}
		if invariant.Enabled {
			q.check(false)
		}
		q.busy = true
		q.mu.Unlock()
		running.Add(1)
		q.do(&j)
		running.Add(-1)
		q.mu.Lock()
		q.idle()
	}
}

// take waits for the next job; mu is held. Where notifications have come before it
// polls for a while, and runs their handlers itself, and then sleeps on their rings.
func (q *noteQueue) take() (j job, ok bool) {
	for !q.closed {
		switch {
		case q.owes():
			q.away(func() bool { q.pay(); return true })
		case q.level == 0 && len(q.jobs) > 0:
			q.watch.enqueue(q)
			j = q.jobs[0]
			n := copy(q.jobs, q.jobs[1:])
			q.jobs[n] = job{}
			q.jobs = q.jobs[:n]
			return j, true
		case q.level > 0 && q.watch.n == 0 && q.look && len(q.sought) > 0:
			q.runSought()
		case q.watch.n == 0 && q.streamed && q.level == 0:
			q.streamed = false
			q.posted.Store(0) // nothing is there; what comes sets it again, with mu
			q.away(func() bool { q.e.lookOut(); return true })
		case len(q.unpaid) > 0:
			q.away(func() bool { q.pay(); return true })
		case q.watch.n == 0:
			q.waits = true
			q.more.Wait()
			q.waits = false
		case q.level > 0:
			q.unseat()
		default:
			q.posted.Store(0) // nothing is there; what comes sets it again, with mu
			q.attend()
		}
	}
	return job{}, false
}

// attend polls, sleeps if nothing comes, or ends the watch if it cannot; mu is held.
func (q *noteQueue) attend() {
	q.busy = true
	quiet := q.away(func() bool { return q.watch.poll(q) })
	q.idle()
	if !quiet || q.posted.Load() != 0 {
		return
	}
	q.asleep = true
	slept := q.away(func() bool { return q.watch.sleep(q) })
	q.asleep = false
	if !slept {
		if q.watch.refused++; q.watch.refused >= crowded || !unix.CanSleepOnWords() {
			q.unseat()
		}
	}
}

// unseat ends the watch; mu is held. What it leaves behind is in jobs then.
func (q *noteQueue) unseat() {
	q.away(func() bool { q.watch.end(q); return true })
	q.seated = false
	q.more.Broadcast()
}

// owes says whether credits are to be paid that were put off: before a handler runs for another link's, which may take long; mu is held.
func (q *noteQueue) owes() bool {
	if len(q.unpaid) == 0 {
		return false
	}
	return len(q.jobs) > 0 && (len(q.unpaid) > 1 || q.jobs[0].in != q.unpaid[0])
}

// pay returns the credits that were put off.
func (q *noteQueue) pay() {
	for _, in := range q.unpaid {
		in.unpaid = false
		in.tmu.Lock()
		if in.credits() != uint32(in.acks[1]) {
			in.ackDue = true
			in.pump()
		}
		in.tmu.Unlock()
	}
	clear(q.unpaid)
	q.unpaid = q.unpaid[:0]
}

// away does f without mu, which is held.
func (q *noteQueue) away(f func() bool) bool {
	q.mu.Unlock()
	defer q.mu.Lock()
	return f()
}

// idle says that no handler runs any more; mu is held.
func (q *noteQueue) idle() {
	if invariant.Enabled {
		q.check(true)
	}
	q.busy, q.seated = false, q.watch.n > 0
	q.level, q.inner = q.level+q.inner, 0
	q.more.Broadcast()
}

// do runs one notification, or an event.
func (q *noteQueue) do(j *job) {
	switch {
	case j.event == nil:
		j.in.queued.Store(false)
		// Polling finds what comes to the ring; the next one may be among those that
		// came over the stream before.
		delivered := j.in.deliver()
		q.streamed = q.streamed || delivered && j.in.pages == nil
		if delivered && (!q.watch.add(q, j.in) || j.in.Left()) {
			q.add(j.in) // others first
		}
	case j.in != nil && j.in.Left():
		q.push(*j) // behind it: the link is in the queue, and nothing is added to it any more
	default:
		j.event()
	}
}

// handling says whether the caller is this queue's handler.
func (q *noteQueue) handling() bool {
	id := goroutine()
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.busy && q.id == id
}

// Block keeps handlers from running until as many Unblocks. When it returns,
// none runs, except the caller, and [Engine.Holds] and [In.Pending] find all that wait.
func (e *Engine) Block() {
	q := &e.notes
	if q.handling() {
		q.mu.Lock()
		q.inner++
		q.mu.Unlock()
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.level++
	q.look = true
	for q.busy || q.seated && q.level > 0 && !q.closed { // somebody may unblock meanwhile
		q.post() // or it would poll on
		q.more.Wait()
	}
}

// Unblock undoes one Block, and says how many are left. In a handler the last
// level is the handler's own and stays.
func (e *Engine) Unblock() (remaining int, err error) {
	q := &e.notes
	if q.handling() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.inner == 0 {
			return 1, ErrInHandler
		}
		q.inner--
		if invariant.Enabled {
			q.check(true)
		}
		return q.inner + 1, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.level > 0 {
		q.level--
	}
	if invariant.Enabled {
		q.check(q.busy)
	}
	if q.level == 0 {
		q.more.Broadcast()
	}
	return q.level, nil
}

// Blocked says whether handlers are kept from running.
func (e *Engine) Blocked() bool {
	e.notes.mu.Lock()
	defer e.notes.mu.Unlock()
	return e.notes.level > 0
}

// Holds says whether notifications of an export are queued whose import has ended
// meanwhile, which [In.Pending] does not find.
func (e *Engine) Holds(export uint64) bool {
	q := &e.notes
	q.mu.Lock()
	jobs := slices.Clone(q.jobs)
	q.mu.Unlock()
	for _, j := range jobs {
		if j.in != nil && j.in.holds(export) {
			return true
		}
	}
	return false
}

// Event runs f where handlers run, in its turn; of a link that has ended, which may
// be nil, after its notifications.
func (e *Engine) Event(of *In, f func()) { e.notes.push(job{in: of, event: f}) }

// Wake makes all who wait look again.
func (e *Engine) Wake() { e.sleepers.Wake() }

// Sought is how many wait for one export's notification.
func (e *Engine) Sought() int { return int(e.notes.seeks.Load()) }
