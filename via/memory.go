package via

import (
	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// ProtectionTag says which VIs may use which memory: those that have the same tag
// (VIP_PROTECTION_HANDLE).
//
// Experimental: it may change in any release.
type ProtectionTag struct {
	n     *NIC
	users int  // VIs and regions. Guarded by NIC.mu.
	gone  bool // Guarded by NIC.mu.
}

// NewTag makes a protection tag (VipCreatePtag). Errors: [ErrResource] when the NIC has MaxTags;
// [ErrInvalidParameter] when it was closed.
//
// Experimental: it may change in any release.
func (n *NIC) NewTag() (*ProtectionTag, error) {
	const op = "create a protection tag"
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closed:
		return nil, errNICClosed(op)
	case n.tags >= maxTags:
		return nil, fail(op, ErrResource, "the NIC has %d tags: destroy one first", maxTags)
	}
	n.tags++
	return &ProtectionTag{n: n}, nil
}

// Destroy destroys the tag (VipDestroyPtag). Errors: [ErrResource] while a VI or a region has it;
// [ErrInvalidParameter] when it was destroyed already.
//
// Experimental: it may change in any release.
func (t *ProtectionTag) Destroy() error {
	const op = "destroy a protection tag"
	t.n.mu.Lock()
	defer t.n.mu.Unlock()
	switch {
	case t.gone:
		return fail(op, ErrInvalidParameter, "it was destroyed already")
	case t.users > 0:
		return fail(op, ErrResource, "%d VIs and regions have it", t.users)
	}
	t.gone = true
	t.n.tags--
	return nil
}

// checkTag refuses a tag that is not one of the NIC. mu is held.
func (n *NIC) checkTag(t *ProtectionTag, op string) error {
	switch {
	case t == nil:
		return fail(op, ErrInvalidTag, "the tag is nil")
	case t.n != n:
		return fail(op, ErrInvalidTag, "the tag is of another NIC")
	case t.gone:
		return fail(op, ErrInvalidTag, "the tag was destroyed")
	}
	return nil
}

// Handle names a region in descriptors (VIP_MEM_HANDLE). The handle of no region is 0.
//
// Experimental: it may change in any release.
type Handle uint32

// MemoryAttributes are those of a region (VIP_MEM_ATTRIBUTES).
//
// Experimental: it may change in any release.
type MemoryAttributes struct {
	Tag *ProtectionTag
	// EnableRDMAWrite and EnableRDMARead let peers write and read the region, by VIs of the tag that
	// enable it too.
	EnableRDMAWrite, EnableRDMARead bool
	// Direct lets peers on this node copy to and from the region themselves. It asks for both rights,
	// and for whole pages of [vmmc.Process.Alloc] that nothing else exports; without these it changes
	// nothing. Calls that take rights away replace the pages: while [VI.Disconnect], [Memory.Deregister],
	// [Memory.SetAttributes] or [NIC.Close] runs, the program must not write to the region, and it
	// deregisters the region before [vmmc.Memory.Close].
	Direct bool
}

// Memory is a region of this process's memory that was registered (VipRegisterMem).
//
// Experimental: it may change in any release.
type Memory struct {
	n      *NIC
	data   []byte
	handle Handle
	attr   MemoryAttributes // Guarded by NIC.mu.
	share  *share           // for direct RDMA, or nil. Guarded by NIC.mu.
}

// Register registers data, so that descriptors may name it. Any memory will do, at any alignment,
// and the same may be registered several times. Errors: [ErrInvalidParameter] if data is empty or the
// NIC was closed; [ErrInvalidTag]; [ErrResource] when the NIC has MaxRegions.
//
// Experimental: it may change in any release.
func (n *NIC) Register(data []byte, attr MemoryAttributes) (*Memory, error) {
	const op = "register memory"
	if len(data) == 0 {
		return nil, fail(op, ErrInvalidParameter, "the memory is empty")
	}
	n.lockToRegister(data)
	defer n.mu.Unlock()
	if n.closed {
		return nil, errNICClosed(op)
	}
	if err := n.checkTag(attr.Tag, op); err != nil {
		return nil, err
	}
	if len(n.regions) >= maxRegions {
		return nil, fail(op, ErrResource, "the NIC has %d regions: deregister one first", maxRegions)
	}
	for n.lastHandle++; n.lastHandle == 0 || n.regions[n.lastHandle] != nil; n.lastHandle++ {
	}
	m := &Memory{n: n, data: data, handle: n.lastHandle, attr: attr}
	n.regions[m.handle] = m
	attr.Tag.users++
	return m, nil
}

// Handle is the region's handle.
//
// Experimental: it may change in any release.
func (m *Memory) Handle() Handle { return m.handle }

// Bytes is the region's memory.
//
// Experimental: it may change in any release.
func (m *Memory) Bytes() []byte { return m.data }

// Segment is a segment of the n bytes of the region from off on. Like a slice expression, it panics
// if the region does not have them.
//
// Experimental: it may change in any release.
func (m *Memory) Segment(off, n int) Segment {
	return Segment{Data: m.data[off : off+n : off+n], Handle: m.handle}
}

// Remote names the region from byte off on, for RDMA operations of peers.
//
// Experimental: it may change in any release.
func (m *Memory) Remote(off int) Remote {
	return Remote{Address: shm.Addr(m.data, 0) + uint64(off), Handle: m.handle}
}

// Deregister ends the registration (VipDeregisterMem). Descriptors that name the region and have
// not begun fail with [ProtectionError]; a message or RDMA write that is arriving is not stored
// any more when Deregister has returned, and the memory is not read any more. Where peers have used
// it directly its pages are replaced: the program must not write to it meanwhile. Errors:
// [ErrInvalidParameter] if it was deregistered already; [ErrInvalidState] where peers have, in a handler of
// package vmmc; [ErrResource] if the node fails: it is still registered then, call it again.
//
// Experimental: it may change in any release.
func (m *Memory) Deregister() error {
	const op = "deregister memory"
	defer m.n.lockToRevoke()()
	if err := m.check(op); err != nil {
		return err
	}
	if err := m.closeShare(op); err != nil {
		return err
	}
	delete(m.n.regions, m.handle)
	m.attr.Tag.users--
	return nil
}

// check refuses to change a region that is not registered, or that a handler cannot take away from
// peers. mu is held.
func (m *Memory) check(op string) error {
	switch {
	case m.n.regions[m.handle] != m:
		return fail(op, ErrInvalidParameter, "it is not registered any more")
	case m.share != nil && vmmc.InHandler():
		return &Error{Op: op, Code: ErrInvalidState, Err: vmmc.ErrNotInHandler}
	}
	return nil
}

// Attributes are the region's (VipQueryMem). The error is [ErrInvalidParameter] if it was
// deregistered.
//
// Experimental: it may change in any release.
func (m *Memory) Attributes() (MemoryAttributes, error) {
	m.n.mu.Lock()
	defer m.n.mu.Unlock()
	if m.n.regions[m.handle] != m {
		return MemoryAttributes{}, fail("query memory", ErrInvalidParameter, "it is not registered any more")
	}
	return m.attr, nil
}

// SetAttributes changes the region's attributes (VipSetMemAttributes). When it returns, peers cannot
// do any more what the new ones forbid. Where they forbid something that peers have done directly the
// pages are replaced, as by [Memory.Deregister]. Errors as [NIC.Register] and Memory.Deregister:
// after [ErrResource] the region has the new attributes, and the next call takes away what is left.
//
// Experimental: it may change in any release.
func (m *Memory) SetAttributes(attr MemoryAttributes) error {
	const op = "set attributes of memory"
	defer m.n.lockToRevoke()()
	if err := m.check(op); err != nil {
		return err
	}
	if err := m.n.checkTag(attr.Tag, op); err != nil {
		return err
	}
	m.attr.Tag.users--
	attr.Tag.users++
	changed := attr != m.attr
	m.attr = attr
	if changed || m.share != nil && m.share.closing {
		return m.closeShare(op)
	}
	return nil
}

// protected reports whether VIs of a tag may not use all segments. mu is held.
func (n *NIC) protected(segs []Segment, tag *ProtectionTag) bool {
	for i := range segs {
		m := n.regions[segs[i].Handle]
		if m == nil || m.attr.Tag != tag || !within(m.data, segs[i].Data) {
			return true
		}
	}
	return false
}
