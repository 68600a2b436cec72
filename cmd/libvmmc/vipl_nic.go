//go:build linux && cgo

package main

// #include "boundary.h"
import "C"

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/viapoll"
	"github.com/vmmc-go/vmmc/via"
)

// viplNIC is a VIP_NIC_HANDLE and all that the program has of it.
type viplNIC struct {
	n      *via.NIC
	handle C.uint64_t
	ended  atomic.Bool // reports whether it is closed
	news   *viplNews   // what C polls of it

	mu        sync.RWMutex
	onError   viplHandler // Guarded by mu, as all that follows.
	regions   map[via.Handle]*viplMem
	tags      map[*viplTag]struct{}
	vis       map[*via.VI]*viplVI
	cqs       map[*via.CompletionQueue]*viplCQ
	conns     map[*viplConn]struct{}
	listeners map[string]*viplListener
	names     int // VipNSInit less VipNSShutdown
}

// viplTag is a VIP_PROTECTION_HANDLE.
type viplTag struct {
	nic    *viplNIC
	t      *via.ProtectionTag
	handle C.uint64_t
}

// viplMem is a region of the program's memory.
type viplMem struct {
	m    *via.Memory
	base unsafe.Pointer
	size uint64
	mu   sync.Mutex // one change of attributes at a time
	tag  *viplTag   // Guarded by viplNIC.mu.
}

// at returns the memory of n bytes at an address of the program, or nil if the region does not have
// them. Go never makes a pointer of an address that was not compared.
func (m *viplMem) at(address, n uint64) unsafe.Pointer {
	off := address - uint64(uintptr(m.base))
	if off > m.size || n > m.size-off {
		return nil
	}
	return unsafe.Add(m.base, off)
}

func (l *library) nic(r *record, op string) (*viplNIC, error) {
	return known(&l.vipl.nics, r.in[0], op, "NIC")
}

func (l *library) vipOpen(ctx context.Context, r *record) error {
	const op = "open a NIC"
	p, err := l.process(ctx)
	if err != nil {
		return &via.Error{Op: op, Code: via.ErrResource, Err: err}
	}
	n, err := via.Open(p, string(r.given()))
	if err != nil {
		return err
	}
	v := &viplNIC{
		n: n, news: l.newNews(), regions: map[via.Handle]*viplMem{}, tags: map[*viplTag]struct{}{},
		vis: map[*via.VI]*viplVI{}, cqs: map[*via.CompletionQueue]*viplCQ{},
		conns: map[*viplConn]struct{}{}, listeners: map[string]*viplListener{},
	}
	viapoll.Via.SetReader(n, v.news)
	if v.handle, err = l.vipl.nics.add(v); err != nil {
		return errors.Join(&via.Error{Op: op, Code: via.ErrResource, Err: err}, n.Close())
	}
	r.out[1] = v.handle
	return nil
}

// vipClose closes a NIC with all that it has, whose handles end.
func (l *library) vipClose(ctx context.Context, r *record) error {
	const op = "close a NIC"
	v, err := l.nic(r, op)
	if err != nil {
		return err
	}
	if !l.vipl.nics.remove(v.handle) { // another thread does it
		return stale(op, "NIC")
	}
	err = v.n.Close()
	l.endAll(v)
	for i := range l.vipl.streams { // v.mu is not held: a handler may need it
		l.vipl.streams[i].end(ctx, func(e *viplEvent) bool { return e.nic == v.handle }, r.in[1] == 0)
	}
	return err
}

// keep runs record, which records what the NIC has. It reports false for a NIC that was closed
// meanwhile: the handle that a call has just made must end then, as endAll has not seen it.
func (v *viplNIC) keep(record func()) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ended.Load() {
		return false
	}
	record()
	return true
}

// endAll ends all handles of a NIC that is closed.
func (l *library) endAll(v *viplNIC) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ended.Store(true)
	for t := range v.tags {
		l.vipl.tags.remove(t.handle)
	}
	for _, vi := range v.vis {
		vi.endLimit(vi.currentLimit())
		l.vipl.vis.remove(vi.handle)
		vi.hide(l)
	}
	for _, c := range v.cqs {
		l.vipl.cqs.remove(c.handle)
		c.hide(l)
	}
	for c := range v.conns {
		l.vipl.conns.remove(c.handle)
	}
	l.vipl.forget(v)
}

func (l *library) vipCheckNIC(_ context.Context, r *record) error {
	_, err := l.nic(r, "use a NIC")
	return err
}

func (l *library) vipQueryNIC(_ context.Context, r *record) error {
	v, err := l.nic(r, "query a NIC")
	if err != nil {
		return err
	}
	a := v.n.Attributes()
	out := C.struct_vmmcb_nic{
		discriminator: C.uint64_t(a.MaxDiscriminator), regions: C.uint64_t(a.MaxRegions), vis: C.uint64_t(a.MaxVIs),
		descriptors: C.uint64_t(a.MaxDescriptors), segments: C.uint64_t(a.MaxSegments),
		cqs: C.uint64_t(a.MaxCompletionQueues), entries: C.uint64_t(a.MaxCompletionEntries),
		transfer: C.uint64_t(a.MaxTransferSize), mtu: C.uint64_t(a.NativeMTU), tags: C.uint64_t(a.MaxTags),
		levels: C.uint64_t(a.Levels),
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&out.device)), len(out.device)-1), a.Device)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&out.host)), len(out.host)), a.Address[:])
	give(r, &out)
	return nil
}

// Tags.

func (l *library) vipNewTag(_ context.Context, r *record) error {
	const op = "create a protection tag"
	v, err := l.nic(r, op)
	if err != nil {
		return err
	}
	t, err := v.n.NewTag()
	if err != nil {
		return err
	}
	x := &viplTag{nic: v, t: t}
	if x.handle, err = l.vipl.tags.add(x); err != nil {
		return errors.Join(&via.Error{Op: op, Code: via.ErrResource, Err: err}, t.Destroy())
	}
	if !v.keep(func() { v.tags[x] = struct{}{} }) {
		l.vipl.tags.remove(x.handle)
		return stale(op, "NIC")
	}
	r.out[1] = x.handle
	return nil
}

// vipEndTag destroys a tag. That of another NIC is refused as an unknown one is.
func (l *library) vipEndTag(_ context.Context, r *record) error {
	const op = "destroy a protection tag"
	v, err := l.nic(r, op)
	if err != nil {
		return err
	}
	x, ok := l.vipl.tags.get(r.in[1])
	if !ok || x.nic != v {
		return stale(op, "protection tag of the NIC")
	}
	if err := x.t.Destroy(); err != nil {
		return err
	}
	l.vipl.tags.remove(x.handle)
	v.mu.Lock()
	delete(v.tags, x)
	v.mu.Unlock()
	return nil
}

// tag is the tag of a handle, with its Go object. Both are nil for a handle that names none, which
// package via refuses as it does a nil tag.
func (l *library) tag(h C.uint64_t) (*viplTag, *via.ProtectionTag) {
	x, ok := l.vipl.tags.get(h)
	if !ok {
		return nil, nil
	}
	return x, x.t
}

// Memory.

func (l *library) memoryAttributes(tag, flags C.uint64_t) (*viplTag, via.MemoryAttributes) {
	x, t := l.tag(tag)
	return x, via.MemoryAttributes{
		Tag: t, EnableRDMAWrite: flags&C.VMMCB_VIP_WRITE != 0, EnableRDMARead: flags&C.VMMCB_VIP_READ != 0,
	}
}

func (l *library) vipRegister(_ context.Context, r *record) error {
	v, err := l.nic(r, "register memory")
	if err != nil {
		return err
	}
	x, attr := l.memoryAttributes(r.in[3], r.in[4])
	b := r.memory(1, uint64(r.in[2])) // C has seen that it is there
	m, err := v.n.Register(b, attr)
	if err != nil {
		return err
	}
	v.mu.Lock()
	v.regions[m.Handle()] = &viplMem{m: m, base: unsafe.Pointer(unsafe.SliceData(b)), size: uint64(len(b)), tag: x}
	v.mu.Unlock()
	r.out[1] = C.uint64_t(m.Handle())
	return nil
}

// region is the region of a record's NIC, address and handle. The address is the registered one.
func (l *library) region(r *record, op string) (*viplNIC, *viplMem, error) {
	v, err := l.nic(r, op)
	if err != nil {
		return nil, nil, err
	}
	m := v.region(via.Handle(r.in[2]))
	switch {
	case m == nil:
		return nil, nil, stale(op, "region of the NIC")
	case uint64(uintptr(m.base)) != uint64(r.in[1]):
		return nil, nil, &via.Error{
			Op: op, Code: via.ErrInvalidParameter,
			Err: fmt.Errorf("the region was registered at %p, and not at %#x", m.base, uint64(r.in[1])),
		}
	}
	return v, m, nil
}

func (v *viplNIC) region(h via.Handle) *viplMem {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.regions[h]
}

func (l *library) vipDeregister(_ context.Context, r *record) error {
	v, m, err := l.region(r, "deregister memory")
	if err != nil {
		return err
	}
	if err := m.m.Deregister(); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if h := m.m.Handle(); v.regions[h] == m { // another thread may have registered with it since
		delete(v.regions, h)
	}
	return nil
}

func (l *library) vipQueryMem(_ context.Context, r *record) error {
	v, m, err := l.region(r, "query memory")
	if err != nil {
		return err
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	attr, err := m.m.Attributes()
	if err != nil {
		return err
	}
	r.out[1], r.out[2] = m.tag.handle, flags(attr.EnableRDMAWrite, attr.EnableRDMARead)
	return nil
}

func flags(write, read bool) (f C.uint64_t) {
	if write {
		f |= C.VMMCB_VIP_WRITE
	}
	if read {
		f |= C.VMMCB_VIP_READ
	}
	return f
}

func (l *library) vipSetMem(_ context.Context, r *record) error {
	v, m, err := l.region(r, "set attributes of memory")
	if err != nil {
		return err
	}
	x, attr := l.memoryAttributes(r.in[3], r.in[4])
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.m.SetAttributes(attr); err != nil { // it may wait: v.mu is not held, which handlers need
		return err
	}
	v.mu.Lock()
	m.tag = x
	v.mu.Unlock()
	return nil
}

// Requests of clients.

// viplListener listens from the first VipConnectWait for its discriminator on, until the NIC is
// closed: requests that come between two calls are kept.
type viplListener struct {
	mu sync.Mutex
	l  *via.Listener // nil until it listens. Guarded by mu.
}

func (v *viplNIC) listen(ctx context.Context, discriminator string) (*via.Listener, error) {
	v.mu.Lock()
	o := v.listeners[discriminator]
	if o == nil {
		o = &viplListener{}
		v.listeners[discriminator] = o
	}
	v.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.l == nil {
		// The call's own limit may be too short to tell the node, and it is one for clients.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout.Control)
		defer cancel()
		l, err := v.n.Listen(ctx, discriminator)
		if err != nil {
			return nil, err
		}
		o.l = l
	}
	return o.l, nil
}

// viplConn is a VIP_CONN_HANDLE.
type viplConn struct {
	nic    *viplNIC
	q      *via.Request
	handle C.uint64_t
}

func (l *library) vipListen(ctx context.Context, r *record) error {
	const op = "wait for a request"
	v, err := l.nic(r, op)
	if err != nil {
		return err
	}
	o, err := v.listen(ctx, string(r.given()))
	if err != nil {
		return err
	}
	ctx, cancel := within(ctx, r.in[1])
	defer cancel()
	q, err := o.Wait(ctx)
	if err != nil {
		return err
	}
	c := &viplConn{nic: v, q: q}
	if c.handle, err = l.vipl.conns.add(c); err != nil {
		return errors.Join(&via.Error{Op: op, Code: via.ErrResource, Err: err}, q.Reject())
	}
	if !v.keep(func() { v.conns[c] = struct{}{} }) {
		l.vipl.conns.remove(c.handle)
		return stale(op, "NIC")
	}
	r.out[1] = c.handle
	r.data_len = 0
	r.giveAttributes(q.Attributes, nil)
	from := C.struct_vmmcb_address{length: C.uint16_t(len(q.Remote.Discriminator))}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&from.host)), len(from.host)), q.Remote.Host[:])
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&from.discriminator)), len(from.discriminator)), q.Remote.Discriminator)
	give(r, &from)
	return nil
}

// giveAttributes gives C attributes of a VI. The tag is nil for that of another process.
func (r *record) giveAttributes(a via.VIAttributes, tag *viplTag) {
	out := C.struct_vmmcb_attributes{
		level: C.uint64_t(a.Level), transfer: C.uint64_t(a.MaxTransferSize),
		flags: flags(a.EnableRDMAWrite, a.EnableRDMARead),
	}
	if tag != nil {
		out.tag = tag.handle
	}
	give(r, &out)
}

// forget ends a handle of a request.
func (l *library) forget(c *viplConn) {
	l.vipl.conns.remove(c.handle)
	c.nic.mu.Lock()
	delete(c.nic.conns, c)
	c.nic.mu.Unlock()
}

func (l *library) vipAccept(_ context.Context, r *record) error {
	const op = "accept a request"
	c, err := known(&l.vipl.conns, r.in[0], op, "request")
	if err != nil {
		return err
	}
	vi, err := known(&l.vipl.vis, r.in[1], op, "VI")
	if err != nil {
		return err
	}
	err = c.q.Accept(vi.vi)
	if err == nil || errors.Is(err, via.ErrTimeout) { // it cannot be accepted any more
		l.forget(c)
	}
	return err
}

func (l *library) vipReject(_ context.Context, r *record) error {
	c, err := known(&l.vipl.conns, r.in[0], "reject a request", "request")
	if err != nil {
		return err
	}
	l.forget(c)
	return c.q.Reject()
}

// The name service.

func (l *library) vipNames(_ context.Context, r *record) error {
	const op = "shut down the name service"
	v, err := l.nic(r, op)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case r.in[1] != 0:
		v.names++
	case v.names == 0:
		return refuse(op, via.ErrInvalidParameter, "it was not initialised: call VipNSInit before")
	default:
		v.names--
	}
	return nil
}

func (l *library) nameService(r *record, op string) (*viplNIC, error) {
	v, err := l.nic(r, op)
	if err != nil {
		return nil, err
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.names == 0 {
		return nil, refuse(op, via.ErrNameService, "it was not initialised: call VipNSInit before")
	}
	return v, nil
}

func (l *library) vipByName(_ context.Context, r *record) error {
	v, err := l.nameService(r, "look up a node by name")
	if err != nil {
		return err
	}
	a, err := v.n.HostByName(string(r.given()), int(min(r.in[1], 1)))
	if err == nil {
		r.put(a[:])
	}
	return err
}

func (l *library) vipByAddress(_ context.Context, r *record) error {
	v, err := l.nameService(r, "look up a node by address")
	if err != nil {
		return err
	}
	var a via.HostAddress
	copy(a[:], r.given())
	name, err := v.n.HostByAddress(a)
	if err == nil {
		r.put(bytes.Join([][]byte{[]byte(name), {0}}, nil))
	}
	return err
}
