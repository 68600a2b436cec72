package via

import (
	"math/bits"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/state"
)

// Level is a reliability level, or several (VIP_RELIABILITY_LEVEL).
//
// Experimental: it may change in any release.
type Level uint16

// The levels, with VIPL's numbers. A VI has one of them.
//
// Experimental: they may change in any release.
const (
	// Unreliable may lose messages. Errors do not break the connection.
	Unreliable Level = 0x01
	// ReliableDelivery delivers each message once and in order. A SEND is complete when its memory
	// may be used again. An error breaks the connection.
	ReliableDelivery Level = 0x02
	// ReliableReception is as ReliableDelivery, but a SEND is complete when its data is in the
	// memory of the receiver.
	ReliableReception Level = 0x04

	allLevels = Unreliable | ReliableDelivery | ReliableReception
)

// State is that of a VI (VIP_VI_STATE).
//
// Experimental: it may change in any release.
type State uint8

// The states, with VIPL's numbers:
//
//	Idle -- Connect, Accept --> ConnectPending -- ok --> Connected
//	 ^  <-- no connection -------------'                     |
//	 |  <-- Disconnect --------------------------------------|
//	 '----- Disconnect -- Failed <-- error, remote end ------'
//
// Experimental: they may change in any release.
const (
	Idle State = iota
	Connected
	ConnectPending
	Failed // VIP_STATE_ERROR
)

var stateNames = [...]string{"idle", "connected", "connect pending", "error"}

// String is the state's name.
func (s State) String() string {
	if int(s) >= len(stateNames) {
		return "unknown"
	}
	return stateNames[s]
}

var transitions = state.Table[State]{
	Idle:           {ConnectPending},
	ConnectPending: {Idle, Connected},
	Connected:      {Idle, Failed},
	Failed:         {Idle},
}

// VIAttributes are those of a VI (VIP_VI_ATTRIBUTES).
//
// Experimental: it may change in any release.
type VIAttributes struct {
	Level           Level // one
	MaxTransferSize int   // bytes of a message, at most that of the NIC
	Tag             *ProtectionTag
	// EnableRDMAWrite and EnableRDMARead let the other side write and read regions of the tag by this
	// VI, if these enable it too. Unreliable VIs have no RDMA read.
	EnableRDMAWrite, EnableRDMARead bool
}

// VI is a virtual interface: a queue of SENDs and a queue of receives, which are connected to those
// of one other VI (VIP_VI_HANDLE).
//
// Experimental: it may change in any release.
type VI struct {
	n          *NIC
	send, recv queue

	// The rest is guarded by NIC.mu.
	attr  VIAttributes
	state State
	gone  bool

	slot   uint16 // of the NIC's table
	report []byte // that slot

	link       *link
	conn, peer uint32 // the numbers of the connection, here and there
	local      Address
	remote     Address
	outcome    *connectResult // of the request, once it is there
	connecting waitList
	request    *peerRequest // the last one, until its outcome is taken

	// SENDs of this connection.
	current *Descriptor // the first one that has not left, or nil
	from    cursor      // in current
	left    int         // bytes of current that have not left; negative: it has not begun
	number  uint32      // of current, among the transfers of this connection
	writing int         // RDMA writes by messages that are not acknowledged
	reading int         // RDMA reads whose data has not arrived, at most one
	readAt  cursor      // in the segments of that
	readGot int
	backlog bool    // reports whether the link has the VI in its list
	serving readJob // the peer's RDMA read

	rx transfer

	former vmmc.ProcessID          // of the last connection, until its direct use of regions is revoked
	direct map[Handle]directRegion // regions of the other side that this one may use directly
}

// NewVI makes a VI (VipCreateVi). Each of its queues may be attached to a completion queue, both to
// one, or none. Errors: [ErrInvalidLevel]; [ErrInvalidMTU]; [ErrInvalidTag];
// [ErrInvalidParameter] if a completion queue is of another NIC or destroyed, or the NIC was closed;
// [ErrResource] when the NIC has MaxVIs.
//
// Experimental: it may change in any release.
func (n *NIC) NewVI(attr VIAttributes, send, recv *CompletionQueue) (*VI, error) {
	const op = "create a VI"
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, errNICClosed(op)
	}
	if err := n.checkAttributes(attr, op); err != nil {
		return nil, err
	}
	for _, c := range []*CompletionQueue{send, recv} {
		if c != nil && (c.n != n || c.isGone()) {
			return nil, fail(op, ErrInvalidParameter, "the completion queue is of another NIC, or destroyed")
		}
	}
	if len(n.vis) >= maxVIs {
		return nil, fail(op, ErrResource, "the NIC has %d VIs: destroy one first", maxVIs)
	}
	vi := &VI{n: n, attr: attr, send: queue{cq: send}, recv: queue{cq: recv}}
	for _, c := range []*CompletionQueue{send, recv} {
		if c != nil {
			c.attached++
		}
	}
	n.vis[vi] = struct{}{}
	vi.newSlot()
	attr.Tag.users++
	return vi, nil
}

// checkAttributes refuses attributes of a VI that cannot be. mu is held.
func (n *NIC) checkAttributes(a VIAttributes, op string) error {
	switch {
	case a.Level&^allLevels != 0 || bits.OnesCount16(uint16(a.Level)) != 1:
		return fail(op, ErrInvalidLevel, "level %#x: one of the NIC's", uint16(a.Level))
	case a.MaxTransferSize < 1 || a.MaxTransferSize > maxTransfer:
		return fail(op, ErrInvalidMTU, "MaxTransferSize %d: 1 to %d", a.MaxTransferSize, maxTransfer)
	}
	if a.EnableRDMARead && a.Level == Unreliable {
		return fail(op, ErrInvalidRDMARead, "the level is unreliable")
	}
	return n.checkTag(a.Tag, op)
}

// check refuses a VI that was destroyed. mu is held.
func (vi *VI) check(op string) error {
	if vi.gone {
		return fail(op, ErrInvalidParameter, "the VI is destroyed")
	}
	return nil
}

// setState is the one function that changes the state. mu is held.
func (vi *VI) setState(s State) {
	transitions.Check(vi.state, s)
	vi.state = s
	vi.reportConnection(0)
}

// Destroy destroys the VI (VipDestroyVi). Errors: [ErrInvalidParameter] if it is destroyed already;
// [ErrResource] if it is not idle, or a queue has descriptors: [VI.Disconnect] completes those that
// are outstanding, and the Done calls take them.
//
// Experimental: it may change in any release.
func (vi *VI) Destroy() error {
	const op = "destroy a VI"
	vi.n.mu.Lock()
	defer vi.n.mu.Unlock()
	if err := vi.check(op); err != nil {
		return err
	}
	if vi.state != Idle {
		return fail(op, ErrResource, "it is in state %q: disconnect it first", vi.state)
	}
	for _, q := range []*queue{&vi.send, &vi.recv} {
		if n := q.pending.n + q.ready.n; n > 0 {
			return fail(op, ErrResource, "a queue has %d descriptors: disconnect, and take them", n)
		}
	}
	vi.destroy()
	return nil
}

// destroy is Destroy without its checks. mu is held.
func (vi *VI) destroy() {
	vi.gone = true
	delete(vi.n.vis, vi)
	vi.freeSlot()
	vi.attr.Tag.users--
	for _, q := range []*queue{&vi.send, &vi.recv} {
		if q.cq != nil {
			q.cq.attached--
			q.cq.forget(vi)
		}
		q.notifies.cancel(vi.n)
		q.waiters.wake()
	}
}

// VIStatus is what [VI.Query] returns.
//
// Experimental: it may change in any release.
type VIStatus struct {
	State         State
	Attributes    VIAttributes
	SendEmpty     bool // reports whether the send queue has no descriptor
	ReceiveEmpty  bool // reports whether the receive queue has no descriptor
	Local, Remote Address
}

// Query returns the VI's state and attributes (VipQueryVi), and the addresses of its connection.
// The error is [ErrInvalidParameter] if it is destroyed.
//
// Experimental: it may change in any release.
func (vi *VI) Query() (VIStatus, error) {
	vi.n.mu.Lock()
	defer vi.n.mu.Unlock()
	if err := vi.check("query a VI"); err != nil {
		return VIStatus{}, err
	}
	return VIStatus{
		State: vi.state, Attributes: vi.attr,
		SendEmpty:    vi.send.pending.n+vi.send.ready.n == 0,
		ReceiveEmpty: vi.recv.pending.n+vi.recv.ready.n == 0,
		Local:        vi.local, Remote: vi.remote,
	}, nil
}

// State is the VI's state; a destroyed one is idle.
//
// Experimental: it may change in any release.
func (vi *VI) State() State {
	vi.n.mu.Lock()
	defer vi.n.mu.Unlock()
	return vi.state
}

// SetAttributes changes the attributes of an idle VI (VipSetViAttributes). Errors:
// [ErrInvalidState] if it is not idle, and those of [NIC.NewVI].
//
// Experimental: it may change in any release.
func (vi *VI) SetAttributes(attr VIAttributes) error {
	const op = "set attributes of a VI"
	vi.n.mu.Lock()
	defer vi.n.mu.Unlock()
	if err := vi.check(op); err != nil {
		return err
	}
	if vi.state != Idle {
		return fail(op, ErrInvalidState, "it is in state %q", vi.state)
	}
	if err := vi.n.checkAttributes(attr, op); err != nil {
		return err
	}
	vi.attr.Tag.users--
	attr.Tag.users++
	vi.attr = attr
	vi.reportConnection(0)
	return nil
}

// reliable reports whether an error breaks the connection.
func (vi *VI) reliable() bool { return vi.attr.Level != Unreliable }

// Ends. What follows, but Disconnect, is called with mu held.

// fail breaks the connection because of an error of this side. refused is the number of the peer's
// transfer that was refused, or nil, and status the one for it.
func (vi *VI) fail(refused *uint32, status Status) {
	h := header{kind: kindBreak, conn: vi.peer}
	if refused != nil {
		h.number, h.status = *refused, uint32(status)
	}
	vi.link.tellError(h)
	vi.broken(nil)
}

// broken changes the state to Error, completes all descriptors, and tells the program.
func (vi *VI) broken(cause error) {
	vi.abortWrite()
	vi.leave()
	vi.setState(Failed)
	vi.n.raise(AsyncError{VI: vi, Code: ConnectionLost, Err: cause})
	vi.flushAll()
}

// leave ends what the VI has of its connection.
func (vi *VI) leave() {
	if vi.state == Connected { // a request that was refused has let nothing in
		vi.former = vi.link.key.process
	}
	vi.link.drop(vi)
	vi.n.freeConn(vi)
	if len(vi.direct) > 0 {
		vi.link.updateImports()
	}
	vi.link = nil
	vi.current, vi.left, vi.reading, vi.readAt, vi.readGot = nil, 0, 0, cursor{}, 0
	vi.rx, vi.serving = transfer{}, readJob{}
	vi.direct, vi.writing = nil, 0
}

// Disconnect ends the connection (VipDisconnect): all descriptors are completed as [Flushed], and
// the VI is idle. The other side's VI changes to state Error. A VI in state Error becomes idle, and
// of an idle one the receives are completed. The error is [ErrInvalidParameter] if the VI is
// destroyed, and [ErrInvalidState] while a request of it is under way. Where the process of the other
// side has used regions directly, it is let into them no more when Disconnect returns: their pages are
// replaced, as by [Memory.Deregister], and the program must not write to them meanwhile. Then the error
// is [ErrInvalidState] in a handler of package vmmc, and [ErrResource] if the node fails: call it again.
//
// Experimental: it may change in any release.
func (vi *VI) Disconnect() error {
	const op = "disconnect a VI"
	defer vi.n.lockToRevoke()()
	if err := vi.check(op); err != nil {
		return err
	}
	if vi.state == ConnectPending {
		return fail(op, ErrInvalidState, "a request is under way: end its context")
	}
	if vi.state == Connected {
		vi.former = vi.link.key.process
	}
	if err := vi.n.checkRevoke(op, vi.former); err != nil {
		return err
	}
	vi.disconnect()
	if err := vi.n.revoke(op, vi.former); err != nil {
		return err
	}
	vi.former = vmmc.ProcessID{}
	return nil
}

// disconnect is Disconnect without its checks. mu is held.
func (vi *VI) disconnect() {
	switch vi.state {
	case Connected:
		l, h := vi.link, header{kind: kindDisconnect, conn: vi.peer}
		vi.leave()
		vi.setState(Idle)
		l.tell(h, nil)
		pair.At("disconnect.told")
	case Failed:
		vi.setState(Idle)
	case ConnectPending: // the NIC is closed: Connect finds that out
		vi.connecting.wake()
	case Idle:
	}
	vi.flushAll()
}
