package via

import (
	"context"
	"math/bits"
	"sync/atomic"

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

	link       *link
	conn, peer uint32 // the numbers of the connection, here and there
	local      Address
	remote     Address
	outcome    *connectResult // of the request, once it is there
	connecting waitList

	// SENDs of this connection.
	current *Descriptor // the first one that has not left, or nil
	from    cursor      // in current
	left    int         // bytes of current that have not left; negative: it has not begun
	number  uint32      // of current, among the transfers of this connection
	reading int         // RDMA reads whose data has not arrived, at most one
	readAt  cursor      // in the segments of that
	readGot int
	backlog bool    // reports whether the link has the VI in its list
	serving readJob // the peer's RDMA read

	rx transfer
}

// transfer is a message that is arriving.
type transfer struct {
	active    bool
	to        *Descriptor // the head of the receive queue, or nil: it is dropped
	at        cursor      // in to
	got       int
	total     int
	immediate uint32
	flags     uint8
	number    uint32
	// Of an RDMA write: where it goes, or nil if it was refused.
	write  bool
	region *Memory
	off    int
}

// queue is one of a VI's two queues of descriptors. Its lists are guarded by NIC.mu.
type queue struct {
	cq      *CompletionQueue
	pending fifo // not complete
	ready   fifo // complete, not taken by the program
	waiters waitList

	outstanding atomic.Int32 // pending.n
	complete    atomic.Int32 // ready.n
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
	vi.attr.Tag.users--
	for _, q := range []*queue{&vi.send, &vi.recv} {
		if q.cq != nil {
			q.cq.attached--
			q.cq.forget(vi)
		}
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
	return nil
}

// reliable reports whether an error breaks the connection.
func (vi *VI) reliable() bool { return vi.attr.Level != Unreliable }

// PostSend appends a SEND to the send queue (VipPostSend) and never waits. What is wrong with the
// descriptor is told by its Status. If the VI is not connected it is completed at once, as
// [Flushed]. Errors: [ErrInvalidParameter] if d is nil or posted already, or the VI is destroyed;
// [ErrResource] if the queue has MaxDescriptors. The last two of a VI that is there are asynchronous
// errors, too.
//
// Experimental: it may change in any release.
func (vi *VI) PostSend(d *Descriptor) error {
	vi.n.mu.Lock()
	defer vi.n.mu.Unlock()
	if err := vi.accept(&vi.send, d, "post a SEND"); err != nil {
		return err
	}
	vi.send.add(d)
	if vi.state != Connected {
		vi.flush(&vi.send) // it is the only one
		return nil
	}
	if vi.current == nil {
		vi.begin(d)
		if !vi.backlog {
			vi.link.serve(vi)
		}
	}
	return nil
}

// PostReceive appends a receive to the receive queue (VipPostRecv) and never waits. It may be posted
// before the VI is connected. A VI in state Error completes it at once, as [Flushed]. Errors as
// [VI.PostSend].
//
// Experimental: it may change in any release.
func (vi *VI) PostReceive(d *Descriptor) error {
	vi.n.mu.Lock()
	defer vi.n.mu.Unlock()
	if err := vi.accept(&vi.recv, d, "post a receive"); err != nil {
		return err
	}
	vi.recv.add(d)
	if vi.state == Failed {
		vi.flush(&vi.recv)
		return nil
	}
	vi.settle()
	return nil
}

// accept refuses descriptors that cannot be posted. mu is held.
func (vi *VI) accept(q *queue, d *Descriptor, op string) error {
	if d == nil {
		return fail(op, ErrInvalidParameter, "the descriptor is nil")
	}
	if err := vi.check(op); err != nil {
		return err
	}
	if q.pending.n+q.ready.n >= maxDescriptors {
		vi.n.raise(AsyncError{VI: vi, Descriptor: d, Code: Overrun})
		return fail(op, ErrResource, "the queue has %d descriptors", maxDescriptors)
	}
	if !d.posted.CompareAndSwap(false, true) {
		vi.n.raise(AsyncError{VI: vi, Descriptor: d, Code: PostDescriptor})
		return fail(op, ErrInvalidParameter, "the descriptor is posted already")
	}
	d.Status, d.Length, d.sent = 0, 0, false
	return nil
}

func (q *queue) add(d *Descriptor) {
	q.pending.push(d)
	q.outstanding.Store(int32(q.pending.n))
}

// finish completes the head of a queue. mu is held.
func (vi *VI) finish(q *queue, status Status) {
	d := q.pending.pop()
	if q == &vi.send {
		status |= d.op()
	} else if status&OpMask == 0 {
		status |= OpReceive
	}
	d.Status = status | Done
	d.sent, d.reads = false, false
	q.ready.push(d)
	q.complete.Store(int32(q.ready.n))
	q.outstanding.Store(int32(q.pending.n))
	if q.cq != nil {
		q.cq.add(vi, q == &vi.recv)
	}
	q.waiters.wake()
}

// flush completes all outstanding descriptors of a queue. mu is held.
func (vi *VI) flush(q *queue) {
	for q.pending.n > 0 {
		vi.finish(q, Flushed)
	}
}

// take returns the completed head of a queue. mu is held.
func (q *queue) take() *Descriptor {
	d := q.ready.pop()
	if d != nil {
		q.complete.Store(int32(q.ready.n))
		d.posted.Store(false)
	}
	return d
}

// SendDone returns the head of the send queue if it is complete (VipSendDone), and never waits.
// Errors: [ErrNotDone]; [ErrDescriptor] with the descriptor if that has failed, see its Status, and
// without one if the queue is empty; [ErrInvalidParameter] if the VI is destroyed.
//
// Experimental: it may change in any release.
func (vi *VI) SendDone() (*Descriptor, error) { return vi.done(&vi.send) }

// ReceiveDone is SendDone for the receive queue (VipRecvDone).
//
// Experimental: it may change in any release.
func (vi *VI) ReceiveDone() (*Descriptor, error) { return vi.done(&vi.recv) }

func (vi *VI) done(q *queue) (*Descriptor, error) {
	if q.outstanding.Load() > 0 && q.complete.Load() == 0 && !vi.n.hasNews() {
		return nil, ErrNotDone
	}
	vi.n.mu.Lock()
	defer vi.n.mu.Unlock()
	vi.n.progress()
	if d := q.take(); d != nil {
		return d, d.Err()
	}
	switch {
	case vi.gone:
		return nil, vi.check("take a descriptor")
	case q.pending.n > 0:
		return nil, ErrNotDone
	default:
		return nil, ErrDescriptor
	}
}

// SendWait is [VI.SendDone] that waits until the head of the queue is complete (VipSendWait).
// Errors: [ErrTimeout] when the context ends; [ErrDescriptor] as SendDone; [ErrInvalidParameter] if
// the queue is attached to a completion queue, the VI is destroyed or the context is nil;
// [ErrInvalidState] in a handler of package vmmc.
//
// Experimental: it may change in any release.
func (vi *VI) SendWait(ctx context.Context) (*Descriptor, error) {
	return vi.wait(ctx, &vi.send, "wait for a SEND")
}

// ReceiveWait is SendWait for the receive queue (VipRecvWait).
//
// Experimental: it may change in any release.
func (vi *VI) ReceiveWait(ctx context.Context) (*Descriptor, error) {
	return vi.wait(ctx, &vi.recv, "wait for a receive")
}

func (vi *VI) wait(ctx context.Context, q *queue, op string) (*Descriptor, error) {
	if err := checkCall(ctx, op); err != nil {
		return nil, err
	}
	if q.cq != nil {
		return nil, fail(op, ErrInvalidParameter, "the queue is attached to a completion queue: wait for that")
	}
	vi.n.mu.Lock()
	defer vi.n.mu.Unlock()
	for {
		vi.n.progress()
		if d := q.take(); d != nil {
			return d, d.Err()
		}
		if err := vi.check(op); err != nil {
			return nil, err
		}
		if q.pending.n == 0 {
			return nil, ErrDescriptor
		}
		if err := vi.n.sleep(ctx, op, &q.waiters); err != nil {
			return nil, err
		}
	}
}

// The send queue. All that follows is called with mu held.

// begin makes d the next one to leave.
func (vi *VI) begin(d *Descriptor) { vi.current, vi.from, vi.left = d, cursor{}, -1 }

// next reports whether the VI has something to transmit. It completes what has failed on the way.
func (vi *VI) next() bool {
	for vi.current != nil && vi.left < 0 {
		status := Status(0)
		d := vi.current
		switch {
		case vi.reading > 0 && (d.Control&QFence != 0 || d.Control&opBits == OpRDMARead):
			return vi.serving.active // the read's last data goes on with it
		case !d.canSend(vi.attr.Level):
			status = FormatError
		case vi.n.protected(d.Segments, vi.attr.Tag):
			status = ProtectionError
		case d.length() > vi.attr.MaxTransferSize:
			status = LengthError
		default:
			vi.left = d.length()
			return true
		}
		if vi.send.pending.first != d {
			return vi.serving.active // descriptors are completed in their order
		}
		vi.advance()
		vi.finish(&vi.send, status)
		if vi.reliable() {
			vi.fail(nil, 0)
			return false
		}
	}
	return vi.current != nil || vi.serving.active
}

// advance makes the next descriptor the current one.
func (vi *VI) advance() {
	if d := vi.current.next; d != nil {
		vi.begin(d)
	} else {
		vi.current = nil
	}
}

// transmit sends one fragment: of what the peer reads, or else of the current descriptor. It reports
// whether the link has taken it.
func (vi *VI) transmit() bool {
	if vi.serving.active {
		return vi.transmitRead()
	}
	d := vi.current
	total := d.length()
	h := header{
		kind: kindSend, conn: vi.peer, total: uint32(total), immediate: d.ImmediateData, number: vi.number,
	}
	prefix, n := 0, min(vi.left, maxFragment)
	first := vi.left == total
	if first {
		h.flags |= flagFirst
	}
	if d.Control&Immediate != 0 {
		h.flags |= flagImmediate
	}
	switch d.Control & opBits {
	case OpRDMAWrite:
		h.kind = kindWrite
		if first {
			prefix = targetSize
		}
	case OpRDMARead:
		h.kind, prefix, n = kindRead, targetSize, 0
	}
	last := vi.left == n || h.kind == kindRead
	acknowledged := vi.attr.Level == ReliableReception || h.kind == kindWrite && vi.reliable()
	if last && acknowledged {
		h.flags |= flagAcknowledge
	}
	h.size = uint32(prefix + n)
	size := headerSize + int(h.size)
	if !vi.link.fits(size, reserve) {
		return false
	}
	if vi.n.protected(d.Segments, vi.attr.Tag) { // deregistered meanwhile
		if first {
			vi.left = -1 // next finds out
			return true
		}
		if vi.send.pending.first == d {
			vi.advance()
			vi.finish(&vi.send, ProtectionError)
		}
		vi.fail(nil, 0) // the peer has a part of it
		return true
	}
	if prefix > 0 {
		encodeTarget(vi.link.stage[headerSize:], d.Remote)
	}
	at := vi.from
	at.gather(vi.link.stage[headerSize+prefix:size], d.Segments)
	if !vi.link.write(&h, reserve) {
		return false
	}
	pair.At("send.sent")
	vi.from = at
	vi.left -= n
	d.number = vi.number
	if !last {
		return true
	}
	vi.number++
	d.Length = total
	switch {
	case h.kind == kindRead:
		d.reads = true
		vi.reading++
	case acknowledged:
		vi.link.expect(vi)
	default:
		d.sent = true
	}
	vi.advance()
	vi.completeSent()
	return true
}

// completeSent completes all SENDs that do not wait for an earlier one.
func (vi *VI) completeSent() {
	for d := vi.send.pending.first; d != nil && d.sent; d = vi.send.pending.first {
		vi.finish(&vi.send, 0)
	}
}

// acknowledged completes the first transfer that waits for the receiver.
func (vi *VI) acknowledged() {
	for d := vi.send.pending.first; d != nil && d != vi.current; d = d.next {
		if !d.sent && !d.reads {
			d.sent = true
			break
		}
	}
	vi.completeSent()
	vi.goOn()
}

// goOn transmits what has waited for earlier descriptors.
func (vi *VI) goOn() {
	if vi.current != nil && !vi.backlog {
		vi.link.serve(vi)
	}
}

// The receive queue.

// settle completes receives that cannot be used, when they are at the head.
func (vi *VI) settle() {
	for d := vi.recv.pending.first; d != nil && !vi.rx.active && !d.canReceive(); d = vi.recv.pending.first {
		vi.finish(&vi.recv, FormatError)
		if vi.state == Connected && vi.reliable() {
			vi.fail(nil, 0)
			return
		}
	}
}

// receive takes a fragment of a SEND. It reports whether the peer keeps to the protocol.
func (vi *VI) receive(h *header, data []byte) bool {
	rx := &vi.rx
	if h.flags&flagFirst != 0 {
		if rx.active || int(h.total) > vi.attr.MaxTransferSize {
			return false
		}
		*rx = transfer{
			active: true, total: int(h.total), immediate: h.immediate, flags: h.flags, number: h.number,
		}
		if !vi.place() {
			return true // the connection is broken
		}
	}
	if !rx.active || rx.write || rx.number != h.number || int(h.total) != rx.total ||
		len(data) > rx.total-rx.got || len(data) == 0 && rx.total > 0 {
		return false
	}
	if rx.to != nil {
		if vi.n.protected(rx.to.Segments, vi.attr.Tag) {
			rx.to = nil
			vi.finish(&vi.recv, ProtectionError)
			if vi.reliable() {
				vi.fail(&rx.number, RemoteError)
				return true
			}
		} else {
			rx.at.scatter(rx.to.Segments, data)
		}
	}
	pair.At("receive.copied")
	if rx.got += len(data); rx.got == rx.total {
		vi.received()
	}
	return true
}

// place finds the receive for the message that is arriving. It reports whether the VI is still
// connected.
func (vi *VI) place() bool {
	rx := &vi.rx
	d := vi.recv.pending.first
	status := Status(0)
	switch {
	case d == nil:
		vi.n.raise(AsyncError{VI: vi, Code: ReceiveEmpty})
	case vi.n.protected(d.Segments, vi.attr.Tag):
		status = ProtectionError
	case d.length() < rx.total:
		status = LengthError
	default:
		rx.to = d
		return true
	}
	if d != nil {
		vi.finish(&vi.recv, status)
	}
	if vi.reliable() {
		vi.fail(&rx.number, RemoteError)
		return false
	}
	return true
}

// received completes the message that has arrived.
func (vi *VI) received() {
	rx := &vi.rx
	rx.active = false
	if d := rx.to; d != nil {
		rx.to = nil
		d.Length = rx.total
		status := Status(0)
		if rx.flags&flagImmediate != 0 {
			d.ImmediateData = rx.immediate
			status |= ImmediateArrived
		}
		vi.finish(&vi.recv, status)
	}
	vi.settle()
}

// Ends.

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
	vi.leave()
	vi.setState(Failed)
	vi.n.raise(AsyncError{VI: vi, Code: ConnectionLost, Err: cause})
	vi.flushAll()
}

// leave ends what the VI has of its connection.
func (vi *VI) leave() {
	vi.link.drop(vi)
	vi.n.freeConn(vi)
	vi.link = nil
	vi.current, vi.left, vi.reading, vi.readAt, vi.readGot = nil, 0, 0, cursor{}, 0
	vi.rx, vi.serving = transfer{}, readJob{}
}

func (vi *VI) flushAll() {
	vi.flush(&vi.send)
	vi.flush(&vi.recv)
}

// refused is the peer's error of a transfer.
func (vi *VI) refused(h *header) {
	if h.status != 0 {
		n := 0 // descriptors before the refused one
		for d := vi.send.pending.first; d != nil; d = d.next {
			if d == vi.current && (vi.left < 0 || vi.left == d.length()) {
				break // it has not begun
			}
			if d.number == h.number {
				for range n {
					vi.finish(&vi.send, Flushed)
				}
				vi.finish(&vi.send, Status(h.status)&(RDMAError|RemoteError))
				break
			}
			n++
		}
	}
	vi.broken(nil)
}

// Disconnect ends the connection (VipDisconnect): all descriptors are completed as [Flushed], and
// the VI is idle. The other side's VI changes to state Error. A VI in state Error becomes idle, and
// of an idle one the receives are completed. The error is [ErrInvalidParameter] if the VI is
// destroyed, and [ErrInvalidState] while a request of it is under way.
//
// Experimental: it may change in any release.
func (vi *VI) Disconnect() error {
	const op = "disconnect a VI"
	vi.n.mu.Lock()
	defer vi.n.mu.Unlock()
	if err := vi.check(op); err != nil {
		return err
	}
	if vi.state == ConnectPending {
		return fail(op, ErrInvalidState, "a request is under way: end its context")
	}
	vi.disconnect()
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
