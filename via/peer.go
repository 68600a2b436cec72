package via

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// Connections between peers: two VIs request each other. Both know both addresses, so both know
// which of them asks: the one with the lesser local address. The other one publishes a letterbox for
// its address, and waits. Where the two addresses are equal both publish, and the NIC with the lesser
// number of its process, and its own in that, asks.

// peerRequest is a request of ConnectPeer. Its result is guarded by NIC.mu.
type peerRequest struct {
	vi            *VI
	local, remote Address
	ctx           context.Context //nolint:containedctx // the program's
	result        *connectResult  // once it is there
	// ended ends with the program's context, with the NIC, and when the result is there.
	ended context.Context //nolint:containedctx // above
	end   context.CancelFunc
}

const peerOp = "request a connection with a peer"

// ConnectPeer begins to connect the VI with one that makes the opposite request: whose local address
// is this one's remote one, and the other way round (VipConnectPeerRequest). It returns at once, and
// the VI is in state ConnectPending. Either side may be the first, and both may request at once. The
// request ends with ctx. [VI.ConnectPeerDone] and [VI.ConnectPeerWait] return the outcome. local
// must be an address of this node. Errors: [ErrInvalidState] if the VI is not idle, and in a handler
// of package vmmc; [ErrInvalidParameter] for a discriminator that is too long, a local address of
// another node, a VI that is destroyed or a nil context; [ErrTimeout] if ctx has ended.
//
// Experimental: it may change in any release.
func (vi *VI) ConnectPeer(ctx context.Context, local, remote Address) error {
	if err := checkCall(ctx, peerOp); err != nil {
		return err
	}
	n := vi.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := vi.checkRequest(ctx, peerOp, local, remote); err != nil {
		return err
	}
	if local.Host != n.addr {
		return fail(peerOp, ErrInvalidParameter, "the local address is %v: this node's host is %v", local, n.addr)
	}
	vi.local, vi.remote = local, remote
	vi.setState(ConnectPending)
	r := &peerRequest{vi: vi, local: local, remote: remote, ctx: ctx}
	r.ended, r.end = context.WithCancel(ctx)
	vi.request = r
	n.peers = append(n.peers, r)
	n.wg.Go(r.run)
	return nil
}

// ConnectPeerDone returns the outcome of the VI's last [VI.ConnectPeer] once (VipConnectPeerDone),
// with the attributes of the other side's VI, without a tag, and never waits. Errors: [ErrNotDone];
// [ErrTimeout] when the request's context has ended; [ErrInvalidLevel] and [ErrInvalidMTU] if the
// attributes of the two VIs differ, which both sides are told; [ErrNotReachable] for an address of
// no node; [ErrResource]; [ErrInvalidState] without a request whose outcome was not taken;
// [ErrInvalidParameter] if the VI is destroyed. After an error but the first one and the last two
// the VI is idle.
//
// Experimental: it may change in any release.
func (vi *VI) ConnectPeerDone() (VIAttributes, error) {
	vi.n.mu.Lock()
	defer vi.n.mu.Unlock()
	return vi.takeOutcome()
}

// ConnectPeerWait is ConnectPeerDone that waits (VipConnectPeerWait). When ctx ends it returns
// [ErrTimeout], and the request goes on. Other errors: [ErrInvalidParameter] if ctx is nil, and
// [ErrInvalidState] in a handler of package vmmc.
//
// Experimental: it may change in any release.
func (vi *VI) ConnectPeerWait(ctx context.Context) (VIAttributes, error) {
	const op = "wait for a peer"
	if err := checkCall(ctx, op); err != nil {
		return VIAttributes{}, err
	}
	vi.n.mu.Lock()
	defer vi.n.mu.Unlock()
	for {
		attr, err := vi.takeOutcome()
		if err != ErrNotDone { //nolint:errorlint // it is the code itself
			return attr, err
		}
		if err := vi.n.sleep(ctx, op, &vi.connecting); err != nil {
			return VIAttributes{}, err
		}
	}
}

// takeOutcome is ConnectPeerDone. mu is held.
func (vi *VI) takeOutcome() (VIAttributes, error) {
	const op = "take the outcome of a request"
	vi.n.progress()
	r := vi.request
	switch {
	case vi.gone:
		return VIAttributes{}, vi.check(op)
	case r == nil:
		return VIAttributes{}, fail(op, ErrInvalidState, "there is no request: call ConnectPeer first")
	case r.result == nil:
		return VIAttributes{}, ErrNotDone
	}
	vi.request = nil
	if r.result.code != 0 {
		return VIAttributes{}, &Error{Op: peerOp, Code: r.result.code, Err: r.result.err}
	}
	return r.result.attr, nil
}

// settle gives the request its outcome. mu is held.
func (r *peerRequest) settle(result connectResult) {
	if r.result != nil {
		return
	}
	r.result = &result
	n := r.vi.n
	n.peers = slices.DeleteFunc(n.peers, func(o *peerRequest) bool { return o == r })
	if r.vi.state == ConnectPending {
		r.vi.setState(Idle)
	}
	r.end()
	r.vi.connecting.wake()
}

// order is below 0 if this side asks, above 0 if the other one does, and 0 if the addresses are
// equal.
func (r *peerRequest) order() int {
	if c := slices.Compare(r.local.Host[:], r.remote.Host[:]); c != 0 {
		return c
	}
	return strings.Compare(r.local.Discriminator, r.remote.Discriminator)
}

// run makes the connection.
func (r *peerRequest) run() {
	n := r.vi.n
	defer context.AfterFunc(n.ctx, r.end)()
	defer r.end()
	order := r.order()
	_, _, err := n.nodeOf(r.remote.Host)
	if err != nil {
		err = &Error{Code: ErrNotReachable, Err: err}
	} else if order >= 0 {
		if err = n.publishPeer(r.ended, r.local.Discriminator); err == nil {
			defer n.withdrawPeer(r.local.Discriminator)
			pair.At("peer.published")
		}
	}
	switch {
	case err != nil:
	case order <= 0:
		err = r.search()
	default:
		<-r.ended.Done()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	result := connectResult{code: ErrTimeout, err: context.Cause(r.ctx)}
	switch {
	case n.closed:
		result = connectResult{code: ErrInvalidParameter, err: errNICClosed("")}
	case r.ctx.Err() == nil && err != nil:
		e := requestError(r.ctx, peerOp, err).(*Error) //nolint:errorlint,forcetypeassert // it is one
		result = connectResult{code: e.Code, err: e.Err}
	}
	r.settle(result)
}

// A search for the peer looks again after these times. A letterbox that cannot be imported holds it
// up for some of them: the peer may have made another one meanwhile.
const (
	firstSearch   = time.Millisecond
	lastSearch    = 50 * time.Millisecond
	staleSearches = 20
)

// search asks peers at the remote address until one has the opposite request. It returns when the
// request has an outcome or its context has ended, or an error.
func (r *peerRequest) search() error {
	n := r.vi.n
	for pause := firstSearch; ; pause = min(2*pause, lastSearch) {
		found, err := n.find(r.ended, peerName, r.remote)
		if err != nil {
			return err
		}
		for _, info := range found {
			l, err := n.linkAt(r.ended, info, staleSearches*pause)
			if err != nil { // it has ended, mostly
				continue
			}
			n.mu.Lock()
			if r.result == nil && !n.closed && r.asks(l) {
				r.try(l)
			}
			n.mu.Unlock()
		}
		if !timeout.Sleep(r.ended, pause) {
			return nil
		}
	}
}

// asks reports whether this side asks a NIC. mu is held.
func (r *peerRequest) asks(l *link) bool {
	if r.order() != 0 {
		return true
	}
	n := r.vi.n
	own, other := n.p.ID(), l.key.process
	switch {
	case own != other:
		return own.PID < other.PID
	case n.number != l.key.number:
		return n.number < l.key.number
	}
	// A VI of this NIC: the earlier request asks for the later one.
	i := slices.Index(n.peers, r)
	return slices.ContainsFunc(n.peers[i+1:], func(o *peerRequest) bool {
		return o.local == r.local && o.remote == r.remote
	})
}

// try asks the NIC at the other end of a link. mu is held, but not while it waits.
func (r *peerRequest) try(l *link) {
	attr, err := r.vi.ask(r.ended, peerOp, l, flagPeer)
	if err == nil {
		r.settle(connectResult{attr: attr})
		return
	}
	e, ok := err.(*Error) //nolint:errorlint // ask's own
	if !ok {
		return
	}
	switch e.Code {
	case ErrNoMatch, ErrNotReachable, ErrTimeout: // another one may have it, or later
	default:
		r.settle(connectResult{code: e.Code, err: e.Err})
	}
}

// peerRequest takes a peer's request for a VI with the opposite one. A process that requests in the
// name of another node matches nothing: one with other attributes would end the program's request.
// mu is held.
func (l *link) peerRequest(number uint32, attr VIAttributes, local, remote Address) {
	if name, err := l.n.p.NodeToName(l.key.process.Node); err != nil || hashName(name) != remote.Host {
		l.answer(number, ErrNoMatch, 0, VIAttributes{})
		return
	}
	matches := func(r *peerRequest) bool {
		return r.local == local && r.remote == remote && r.vi.link == nil // it does not ask itself
	}
	// Of several VIs that request the same, one with the attributes of the peer's is first.
	i := slices.IndexFunc(l.n.peers, func(r *peerRequest) bool {
		own := r.vi.attr
		return matches(r) && own.Level == attr.Level && own.MaxTransferSize == attr.MaxTransferSize
	})
	if i < 0 {
		i = slices.IndexFunc(l.n.peers, matches)
	}
	if i < 0 {
		l.answer(number, ErrNoMatch, 0, VIAttributes{})
		return
	}
	r := l.n.peers[i]
	vi := r.vi
	code := Code(0)
	switch {
	case vi.attr.Level != attr.Level:
		code = ErrInvalidLevel
	case vi.attr.MaxTransferSize != attr.MaxTransferSize:
		code = ErrInvalidMTU
	}
	if code != 0 {
		l.answer(number, code, 0, VIAttributes{})
		r.settle(connectResult{code: code})
		return
	}
	l.n.newConn(vi)
	vi.connected(l, number)
	pair.At("peer.connected")
	l.answer(number, 0, vi.conn, vi.attr)
	r.settle(connectResult{attr: attr})
}

// sharedBox is a letterbox that VIs with the same local discriminator share.
type sharedBox struct {
	letterbox
	users int
}

// publishPeer publishes a letterbox for a discriminator, or counts one more user of it.
func (n *NIC) publishPeer(ctx context.Context, discriminator string) error {
	if err := n.publishing.Acquire(ctx); err != nil {
		return err
	}
	defer n.publishing.Release()
	b := n.peerBoxes[discriminator]
	if b == nil {
		box, err := n.publish(ctx, peerName, discriminator)
		if err != nil {
			return err
		}
		b = &sharedBox{letterbox: box}
		n.peerBoxes[discriminator] = b
	}
	b.users++
	return nil
}

// withdrawPeer is its end.
func (n *NIC) withdrawPeer(discriminator string) {
	_ = n.publishing.Acquire(context.Background()) // it is held for as long as the node answers
	defer n.publishing.Release()
	b := n.peerBoxes[discriminator]
	if b.users--; b.users == 0 {
		delete(n.peerBoxes, discriminator)
		_ = b.close() // a process that ends gives back its exports
	}
}
