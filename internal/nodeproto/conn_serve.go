package nodeproto

import (
	"context"
	"fmt"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/fairshare"
)

// maxServing bounds the requests of one peer that wait for their answer.
const maxServing = 4096

// A connection is not read while it holds so many requests, or bodies of so many bytes.
const (
	maxHeld      = 1024
	maxHeldBytes = 1 << 20
)

// incoming is a request that has come.
type incoming struct {
	header
	body []byte
	fds  []int // foreign
	ctx  context.Context
	stop context.CancelFunc
}

// heldRequests are the requests of a connection that its share does not take yet, in the order in
// which they came. The connection is read meanwhile: the peer's replies, and the cancellations of
// its requests, must not wait for its requests. Reading stops only at a bound. Descriptors have a
// bound of their own: see [NewBoundedConn].
type heldRequests struct {
	queue   []incoming
	bytes   int           // of the bodies
	feeding bool          // reports whether the feed goroutine runs: all requests queue
	room    chan struct{} // nil, or closed when the requests are within the bounds again
}

// isFull reports whether the requests are beyond a bound.
func (q *heldRequests) isFull() bool { return len(q.queue) >= maxHeld || q.bytes >= maxHeldBytes }

func (q *heldRequests) push(r incoming) {
	q.queue = append(q.queue, r)
	q.bytes += len(r.body)
}

// pop returns the first request. There is one.
func (q *heldRequests) pop() incoming {
	r := q.queue[0]
	q.queue[0] = incoming{}
	if q.queue = q.queue[1:]; len(q.queue) == 0 {
		q.queue = nil // a burst's memory goes with it
	}
	q.bytes -= len(r.body)
	if q.room != nil && !q.isFull() {
		close(q.room)
		q.room = nil
	}
	return r
}

// serve starts a request, or holds it for later.
func (l *Conn) serve(h header, body []byte, fds []int) {
	r := incoming{header: h, body: body, fds: fds}
	r.ctx, r.stop = context.WithCancel(l.ctx)
	l.mu.Lock()
	full := len(l.serving) >= maxServing || l.serving[h.id] != nil
	if !full {
		l.serving[h.id] = r.stop
	}
	l.mu.Unlock()
	switch {
	case full:
		r.stop()
		closeAll(fds)
		_ = l.write(header{kind: failure, id: h.id}, wireError{
			code.NoMem, fmt.Sprintf("more than %d requests of one process at a time", maxServing),
		}, nil)
	case l.share == nil:
		l.wg.Go(func() {
			out, outFDs, err := l.handler(r.ctx, h.method, body, fds)
			l.answer(r, out, outFDs, err)
		})
	default:
		l.serveInShare(r)
	}
}

// serveInShare has a request run in the share. It waits while the connection holds too many.
func (l *Conn) serveInShare(r incoming) {
	l.mu.Lock()
	if !l.held.feeding {
		// Within mu, so that a request which another goroutine has received does not pass this one.
		if begun := l.begin(r); begun != nil {
			l.held.feeding = true
			l.wg.Go(func() { l.feed(begun) })
		}
		l.mu.Unlock()
		return
	}
	l.held.push(r)
	if l.held.isFull() && l.held.room == nil {
		l.held.room = make(chan struct{})
	}
	room := l.held.room
	l.mu.Unlock()
	if room == nil {
		return
	}
	select {
	case <-room:
	case <-l.ctx.Done():
	}
}

// begin queues a request in the share, and discards it if the connection has ended. The next one is
// held until the channel is closed; nil: the share takes it at once. mu is held.
func (l *Conn) begin(r incoming) (begun <-chan struct{}) {
	if l.err != nil {
		l.discard(r)
		return nil
	}
	l.wg.Add(1)
	begun, withdraw := l.share.Begin(func(t *fairshare.Turn) {
		defer l.wg.Done()
		l.mu.Lock()
		delete(l.queued, r.id)
		l.mu.Unlock()
		out, outFDs, err := l.handler(t.Context(r.ctx), r.method, r.body, r.fds)
		t.End() // before the answer, which waits for a peer that does not read
		l.answer(r, out, outFDs, err)
	})
	l.queued[r.id] = func() {
		if withdraw() {
			l.discard(r)
			l.wg.Done()
		}
	}
	return begun
}

// withdrawQueued discards the requests whose turn has not come. The connection has ended, and what
// waits for that must not wait for the requests of the user's other connections.
func (l *Conn) withdrawQueued() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, withdraw := range l.queued {
		withdraw()
	}
	l.queued = nil // no request is queued any more: see begin
}

// feed moves held requests into the share as it takes them, until none is left. Of a connection
// that has ended it discards them.
func (l *Conn) feed(begun <-chan struct{}) {
	for {
		if begun != nil {
			select {
			case <-begun:
			case <-l.ctx.Done():
			}
		}
		l.mu.Lock()
		if len(l.held.queue) == 0 {
			l.held.feeding = false
			l.mu.Unlock()
			return
		}
		begun = l.begin(l.held.pop())
		l.mu.Unlock()
	}
}

// discard drops a request that has not begun. No peer waits for an answer. mu is held.
func (l *Conn) discard(r incoming) {
	delete(l.serving, r.id)
	r.stop()
	closeAll(r.fds)
}

// answer ends a request.
func (l *Conn) answer(r incoming, out any, outFDs []int, err error) {
	l.mu.Lock()
	delete(l.serving, r.id)
	l.mu.Unlock()
	r.stop()
	if err == nil {
		err = l.write(header{kind: reply, id: r.id}, out, outFDs)
	}
	if err != nil { // also one that did not fit
		err = l.write(header{kind: failure, id: r.id}, toWire(err), nil)
	}
	closeAll(outFDs)
	if err != nil {
		l.fail(err)
	}
}
