package via

import (
	"context"
	"errors"
	"slices"

	"github.com/vmmc-go/vmmc/internal/pair"
)

// connectResult is the outcome of a request.
type connectResult struct {
	attr VIAttributes // of the other side, without a tag
	code Code         // 0: it was accepted
	err  error
}

// connected makes a connection of a VI that has its number. mu is held.
func (vi *VI) connected(l *link, peer uint32) {
	vi.link, vi.peer = l, peer
	vi.current, vi.left, vi.number, vi.reading = nil, 0, 0, 0
	vi.rx, vi.serving = transfer{}, readJob{}
	vi.setState(Connected)
}

// Connection numbers: a slot, and a generation that no earlier connection of the slot had.
const slotBits = 10

// newConn gives a VI a number for its connection. mu is held.
func (n *NIC) newConn(vi *VI) {
	slot := n.freeSlots[len(n.freeSlots)-1] // there are as many as VIs
	n.freeSlots = n.freeSlots[:len(n.freeSlots)-1]
	if n.generation++; n.generation == 1<<(32-slotBits) {
		n.generation = 1
	}
	n.conns[slot] = vi
	vi.conn = n.generation<<slotBits | slot
}

// freeConn takes the number back. mu is held.
func (n *NIC) freeConn(vi *VI) {
	slot := vi.conn & (1<<slotBits - 1)
	n.conns[slot] = nil
	n.freeSlots = append(n.freeSlots, slot)
	vi.conn = 0
}

// connOf returns the VI whose connection has a number, or nil. mu is held.
func (n *NIC) connOf(conn uint32) *VI {
	if vi := n.conns[conn&(1<<slotBits-1)]; vi != nil && vi.conn == conn {
		return vi
	}
	return nil
}

// Connect requests a connection with what waits at the remote address (VipConnectRequest), and
// returns the attributes of the other side's VI, without a tag. local is what the other side is told;
// only the remote address is compared. Errors: [ErrNoMatch] at once if nothing waits there;
// [ErrTimeout] when the context ends; [ErrReject]; [ErrNotReachable] for an address of no node, or
// one that does not answer; [ErrInvalidState] if the VI is not idle, and in a handler of package
// vmmc; [ErrInvalidParameter] for a discriminator that is too long, a VI that is destroyed or a nil
// context; [ErrResource]. After an error the VI is idle.
//
// Experimental: it may change in any release.
func (vi *VI) Connect(ctx context.Context, local, remote Address) (VIAttributes, error) {
	const op = "request a connection"
	if err := checkCall(ctx, op); err != nil {
		return VIAttributes{}, err
	}
	n := vi.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := vi.checkRequest(ctx, op, local, remote); err != nil {
		return VIAttributes{}, err
	}
	vi.local, vi.remote = local, remote
	vi.setState(ConnectPending)
	n.mu.Unlock()
	l, err := n.linkTo(ctx, remote)
	n.mu.Lock()
	if n.closed {
		err = errNICClosed(op)
	}
	if err != nil {
		vi.setState(Idle)
		return VIAttributes{}, requestError(ctx, op, err)
	}
	attr, err := vi.ask(ctx, op, l, 0)
	if vi.state == ConnectPending {
		vi.setState(Idle)
	}
	return attr, err
}

// checkRequest refuses a request that cannot be. mu is held.
func (vi *VI) checkRequest(ctx context.Context, op string, local, remote Address) error {
	for _, a := range []Address{local, remote} {
		if len(a.Discriminator) > maxDiscriminator {
			return fail(op, ErrInvalidParameter, "a discriminator has %d bytes: at most %d",
				len(a.Discriminator), maxDiscriminator)
		}
	}
	if ctx.Err() != nil {
		return contextError(ctx, op)
	}
	if err := vi.check(op); err != nil {
		return err
	}
	if vi.state != Idle {
		return fail(op, ErrInvalidState, "it is in state %q", vi.state)
	}
	return nil
}

// requestError is the error of a request that has failed before the other side was asked.
func requestError(ctx context.Context, op string, err error) error {
	e := &Error{Op: op, Code: codeOf(ctx, err), Err: err}
	if inner := (*Error)(nil); errors.As(err, &inner) {
		e.Code, e.Err = inner.Code, inner.Err
	}
	return e
}

// ask asks the NIC at the other end of a link for a connection, and waits for the outcome. The VI is
// in state ConnectPending before, and after an error. mu is held, but not while it waits.
func (vi *VI) ask(ctx context.Context, op string, l *link, flags uint8) (VIAttributes, error) {
	if l.over {
		return VIAttributes{}, fail(op, ErrNotReachable, "the other side has ended")
	}
	vi.n.newConn(vi)
	vi.link, vi.outcome = l, nil
	data := encodeAddress(encodeAddress(encodeAttributes(nil, vi.attr), vi.local), vi.remote)
	l.tell(header{kind: kindRequest, flags: flags, immediate: vi.conn}, data)
	pair.At("connect.requested")
	for {
		vi.n.progress()
		if o := vi.outcome; o != nil {
			vi.outcome = nil
			if vi.state == ConnectPending { // it was not accepted
				vi.leave()
			}
			if o.code != 0 {
				return VIAttributes{}, &Error{Op: op, Code: o.code, Err: o.err}
			}
			return o.attr, nil
		}
		err := vi.check(op)
		if err == nil {
			err = vi.n.sleep(ctx, op, &vi.connecting)
		}
		if err != nil && vi.outcome == nil {
			vi.link.tell(header{kind: kindCancel, immediate: vi.conn}, nil)
			vi.leave()
			return VIAttributes{}, err
		}
	}
}

// What follows is called with mu held.

// request takes a request of the peer.
func (l *link) request(h *header, data []byte) {
	attr, rest, ok := decodeAttributes(data)
	if !ok {
		l.violate("a request without attributes")
		return
	}
	remote, rest, ok := decodeAddress(rest)
	if !ok {
		l.violate("a request without an address")
		return
	}
	local, _, ok := decodeAddress(rest)
	if !ok || l.requests[h.immediate] != nil {
		l.violate("a request without a second address, or one that was made twice")
		return
	}
	if h.flags&flagPeer != 0 {
		l.peerRequest(h.immediate, attr, local, remote)
		return
	}
	r := &Request{
		Local: local, Remote: remote, Attributes: attr, n: l.n, l: l, number: h.immediate,
	}
	o := l.n.listeners[local.Discriminator]
	switch {
	case o == nil || local.Host != l.n.addr:
		r.answer(ErrNoMatch, 0, VIAttributes{})
	case len(l.requests) >= maxWaitingRequest || len(o.queue) >= maxWaitingRequest:
		r.answer(ErrResource, 0, VIAttributes{})
	default:
		l.requests[r.number] = r
		o.queue = append(o.queue, r)
		o.waiters.wake()
	}
}

// cancel takes the peer's request back.
func (l *link) cancel(number uint32) {
	r := l.requests[number]
	if r == nil {
		return
	}
	delete(l.requests, number)
	r.canceled = true
	if o := l.n.listeners[r.Local.Discriminator]; o != nil {
		o.queue = slices.DeleteFunc(o.queue, func(q *Request) bool { return q == r })
	}
}

// reply takes the answer to a request.
func (l *link) reply(h *header, data []byte) {
	attr, _, ok := decodeAttributes(data)
	vi := l.n.connOf(h.conn)
	switch {
	case !ok:
		l.violate("an answer without attributes")
	case vi == nil || vi.link != l || vi.state != ConnectPending || vi.outcome != nil:
		if h.status == 0 { // the request was given up
			l.tell(header{kind: kindDisconnect, conn: h.number}, nil)
		}
	case h.status != 0:
		code := Code(h.status)
		switch code {
		case ErrReject, ErrNoMatch, ErrInvalidLevel, ErrInvalidMTU:
		default:
			code = ErrResource
		}
		vi.outcome = &connectResult{code: code}
		vi.connecting.wake()
	default:
		vi.connected(l, h.number)
		vi.outcome = &connectResult{attr: attr}
		vi.connecting.wake()
	}
}
