//go:build linux && cgo

package main

// #include "boundary.h"
import "C"

import (
	"context"
	"errors"
	"sync"
	"unsafe"

	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/via"
)

// Descriptors lie in the program's memory. A post makes one of package via of it, and what takes
// that writes Length, Status and the immediate data back.

// The layout of vipl.h, in the program's memory.
const (
	descriptorAlign = 64
	controlSize     = unsafe.Sizeof(C.struct_vmmcb_descriptor{})
	segmentSize     = unsafe.Sizeof(C.struct_vmmcb_segment{})
	maxSegments     = 252 // the address segment included
	opBits          = 0x3
	badControl      = 0x10 // a reserved bit: package via completes the descriptor as FormatError
)

// posted is a descriptor of C from its post until it is taken.
type posted struct {
	d  via.Descriptor // the first field: see postedOf
	vi *viplVI
	at *C.struct_vmmcb_descriptor
	// mem has the descriptor itself.
	mem    *viplMem
	handle via.Handle
	next   C.uint64_t // what Next is. Guarded by viplQueue.mu.
	status via.Status // what FormatError is for C, or 0
	op     C.uint64_t // of Control
}

var posteds = sync.Pool{New: func() any { return &posted{} }}

// postedOf is the descriptor of C that one of package via was made of.
func postedOf(d *via.Descriptor) *posted { return (*posted)(unsafe.Pointer(d)) }

func (p *posted) address() uint64 { return uint64(uintptr(unsafe.Pointer(p.at))) }

// outside stands for memory that lies in no region.
var outside = via.Segment{Data: make([]byte, 1)}

// read makes the descriptor of package via. nic.mu is held for reading. It reports whether the
// region has the whole of C's.
func (p *posted) read(recv bool) bool {
	c := p.at
	n := int(c.seg_count)
	p.d.Control, p.d.ImmediateData = via.Control(c.control), uint32(c.immediate)
	p.d.Remote, p.d.Segments = via.Remote{}, p.d.Segments[:0]
	p.status, p.op = 0, C.uint64_t(c.control&opBits)
	rdma := !recv && (p.d.Control&opBits == via.OpRDMAWrite || p.d.Control&opBits == via.OpRDMARead)
	if n > maxSegments || c.reserved != 0 || rdma && n == 0 {
		p.d.Control |= badControl
		return true
	}
	if p.mem.at(p.address(), uint64(controlSize)+uint64(n)*uint64(segmentSize)) == nil {
		return false
	}
	segments := unsafe.Slice((*C.struct_vmmcb_segment)(unsafe.Add(unsafe.Pointer(c), controlSize)), n)
	if rdma {
		s := segments[0]
		p.d.Remote = via.Remote{Address: uint64(s.address), Handle: via.Handle(s.handle)}
		segments = segments[1:]
	}
	total, inside := uint64(0), true
	for _, s := range segments {
		seg := via.Segment{Handle: via.Handle(s.handle)}
		if s.length > 0 {
			seg = outside
			if m := p.vi.nic.regions[via.Handle(s.handle)]; m != nil {
				if at := m.at(uint64(s.address), uint64(s.length)); at != nil {
					seg = via.Segment{Data: unsafe.Slice((*byte)(at), int(s.length)), Handle: via.Handle(s.handle)}
				}
			}
			inside = inside && seg.Handle != 0
		}
		total += uint64(s.length)
		p.d.Segments = append(p.d.Segments, seg)
	}
	if !recv && inside && total != uint64(c.length) {
		p.d.Control |= badControl
		p.status = via.LengthError
	}
	return true
}

// vipPost is VipPostSend and VipPostRecv. What is wrong with the descriptor is told by its status
// or the error handler, never here.
func (l *library) vipPost(_ context.Context, r *record) error {
	recv, address, handle := r.in[1] != 0, uint64(r.in[2]), via.Handle(r.in[3])
	vi, err := l.viOf(r, "post a descriptor")
	if err != nil {
		return err
	}
	p := posteds.Get().(*posted)
	p.vi, p.handle, p.at = vi, handle, nil
	if !l.prepare(p, recv, address) {
		l.vipl.raise(vi.nic, viplError{vi: vi, descriptor: address, op: p.op, code: via.PostDescriptor})
		posteds.Put(p)
		return nil
	}
	q := &vi.queues[r.in[1]&1]
	q.mu.Lock()
	defer q.mu.Unlock()
	p.next = 0
	if recv {
		err = vi.vi.PostReceive(&p.d)
	} else {
		err = vi.vi.PostSend(&p.d)
	}
	if err != nil {
		l.vipl.release(address)
		if errors.Is(err, via.ErrResource) { // the queue is full, which the error handler is told
			return nil
		}
		return err
	}
	if t := q.tail; t != nil && t.access(func() {
		t.at.next, t.at.next_handle = C.uint64_t(address), C.uint32_t(handle)
	}) {
		t.next = C.uint64_t(address)
	}
	q.tail = p
	return nil
}

// access runs f, which reads or writes C's descriptor. It reports whether the descriptor still lies in
// the region that it was posted with, and could be accessed. It holds nic.mu for reading over the
// check and f: the program may free the memory as soon as VipDeregisterMem returns.
func (p *posted) access(f func()) bool {
	nic := p.vi.nic
	nic.mu.RLock()
	defer nic.mu.RUnlock()
	return nic.regions[p.handle] == p.mem && shm.Guard(f) == nil
}

// prepare reads C's descriptor and clears what the library writes. It reports whether the descriptor
// can be posted: it is aligned, lies in a region with the VI's tag, can be accessed, and is not posted.
func (l *library) prepare(p *posted, recv bool, address uint64) bool {
	nic := p.vi.nic
	nic.mu.RLock()
	defer nic.mu.RUnlock()
	if p.mem = nic.regions[p.handle]; p.mem == nil || p.mem.tag != p.vi.tag.Load() || address%descriptorAlign != 0 {
		return false
	}
	at := p.mem.at(address, uint64(controlSize))
	if at == nil {
		return false
	}
	p.at = (*C.struct_vmmcb_descriptor)(at)
	l.vipl.mu.Lock()
	defer l.vipl.mu.Unlock()
	if l.vipl.posted[address] != nil {
		return false
	}
	whole := false
	if err := shm.Guard(func() {
		if whole = p.read(recv); whole {
			p.at.next, p.at.next_handle, p.at.status = 0, 0, 0
		}
	}); err != nil || !whole {
		return false
	}
	l.vipl.posted[address] = p
	return true
}

// release lets a descriptor be posted again.
func (v *vipl) release(address uint64) {
	v.mu.Lock()
	delete(v.posted, address)
	v.mu.Unlock()
}

// forget drops the descriptors of a NIC that is closed.
func (v *vipl) forget(nic *viplNIC) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for a, p := range v.posted {
		if p.vi.nic == nic {
			delete(v.posted, a)
		}
	}
}

// complete writes a descriptor's outcome to C's memory, and returns its address. whole reports whether
// the descriptor could be written.
func (l *library) complete(d *via.Descriptor, recv bool) (address uint64, whole bool) {
	p := postedOf(d)
	q := &p.vi.queues[0]
	if recv {
		q = &p.vi.queues[1]
	}
	q.mu.Lock()
	if q.tail == p {
		q.tail = nil
	}
	next := p.next
	q.mu.Unlock()
	address = p.address()
	status := d.Status
	if p.status != 0 && status&via.FormatError != 0 {
		status = status&^via.FormatError | p.status
	}
	changed := false
	whole = p.access(func() {
		changed = p.at.next != next
		p.at.length = C.uint32_t(d.Length)
		if recv && status&via.ImmediateArrived != 0 {
			p.at.immediate = C.uint32_t(d.ImmediateData)
		}
		p.at.status = C.uint32_t(status)
	})
	e := viplError{vi: p.vi, descriptor: address, op: p.op}
	switch {
	case !whole:
		e.code = codeCompletionProtection
		l.vipl.raise(p.vi.nic, e)
	case changed: // the program has changed what is the library's
		e.code = via.PostDescriptor
		l.vipl.raise(p.vi.nic, e)
	}
	l.vipl.release(address)
	p.vi, p.at, p.mem = nil, nil, nil
	clear(p.d.Segments)
	posteds.Put(p)
	return address, whole
}

// vipTake is the Done and Wait calls of a VI's queues.
func (l *library) vipTake(ctx context.Context, r *record) error {
	recv := r.in[1] != 0
	vi, err := l.viOf(r, "take a descriptor")
	if err != nil {
		return err
	}
	var d *via.Descriptor
	switch {
	case r.in[2] != 0:
		var cancel context.CancelFunc
		ctx, cancel = within(ctx, r.in[3])
		defer cancel()
		d, err = vi.wait(ctx, recv)
	case recv:
		d, err = vi.vi.ReceiveDone()
	default:
		d, err = vi.vi.SendDone()
	}
	if d != nil {
		refused := postedOf(d).status != 0
		address, whole := l.complete(d, recv)
		if refused || !whole {
			err = via.ErrDescriptor
		}
		r.out[1] = C.uint64_t(address)
	}
	return err
}

func (x *viplVI) wait(ctx context.Context, recv bool) (*via.Descriptor, error) {
	if recv {
		return x.vi.ReceiveWait(ctx)
	}
	return x.vi.SendWait(ctx)
}
