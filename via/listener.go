package via

import (
	"context"
	"errors"
	"slices"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
)

// Listener waits for requests with a discriminator.
//
// Experimental: it may change in any release.
type Listener struct {
	n    *NIC
	addr Address
	box  letterbox

	// Guarded by NIC.mu.
	queue   []*Request
	waiters waitList
	ready   bool // reports whether Listen has published it
	closed  bool
}

// Request is a request of another VI for a connection (VIP_CONN_HANDLE). It is answered by Accept or
// Reject.
//
// Experimental: it may change in any release.
type Request struct {
	// Local is the address that was asked for, Remote that which the other side has given itself.
	Local, Remote Address
	// Attributes are those of the other side's VI. Tag is nil.
	Attributes VIAttributes

	n      *NIC
	l      *link
	number uint32 // of the connection, there
	// Guarded by NIC.mu.
	answered, canceled bool
}

// Listen waits for requests that ask for the NIC's node and a discriminator, until Close. Requests
// that come between two waits are kept, up to 1,024. Listeners of several NICs on a node may have
// the same discriminator; a request goes to one of them. Errors: [ErrInvalidParameter] for a
// discriminator that is too long, a nil context or a closed NIC; [ErrResource] if the NIC has a
// listener for the discriminator already, or if the node refuses; [ErrTimeout];
// [ErrInvalidState] in a handler of package vmmc.
//
// Experimental: it may change in any release.
func (n *NIC) Listen(ctx context.Context, discriminator string) (*Listener, error) {
	const op = "listen for requests"
	if err := checkCall(ctx, op); err != nil {
		return nil, err
	}
	if len(discriminator) > maxDiscriminator {
		return nil, fail(op, ErrInvalidParameter, "the discriminator has %d bytes: at most %d",
			len(discriminator), maxDiscriminator)
	}
	l := &Listener{n: n, addr: Address{Host: n.addr, Discriminator: discriminator}}
	n.mu.Lock()
	closed, taken := n.closed, n.listeners[discriminator] != nil
	if !closed && !taken {
		n.listeners[discriminator] = l
	}
	n.mu.Unlock()
	switch {
	case closed:
		return nil, errNICClosed(op)
	case taken:
		return nil, fail(op, ErrResource, "the NIC listens for %q already", discriminator)
	}
	var err error
	l.box, err = n.publish(ctx, listenerName, discriminator)
	n.mu.Lock()
	l.ready, closed = true, l.closed
	if err != nil && !closed {
		l.closed = true
		delete(n.listeners, discriminator)
	}
	n.mu.Unlock()
	switch {
	case err != nil:
		return nil, &Error{Op: op, Code: codeOf(ctx, err), Err: err}
	case closed: // the NIC was, meanwhile
		return nil, errors.Join(errNICClosed(op), l.box.close())
	}
	return l, nil
}

// Address is what requests ask for.
//
// Experimental: it may change in any release.
func (l *Listener) Address() Address { return l.addr }

// Wait returns the next request (VipConnectWait). Errors: [ErrTimeout] when the context ends;
// [ErrInvalidParameter] if the listener is closed or the context is nil; [ErrInvalidState] in a
// handler of package vmmc.
//
// Experimental: it may change in any release.
func (l *Listener) Wait(ctx context.Context) (*Request, error) {
	const op = "wait for a request"
	if err := checkCall(ctx, op); err != nil {
		return nil, err
	}
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	for {
		l.n.progress()
		if len(l.queue) > 0 {
			r := l.queue[0]
			l.queue = slices.Delete(l.queue, 0, 1)
			return r, nil
		}
		if l.closed {
			return nil, fail(op, ErrInvalidParameter, "the listener is closed")
		}
		if err := l.n.sleep(ctx, op, &l.waiters); err != nil {
			return nil, err
		}
	}
}

// Close ends the listener. Requests that no Wait has returned get [ErrNoMatch]. Those that Wait has
// returned can still be answered. A second call does nothing.
//
// Experimental: it may change in any release.
func (l *Listener) Close() error {
	const op = "close a listener"
	if vmmc.InHandler() {
		return &Error{Op: op, Code: ErrInvalidState, Err: vmmc.ErrNotInHandler}
	}
	l.n.mu.Lock()
	if l.closed {
		l.n.mu.Unlock()
		return nil
	}
	l.closed = true
	delete(l.n.listeners, l.addr.Discriminator)
	for _, r := range l.queue {
		r.answer(ErrNoMatch, 0, VIAttributes{})
	}
	l.queue = nil
	l.waiters.wake()
	ready := l.ready
	l.n.mu.Unlock()
	if !ready { // Listen is about to find out
		return nil
	}
	if err := l.box.close(); err != nil {
		return &Error{Op: op, Code: ErrResource, Err: err}
	}
	return nil
}

// forget drops the requests of a link. mu is held.
func (l *Listener) forget(of *link) {
	l.queue = slices.DeleteFunc(l.queue, func(r *Request) bool { return r.l == of })
}

// Accept connects the VI to the one that requests it (VipConnectAccept). Errors: [ErrInvalidState]
// if the VI is not idle; [ErrInvalidLevel] and [ErrInvalidMTU] if the attributes of the two differ:
// then the other side is not told, and another VI may be tried; [ErrTimeout] if the other side has
// given up; [ErrInvalidParameter] if the request was answered, or the VI is destroyed or of another
// NIC.
//
// Experimental: it may change in any release.
func (r *Request) Accept(vi *VI) error {
	const op = "accept a request"
	r.n.mu.Lock()
	defer r.n.mu.Unlock()
	if vi == nil || vi.n != r.n {
		return fail(op, ErrInvalidParameter, "the VI is nil, or of another NIC")
	}
	if err := vi.check(op); err != nil {
		return err
	}
	if err := r.check(op); err != nil {
		return err
	}
	switch {
	case vi.state != Idle:
		return fail(op, ErrInvalidState, "the VI is in state %q", vi.state)
	case vi.attr.Level != r.Attributes.Level:
		return fail(op, ErrInvalidLevel, "%#x, the other side has %#x",
			uint16(vi.attr.Level), uint16(r.Attributes.Level))
	case vi.attr.MaxTransferSize != r.Attributes.MaxTransferSize:
		return fail(op, ErrInvalidMTU, "MaxTransferSize %d, the other side has %d",
			vi.attr.MaxTransferSize, r.Attributes.MaxTransferSize)
	}
	vi.setState(ConnectPending)
	r.n.newConn(vi)
	vi.local, vi.remote = r.Local, r.Remote
	vi.connected(r.l, r.number)
	pair.At("accept.connected")
	r.answer(0, vi.conn, vi.attr)
	return nil
}

// Reject refuses the request (VipConnectReject): the other side's call returns [ErrReject]. The
// error is [ErrInvalidParameter] if it was answered already.
//
// Experimental: it may change in any release.
func (r *Request) Reject() error {
	const op = "reject a request"
	r.n.mu.Lock()
	defer r.n.mu.Unlock()
	if r.answered {
		return r.check(op)
	}
	r.answer(ErrReject, 0, VIAttributes{})
	return nil
}

// check refuses a request that cannot be accepted any more. mu is held.
func (r *Request) check(op string) error {
	switch {
	case r.answered:
		return fail(op, ErrInvalidParameter, "it was answered already")
	case r.canceled, r.l.over:
		return fail(op, ErrTimeout, "the other side has given up, or has ended")
	}
	return nil
}

// answer answers a request. mu is held.
func (r *Request) answer(code Code, conn uint32, attr VIAttributes) {
	r.answered = true
	if r.canceled || r.l.over {
		return
	}
	delete(r.l.requests, r.number)
	r.l.answer(r.number, code, conn, attr)
}

// answer answers the peer's request with a number: by a code, or by the number and the attributes of
// the VI that accepts it. mu is held.
func (l *link) answer(request uint32, code Code, conn uint32, attr VIAttributes) {
	h := header{kind: kindReply, conn: request, number: conn, status: uint32(code)}
	l.tell(h, encodeAttributes(nil, attr))
}
