package via

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
)

// The label of a letterbox: labelMagic and the NIC's number.
const (
	labelMagic    = "vmmcvia\x01"
	labelSize     = len(labelMagic) + 4
	letterboxSize = 4 // the word of diallers' notifications
)

// connectResult is the outcome of a request.
type connectResult struct {
	attr VIAttributes // of the other side, without a tag
	code Code         // 0: it was accepted
	err  error
}

// Listener waits for requests with a discriminator.
//
// Experimental: it may change in any release.
type Listener struct {
	n         *NIC
	addr      Address
	letterbox *vmmc.Export
	mem       *vmmc.Memory
	pairs     *pair.Listener

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
	err := l.publish(ctx)
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
		return nil, errors.Join(errNICClosed(op), l.release())
	}
	return l, nil
}

// publish exports the letterbox.
func (l *Listener) publish(ctx context.Context) error {
	name, err := l.n.p.NodeToName(l.n.p.Node())
	if err != nil {
		return err
	}
	if l.mem, err = l.n.p.Alloc(letterboxSize); err != nil {
		return err
	}
	l.pairs = pair.NewListener(l.n.p, l.n.acceptLink)
	label := binary.LittleEndian.AppendUint32([]byte(labelMagic), l.n.number)
	l.letterbox, err = pair.Export(func(id uint32) (*vmmc.Export, error) {
		return l.n.p.Export(id, l.mem.Bytes(), vmmc.WithHandler(l.pairs.Handle), vmmc.WithLabel(label))
	})
	if err == nil {
		err = l.letterbox.PublishAs(ctx, publishedName(name, l.addr.Discriminator), vmmc.InSet())
		if err != nil {
			err = errors.Join(err, l.letterbox.Close())
		}
	}
	if err != nil {
		l.pairs.Close()
		return errors.Join(err, l.mem.Close())
	}
	return nil
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
	if err := l.release(); err != nil {
		return &Error{Op: op, Code: ErrResource, Err: err}
	}
	return nil
}

// release gives back the letterbox.
func (l *Listener) release() error {
	err := l.letterbox.Close()
	l.pairs.Close()
	if err == nil {
		err = l.mem.Close()
	}
	return err
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
	r.l.tell(header{kind: kindReply, conn: r.number, number: conn, status: uint32(code)}, encodeAttributes(nil, attr))
}

func encodeAttributes(b []byte, a VIAttributes) []byte {
	flags := uint32(a.Level)
	if a.EnableRDMAWrite {
		flags |= enablesWrite
	}
	if a.EnableRDMARead {
		flags |= enablesRead
	}
	b = binary.LittleEndian.AppendUint32(b, flags)
	return binary.LittleEndian.AppendUint32(b, uint32(a.MaxTransferSize))
}

const attributesSize = 8

// Bits beside the level.
const (
	enablesWrite = 1 << 16
	enablesRead  = 1 << 17
)

// decodeAttributes reports whether b begins with attributes, and returns what is behind them.
func decodeAttributes(b []byte) (a VIAttributes, rest []byte, ok bool) {
	if len(b) < attributesSize {
		return a, nil, false
	}
	flags := binary.LittleEndian.Uint32(b)
	a.Level = Level(flags)
	a.EnableRDMAWrite, a.EnableRDMARead = flags&enablesWrite != 0, flags&enablesRead != 0
	a.MaxTransferSize = int(int32(binary.LittleEndian.Uint32(b[4:])))
	return a, b[attributesSize:], true
}

func encodeAddress(b []byte, a Address) []byte {
	b = append(b, a.Host[:]...)
	b = append(b, byte(len(a.Discriminator)))
	return append(b, a.Discriminator...)
}

// decodeAddress reports whether b begins with an address, and returns what is behind it.
func decodeAddress(b []byte) (a Address, rest []byte, ok bool) {
	head := len(a.Host) + 1
	if len(b) < head {
		return a, nil, false
	}
	n := int(b[head-1])
	if n > maxDiscriminator || len(b) < head+n {
		return a, nil, false
	}
	copy(a.Host[:], b)
	a.Discriminator = string(b[head : head+n])
	return a, b[head+n:], true
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
	for _, a := range []Address{local, remote} {
		if len(a.Discriminator) > maxDiscriminator {
			return VIAttributes{}, fail(op, ErrInvalidParameter,
				"a discriminator has %d bytes: at most %d", len(a.Discriminator), maxDiscriminator)
		}
	}
	if ctx.Err() != nil {
		return VIAttributes{}, contextError(ctx, op)
	}
	n := vi.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := vi.check(op); err != nil {
		return VIAttributes{}, err
	}
	if vi.state != Idle {
		return VIAttributes{}, fail(op, ErrInvalidState, "it is in state %q", vi.state)
	}
	vi.setState(ConnectPending)
	n.mu.Unlock()
	l, err := n.linkTo(ctx, remote)
	n.mu.Lock()
	if err == nil && l.over {
		err = fail("", ErrNotReachable, "the other side has ended")
	}
	if n.closed {
		err = errNICClosed(op)
	}
	if err != nil {
		vi.setState(Idle)
		e := &Error{Op: op, Code: codeOf(ctx, err), Err: err}
		if inner := (*Error)(nil); errors.As(err, &inner) {
			e.Code, e.Err = inner.Code, inner.Err
		}
		return VIAttributes{}, e
	}
	n.newConn(vi)
	vi.link, vi.local, vi.remote, vi.outcome = l, local, remote, nil
	data := encodeAddress(encodeAddress(encodeAttributes(nil, vi.attr), local), remote)
	l.tell(header{kind: kindRequest, immediate: vi.conn}, data)
	pair.At("connect.requested")
	return vi.awaitReply(ctx, op)
}

// awaitReply waits for the outcome of a request. mu is held.
func (vi *VI) awaitReply(ctx context.Context, op string) (VIAttributes, error) {
	for {
		vi.n.progress()
		if o := vi.outcome; o != nil {
			vi.outcome = nil
			if vi.state == ConnectPending { // it was not accepted
				vi.leave()
				vi.setState(Idle)
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
			vi.setState(Idle)
			return VIAttributes{}, err
		}
	}
}

// staleTime bounds how long the import of a letterbox that was there a moment ago may take.
const staleTime = 5 * time.Second

// linkTo returns the link with a NIC that has a listener for the address.
func (n *NIC) linkTo(ctx context.Context, remote Address) (*link, error) {
	_, node, err := n.nodeOf(remote.Host)
	if err != nil {
		return nil, &Error{Code: ErrNotReachable, Err: err}
	}
	var found []vmmc.NameInfo
	for info, err := range n.p.Names(ctx, publishedName(node, remote.Discriminator)) {
		if err != nil {
			return nil, err
		}
		found = append(found, info)
	}
	if len(found) == 0 {
		return nil, fail("", ErrNoMatch, "%v", remote)
	}
	info := found[rand.IntN(len(found))] //nolint:gosec // spreads requests
	soon, stop := context.WithTimeout(ctx, staleTime)
	defer stop()
	letterbox, err := n.p.Import(soon, info.Process.Node, info.Process.PID, info.Buffer)
	if err != nil {
		if soon.Err() != nil && ctx.Err() == nil {
			return nil, &Error{Code: ErrNoMatch, Err: err}
		}
		return nil, err
	}
	l, err := n.linkBy(ctx, letterbox)
	return l, errors.Join(err, letterbox.Close())
}

// linkBy returns the link with the NIC that has a letterbox.
func (n *NIC) linkBy(ctx context.Context, letterbox *vmmc.Import) (*link, error) {
	label := letterbox.Label()
	if len(label) != labelSize || string(label[:len(labelMagic)]) != labelMagic ||
		letterbox.Size() != letterboxSize {
		return nil, fail("", ErrNoMatch, "what is published there is no NIC of this version")
	}
	key := peerKey{letterbox.Exporter(), binary.LittleEndian.Uint32(label[len(labelMagic):])}
	if err := n.dials.Acquire(ctx); err != nil {
		return nil, err
	}
	defer n.dials.Release()
	if n.ctx.Err() != nil {
		return nil, errNICClosed("")
	}
	for _, l := range n.linkList() {
		if l.key == key {
			return l, nil
		}
	}
	l, err := n.newLink(key.process)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer context.AfterFunc(n.ctx, stop)()
	defer stop()
	im, err := pair.Dial(ctx, n.p, letterbox, 0, l.own)
	if err == nil {
		if err = l.join(ctx, im); err == nil {
			err = l.start()
		}
		if err != nil {
			err = errors.Join(err, im.Close())
		}
	}
	if err != nil {
		return nil, errors.Join(err, l.closeBuffer())
	}
	return l, nil
}

// acceptLink makes the link with a NIC that dials.
func (n *NIC) acceptLink(theirs *vmmc.Import) (uint32, error) {
	l, err := n.newLink(theirs.Exporter())
	if err != nil {
		return 0, err
	}
	if err = l.join(n.ctx, theirs); err == nil {
		err = l.start()
	}
	if err != nil {
		return 0, errors.Join(err, l.closeBuffer())
	}
	return l.own.ID(), nil
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
		if code != ErrReject && code != ErrNoMatch {
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

// String names the link in errors.
func (l *link) String() string { return fmt.Sprintf("NIC %d of %v", l.key.number, l.key.process) }
