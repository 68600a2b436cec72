package via

import "github.com/vmmc-go/vmmc/internal/pair"

// The messages that arrive on a connection. All of this is called with NIC.mu held.

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
		if vi.n.protected(rx.to.Segments, vi.attr.Tag) || !rx.at.scatter(rx.to.Segments, data) {
			rx.to = nil
			vi.finish(&vi.recv, ProtectionError)
			if vi.reliable() {
				vi.fail(&rx.number, RemoteError)
				return true
			}
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
