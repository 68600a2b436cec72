package via

import (
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/shm"
)

// Control says what a posted descriptor is to do.
//
// Experimental: it may change in any release.
type Control uint16

// The bits of Control, with VIPL's numbers.
//
// Experimental: they may change in any release.
const (
	OpSendReceive Control = 0   // a SEND, or a receive
	OpRDMAWrite   Control = 1   // the segments are written to Remote
	OpRDMARead    Control = 2   // Remote is read into the segments
	Immediate     Control = 0x4 // the SEND or RDMA write carries ImmediateData
	QFence        Control = 0x8 // it begins when all earlier RDMA reads are complete

	opBits = 0x3
)

// Status says how a descriptor was completed.
//
// Experimental: it may change in any release.
type Status uint32

// The bits of Status, with VIPL's numbers.
//
// Experimental: they may change in any release.
const (
	Done             Status = 0x1   // set in every descriptor that was completed, well or not
	FormatError      Status = 0x2   // a bad operation, reserved bits, or too many segments
	ProtectionError  Status = 0x4   // a segment is not in its region, or that has another tag
	LengthError      Status = 0x8   // the receive is too small, or the SEND too long
	PartialError     Status = 0x10  // the connection was lost in the middle of the RDMA write that consumes it
	Flushed          Status = 0x20  // the VI was disconnected, or is in state Error
	RDMAError        Status = 0x80  // the other side has refused the RDMA operation
	RemoteError      Status = 0x100 // the other side had no receive for it, or a bad one
	ErrorMask        Status = 0x1FE // all errors
	OpMask           Status = 0x70000
	OpSend           Status = 0
	OpReceive        Status = 0x10000
	OpWrite          Status = 0x20000
	OpRemoteWrite    Status = 0x30000 // a receive that an RDMA write with immediate data has consumed
	OpRead           Status = 0x40000
	ImmediateArrived Status = 0x80000 // ImmediateData is what the sender gave
)

// Segment is a piece of memory that a descriptor sends, or receives into.
//
// Experimental: it may change in any release.
type Segment struct {
	Data   []byte
	Handle Handle // of the region that Data lies in
}

// Remote is memory of the other process that an RDMA operation writes or reads: an address, and the
// handle of the region that has it ([Memory.Remote]).
//
// Experimental: it may change in any release.
type Remote struct {
	Address uint64
	Handle  Handle
}

// Descriptor is one piece of work (VIP_DESCRIPTOR). From its post until a Done or Wait call returns
// it, it and the memory of its segments belong to the NIC: they must not be changed. It may be used
// again then. It must not be copied.
//
// Experimental: it may change in any release.
type Descriptor struct {
	Control       Control
	Segments      []Segment
	Remote        Remote // of RDMA operations
	ImmediateData uint32 // of a SEND or write with Immediate; in a receive, what has arrived

	Length int    // set when the descriptor is completed: how many bytes were sent or received
	Status Status // set when the descriptor is completed

	next   *Descriptor // in its queue
	posted atomic.Bool // reports whether a queue has it
	// The rest is of a send queue. Guarded by NIC.mu.
	number uint32 // among the transfers of its connection
	sent   bool   // reports whether it waits only for those before it
	lost   bool   // reports whether its segments could not be read
	reads  bool   // reports whether it is an RDMA read whose data has not arrived
}

// Err is nil for a descriptor that was completed without an error, and else [ErrDescriptor].
//
// Experimental: it may change in any release.
func (d *Descriptor) Err() error {
	if d.Status&ErrorMask != 0 {
		return ErrDescriptor
	}
	return nil
}

// length is the sum of the segments. It is checked before to have not too many segments.
func (d *Descriptor) length() (n int) {
	for i := range d.Segments {
		n += len(d.Segments[i].Data)
	}
	return n
}

// op is the descriptor's operation in its status, as a member of a send queue.
func (d *Descriptor) op() Status {
	switch d.Control & opBits {
	case OpRDMAWrite:
		return OpWrite
	case OpRDMARead:
		return OpRead
	default:
		return OpSend
	}
}

// canSend reports whether the descriptor is one for the send queue of a VI of a level.
func (d *Descriptor) canSend(level Level) bool {
	switch d.Control &^ QFence {
	case OpSendReceive, OpSendReceive | Immediate, OpRDMAWrite, OpRDMAWrite | Immediate:
	case OpRDMARead:
		if level == Unreliable {
			return false
		}
	default:
		return false
	}
	return len(d.Segments) <= maxSegments
}

// canReceive reports whether the descriptor is one for a receive queue.
func (d *Descriptor) canReceive() bool {
	return d.Control == OpSendReceive && len(d.Segments) <= maxSegments
}

// fifo is a list of descriptors, linked by themselves.
type fifo struct {
	first, last *Descriptor
	n           int
}

func (f *fifo) push(d *Descriptor) {
	d.next = nil
	if f.last == nil {
		f.first = d
	} else {
		f.last.next = d
	}
	f.last = d
	f.n++
}

func (f *fifo) pop() *Descriptor {
	d := f.first
	if d == nil {
		return nil
	}
	if f.first = d.next; f.first == nil {
		f.last = nil
	}
	d.next = nil
	f.n--
	return d
}

// cursor is a place in the segments of a descriptor.
type cursor struct{ segment, offset int }

// The program may unmap or protect memory that is registered. So all copies from and to it are
// guarded: an access that faults fails its operation, and not the process.

// gather copies from segments to dst, and moves the cursor. It reports whether the segments could be
// read.
func (c *cursor) gather(dst []byte, segs []Segment) bool {
	return shm.Guard(func() {
		for len(dst) > 0 {
			b := segs[c.segment].Data[c.offset:]
			n := copy(dst, b)
			dst = dst[n:]
			c.advance(n, len(b))
		}
	}) == nil
}

// scatter copies src to segments, and moves the cursor. It reports whether the segments could be
// written.
func (c *cursor) scatter(segs []Segment, src []byte) bool {
	return shm.Guard(func() {
		for len(src) > 0 {
			b := segs[c.segment].Data[c.offset:]
			n := copy(b, src)
			src = src[n:]
			c.advance(n, len(b))
		}
	}) == nil
}

// tryCopy copies src to dst, and reports whether both could be accessed.
func tryCopy(dst, src []byte) bool { return shm.Guard(func() { copy(dst, src) }) == nil }

func (c *cursor) advance(n, left int) {
	if c.offset += n; n == left {
		c.segment, c.offset = c.segment+1, 0
	}
}

// within reports whether b lies in a. An empty b lies everywhere.
func within(a, b []byte) bool {
	if len(b) == 0 {
		return true
	}
	_, ok := shm.Within(a, b)
	return ok
}
