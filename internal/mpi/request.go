package mpi

import (
	"context"
	"slices"
	"sync/atomic"
)

// Status says which message a request was over with.
type Status struct {
	Source    int // rank in the communicator
	Tag       int
	Bytes     int
	Cancelled bool
}

// The kinds of requests.
const (
	sending = iota + 1
	receiving
	probing
	mprobing
	general
	pinging
)

// The states of a request.
//
//	sending:   queued -> left -> streaming -> over; an eager one: queued -> over
//	receiving: posted -> matched -> over
//	probes:    posted -> over
//	general:   posted -> over
//	pinging:   left -> over
//
// The state is the protocol's, and a peer can name the request until it is over. Its caller may have
// been told an error before: see abandon.
const (
	queued    = iota + 1 // the envelope waits for room
	left                 // the envelope is out, and the receiver has not matched it
	streaming            // data goes out
	isPosted
	matched // data comes in
	over
)

// Request is a send, a receive or a probe that need not be over. A request that was given out is
// waited for by one goroutine at a time.
type Request struct {
	e      *Engine
	index  uint32 // names it in Engine.requests while it is not over
	kind   int
	state  int
	peer   *peer // nil: any source. A match sets it.
	polled bool  // reports whether it is worth to poll. Fixed when the request begins.
	group  []int // ranks in the job, of the communicator
	whole  bool  // reports whether it fails if any rank of group is gone
	sync   bool
	copied bool // reports whether buf is the engine's, and counts as buffered
	// abandoned reports whether the caller was told an error before the protocol is over. buf is the
	// caller's until detach.
	abandoned   bool
	detached    bool // reports whether buf is a copy that detach has made
	withdrawing bool // reports whether the receiver was asked to forget the message
	buf         []byte
	off         int // how much of the data has come or gone
	length      int // of the message
	far         uint32
	entry       uint32 // while it is posted
	v           envelope
	status      Status
	err         error
	msg         *Message
	done        atomic.Bool // stored last
	waiter      *waiter
}

// All that follows is called with Engine.mu held, but for the waits.

func (e *Engine) newRequest(pooled bool) *Request {
	if n := len(e.pool); pooled && n > 0 {
		r := e.pool[n-1]
		e.pool = e.pool[:n-1]
		return r
	}
	return &Request{e: e}
}

// recycle gives back a request that no other goroutine has, unless a peer can still name it.
func (e *Engine) recycle(r *Request) {
	if r.index != 0 {
		return
	}
	*r = Request{e: e}
	e.pool = append(e.pool, r)
}

// slot is a place of Engine.requests. Its generation counts the requests that it has had, so that a
// peer that names one of them late does not get a later one.
type slot struct {
	r          *Request
	generation uint32
}

// An index has the number of the slot in its lower bits, and the generation in its upper ones.
const (
	slotBits = 24
	maxSlots = 1 << slotBits
)

// full is the error of a request that no index is left for.
func (e *Engine) full() error {
	if len(e.freed) == 0 && len(e.requests) >= maxSlots {
		return Fail(ErrOther, "", "%d requests are not over: wait for some of them first", maxSlots-1)
	}
	return nil
}

// register gives a request an index, by which peers name it. The caller has asked full before.
func (r *Request) register() {
	e := r.e
	if r.index != 0 {
		return
	}
	var i uint32
	if n := len(e.freed); n > 0 {
		i = e.freed[n-1]
		e.freed = e.freed[:n-1]
	} else {
		i = uint32(len(e.requests))
		e.requests = append(e.requests, slot{})
	}
	s := &e.requests[i]
	s.r = r
	r.index = s.generation<<slotBits | i
}

// lookUp is the request of an index, or nil if it is over.
func (e *Engine) lookUp(index uint32) *Request {
	i := index % maxSlots
	if uint64(i) >= uint64(len(e.requests)) || e.requests[i].generation != index>>slotBits {
		return nil
	}
	return e.requests[i].r
}

// unregister takes the index of a request that no peer can name any more.
func (r *Request) unregister() {
	if r.index == 0 {
		return
	}
	i := r.index % maxSlots
	s := &r.e.requests[i]
	s.r, s.generation = nil, (s.generation+1)%(1<<(32-slotBits))
	r.e.freed = append(r.e.freed, i)
	r.index = 0
}

// finish ends a request that no peer can name any more.
func (r *Request) finish(err error) {
	e := r.e
	r.unregister()
	if r.copied {
		e.buffered -= r.length + BufferOverhead
		if e.bufferFree != nil {
			close(e.bufferFree)
			e.bufferFree = nil
		}
	}
	r.state, r.buf = over, nil
	r.tell(err)
}

// tell tells the waiter what the request is over with. Only the first time counts: the caller may
// read the result since.
func (r *Request) tell(err error) {
	if r.done.Load() {
		return
	}
	r.err = err
	w := r.waiter
	r.waiter = nil
	r.done.Store(true)
	if w != nil {
		select {
		case w.ch <- struct{}{}:
		default:
		}
	}
}

// abandon ends a request for its caller at once: the caller is told the error, and its memory is not
// used any more, but that of a send, which detach leaves to the caller. A request that a living peer can
// still name keeps its index until the protocol is over: its data is dropped, or is sent from a copy.
// Otherwise that peer's packets would name nothing, or another request. A message that no receive has
// matched is withdrawn.
func (r *Request) abandon(err error) {
	switch {
	case r.state == over || r.abandoned:
		return
	case r.state == isPosted:
		r.fail(err)
		return
	case r.state == queued:
		r.leaveQueue()
		r.finish(err)
		return
	case r.kind == receiving:
		r.buf = nil
	case r.state == left && r.withdraw():
		r.finish(err)
		return
	}
	r.abandoned = true
	r.tell(err)
}

// withdraw takes back a message whose envelope is out. It reports whether the message is forgotten: a
// peer answers later.
func (r *Request) withdraw() bool {
	e, pr := r.e, r.peer
	switch {
	case pr.port == nil:
		i := e.q.findAsked(r.v.context, pr.rank, r.index)
		if i != 0 {
			e.q.remove(unexpected, i)
		}
		return i != 0 // otherwise a matched probe has it
	case !r.withdrawing:
		r.withdrawing = true
		pr.control = append(pr.control, Header{kind: kindWithdraw, context: r.v.context, sreq: r.index})
		pr.pump()
	}
	return false
}

// leaveQueue takes a send whose envelope has not left out of the queue.
func (r *Request) leaveQueue() {
	r.peer.queue = slices.DeleteFunc(r.peer.queue, func(o *Request) bool { return o == r })
}

// cancelled ends a send whose message was forgotten. A caller that was told an error before may read the
// status at the same time.
func (r *Request) cancelled() {
	if !r.done.Load() {
		r.status.Cancelled = true
	}
	r.finish(nil)
}

// detach has an abandoned send use a copy of the caller's memory, if it still uses that. The caller of
// the request calls it before it uses the memory. The lock is not held while the memory is copied: it
// may be long, and nothing writes it.
func (r *Request) detach() {
	if !r.abandoned || r.copied || r.kind != sending {
		return
	}
	for r.state != over && !r.detached {
		buf := r.buf
		r.e.mu.Unlock()
		c := slices.Clone(buf)
		r.e.mu.Lock()
		if r.state != over {
			r.buf, r.detached = c, true
		}
	}
}

// Abandon gives up a request that the caller does not wait for any more: its memory is not used from
// now on. A message that no receive has matched is withdrawn. One that was matched is sent from a copy.
func (r *Request) Abandon() {
	if r.done.Load() && r.err == nil {
		return
	}
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	r.abandon(Fail(ErrCanceled, "request", "it was given up"))
	r.detach()
}

// Complete is Wait that gives up the request when the context ends.
func (r *Request) Complete(ctx context.Context) (Status, error) { return r.complete(ctx, "wait") }

// complete is Complete. what is what the error says was given up.
func (r *Request) complete(ctx context.Context, what string) (Status, error) {
	if err := r.await(ctx); err != nil {
		if ctx.Err() == nil { // another goroutine waits for it
			return Status{}, err
		}
		r.e.mu.Lock()
		r.abandon(canceled(ctx, what)) // unless it is over since
		r.e.mu.Unlock()
	}
	return r.Result()
}

// fail ends a request that is not over with an error. No peer can name it any more.
func (r *Request) fail(err error) {
	if r.state == isPosted && r.entry != 0 {
		r.e.q.remove(posted, r.entry)
		r.entry = 0
	}
	r.finish(err)
}

// concerns reports whether a request cannot be over when a peer is gone.
func (r *Request) concerns(pr *peer) bool {
	if r.peer == pr {
		return true
	}
	return (r.peer == nil || r.whole) && slices.Contains(r.group, pr.rank)
}

// NewGeneral begins a request that the caller ends by EndGeneral: no peer can name it
// (MPI_Grequest_start).
func (e *Engine) NewGeneral() *Request { return &Request{e: e, kind: general, state: isPosted} }

// EndGeneral ends a request of NewGeneral (MPI_Grequest_complete). It has no effect on a request that
// was given up.
func (r *Request) EndGeneral(err error) { r.EndGeneralWith(Status{}, err) }

// EndGeneralWith is EndGeneral with the status that Wait gives.
func (r *Request) EndGeneralWith(st Status, err error) {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	if r.state != over {
		r.status = st
		r.finish(err)
	}
}

// setPeer sets the peer that a request begins with, nil for any.
func (r *Request) setPeer(pr *peer) {
	r.peer = pr
	if pr != nil && !pr.wanted { // its death is noticed by the connection
		pr.want()
	}
	r.polled = r.e.polling && (pr == nil || pr.port != nil && pr.port.Polled())
}

func (pr *peer) lost() bool { return pr.err != nil }

// Result is what a request that is over was over with.
func (r *Request) Result() (Status, error) {
	if !r.done.Load() {
		return Status{}, Fail(ErrPending, "request", "the request is not over")
	}
	if r.kind == sending && r.err != nil { // it may have been abandoned
		r.e.mu.Lock()
		r.detach()
		r.e.mu.Unlock()
	}
	return r.outcome()
}

// outcome is what a request was over with. The status has no meaning beside the error of a call that
// was given up.
func (r *Request) outcome() (Status, error) {
	if r.abandoned {
		return Status{}, r.err
	}
	return r.status, r.err
}

// Cancel cancels a receive that no message has matched, or a send that no receive has matched. It
// reports whether the request is cancelled already. A message that another rank may have matched is
// over when that rank has answered: then Status.Cancelled says which.
func (r *Request) Cancel() bool {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	switch {
	case r.kind == sending && r.state == queued:
		r.leaveQueue()
		r.cancelled()
		return true
	case r.kind == sending && r.state == left && !r.abandoned:
		if r.withdraw() {
			r.cancelled()
			return true
		}
		return false
	case r.kind != receiving || r.state != isPosted:
		return false
	}
	r.status = Status{Source: AnySource, Tag: AnyTag, Cancelled: true}
	r.fail(nil)
	return true
}
