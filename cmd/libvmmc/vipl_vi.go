//go:build linux && cgo

package main

// #include "boundary.h"
import "C"

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/vmmc-go/vmmc/via"
)

// viplVI is a VIP_VI_HANDLE.
type viplVI struct {
	nic    *viplNIC
	vi     *via.VI
	handle C.uint64_t
	tag    atomic.Pointer[viplTag]
	user   atomic.Uint64 // VipSetUserData
	ended  atomic.Bool   // reports whether it is destroyed
	queues [2]viplQueue  // that of SENDs, that of receives
	poll   *viplPoll     // what C polls. Guarded by viplNIC.mu.

	peerMu sync.Mutex
	limit  *viplLimit // of the last request of a peer, or nil. Guarded by peerMu.
}

// viplLimit is the time limit of a request of a peer.
type viplLimit struct{ end context.CancelFunc }

// viplQueue is a queue of a VI, as far as package via does not have it.
type viplQueue struct {
	mu   sync.Mutex // held over posts, so that Next is in their order
	tail *posted    // the last one, or nil if it was taken. Guarded by mu.
}

func (l *library) viOf(r *record, op string) (*viplVI, error) {
	return known(&l.vipl.vis, r.in[0], op, "VI")
}

// attributes are those of a VI, which begin at in[i].
func (l *library) attributes(r *record, i int) (*viplTag, via.VIAttributes) {
	x, t := l.tag(r.in[i+2])
	f := r.in[i+3]
	return x, via.VIAttributes{
		Level: via.Level(r.in[i]), MaxTransferSize: int(min(r.in[i+1], 1<<62)), Tag: t,
		EnableRDMAWrite: f&C.VMMCB_VIP_WRITE != 0, EnableRDMARead: f&C.VMMCB_VIP_READ != 0,
	}
}

// queueAt is the completion queue of in[i], or nil for a handle that is 0.
func (l *library) queueAt(r *record, i int, op string) (*via.CompletionQueue, error) {
	if r.in[i] == 0 {
		return nil, nil //nolint:nilnil // no completion queue is one of VIPL's choices
	}
	c, err := known(&l.vipl.cqs, r.in[i], op, "completion queue")
	if err != nil {
		return nil, err
	}
	return c.c, nil
}

func (l *library) vipNewVI(_ context.Context, r *record) error {
	const op = "create a VI"
	v, err := l.nic(r, op)
	if err != nil {
		return err
	}
	send, err := l.queueAt(r, 5, op)
	if err != nil {
		return err
	}
	recv, err := l.queueAt(r, 6, op)
	if err != nil {
		return err
	}
	tag, attr := l.attributes(r, 1)
	vi, err := v.n.NewVI(attr, send, recv)
	if err != nil {
		return err
	}
	x := &viplVI{nic: v, vi: vi}
	x.tag.Store(tag)
	if x.handle, err = l.vipl.vis.add(x); err != nil {
		return errors.Join(&via.Error{Op: op, Code: via.ErrResource, Err: err}, vi.Destroy())
	}
	if !v.keep(func() {
		v.vis[vi] = x
		x.show(l)
	}) {
		l.vipl.vis.remove(x.handle)
		return stale(op, "NIC")
	}
	r.out[1] = x.handle
	return nil
}

func (l *library) vipEndVI(ctx context.Context, r *record) error {
	x, err := l.viOf(r, "destroy a VI")
	if err != nil {
		return err
	}
	if err := x.vi.Destroy(); err != nil {
		return err
	}
	x.endLimit(x.currentLimit())
	l.vipl.vis.remove(x.handle)
	x.nic.mu.Lock()
	delete(x.nic.vis, x.vi)
	x.hide(l)
	x.nic.mu.Unlock()
	x.ended.Store(true)
	l.vipl.streams[C.VMMCB_VIP_NOTIFIES].end(ctx, func(e *viplEvent) bool {
		return e.kind == C.VMMCB_VIP_DESCRIPTOR && e.vi == x.handle
	}, r.in[1] == 0)
	return nil
}

func (l *library) vipQueryVI(_ context.Context, r *record) error {
	x, err := l.viOf(r, "query a VI")
	if err != nil {
		return err
	}
	s, err := x.vi.Query()
	if err != nil {
		return err
	}
	r.out[1] = C.uint64_t(s.State)
	if s.SendEmpty {
		r.out[2] |= 1
	}
	if s.ReceiveEmpty {
		r.out[2] |= 2
	}
	r.giveAttributes(s.Attributes, x.tag.Load())
	return nil
}

func (l *library) vipSetVI(_ context.Context, r *record) error {
	x, err := l.viOf(r, "set attributes of a VI")
	if err != nil {
		return err
	}
	tag, attr := l.attributes(r, 1)
	if err := x.vi.SetAttributes(attr); err != nil {
		return err
	}
	x.tag.Store(tag)
	return nil
}

// addressOf is an address of C.
func addressOf(a *C.struct_vmmcb_address) (out via.Address) {
	copy(out.Host[:], unsafe.Slice((*byte)(unsafe.Pointer(&a.host)), len(a.host)))
	b := unsafe.Slice((*byte)(unsafe.Pointer(&a.discriminator)), len(a.discriminator))
	out.Discriminator = string(b[:min(int(a.length), len(b))])
	return out
}

// addresses are this side's and the other's.
func (r *record) addresses(op string) (local, remote via.Address, err error) {
	size := int(unsafe.Sizeof(C.struct_vmmcb_address{}))
	if int(r.data_len) != 2*size {
		return local, remote, refuse(op, via.ErrInvalidParameter, "two addresses were expected")
	}
	b := r.given()
	local = addressOf((*C.struct_vmmcb_address)(unsafe.Pointer(&b[0])))
	remote = addressOf((*C.struct_vmmcb_address)(unsafe.Pointer(&b[size])))
	return local, remote, nil
}

func (l *library) vipConnect(ctx context.Context, r *record) error {
	const op = "request a connection"
	x, err := l.viOf(r, op)
	if err != nil {
		return err
	}
	local, remote, err := r.addresses(op)
	if err != nil {
		return err
	}
	ctx, cancel := within(ctx, r.in[1])
	defer cancel()
	attr, err := x.vi.Connect(ctx, local, remote)
	if err != nil {
		return err
	}
	r.data_len = 0
	r.giveAttributes(attr, nil)
	return nil
}

func (l *library) vipDisconnect(_ context.Context, r *record) error {
	x, err := l.viOf(r, "disconnect a VI")
	if err != nil {
		return err
	}
	return x.vi.Disconnect()
}

// vipPeer is VipConnectPeerRequest. Its time limit goes on when the call has returned.
func (l *library) vipPeer(_ context.Context, r *record) error {
	const op = "connect peer to peer"
	x, err := l.viOf(r, op)
	if err != nil {
		return err
	}
	local, remote, err := r.addresses(op)
	if err != nil {
		return err
	}
	if local.Host == (via.HostAddress{}) { // it was left out
		local.Host = x.nic.n.Attributes().Address
	}
	ctx, cancel := within(context.Background(), r.in[1])
	x.peerMu.Lock() // over both, so that the limit is there when another thread takes the outcome
	defer x.peerMu.Unlock()
	if err := x.vi.ConnectPeer(ctx, local, remote); err != nil {
		cancel()
		return err
	}
	if x.limit != nil { // of an earlier request, which is over
		x.limit.end()
	}
	x.limit = &viplLimit{cancel}
	return nil
}

func (x *viplVI) currentLimit() *viplLimit {
	x.peerMu.Lock()
	defer x.peerMu.Unlock()
	return x.limit
}

// endLimit ends the time limit of a request whose outcome is known, unless a later request has
// another one.
func (x *viplVI) endLimit(limit *viplLimit) {
	x.peerMu.Lock()
	defer x.peerMu.Unlock()
	if limit != nil && x.limit == limit {
		limit.end()
		x.limit = nil
	}
}

// vipPeerTake is VipConnectPeerDone and VipConnectPeerWait.
func (l *library) vipPeerTake(ctx context.Context, r *record) error {
	x, err := l.viOf(r, "wait for a peer")
	if err != nil {
		return err
	}
	limit := x.currentLimit()
	var attr via.VIAttributes
	if r.in[1] != 0 {
		attr, err = x.vi.ConnectPeerWait(ctx)
	} else {
		attr, err = x.vi.ConnectPeerDone()
	}
	if viplCode(err) != via.ErrNotDone && viplCode(err) != via.ErrInvalidState {
		x.endLimit(limit)
	}
	if err == nil {
		r.giveAttributes(attr, nil)
	}
	return err
}

func (l *library) vipUser(_ context.Context, r *record) error {
	x, err := l.viOf(r, "use the data of a VI")
	if err != nil {
		return err
	}
	if r.in[1] != 0 {
		x.user.Store(uint64(r.in[2]))
	}
	r.out[1] = C.uint64_t(x.user.Load())
	return nil
}
