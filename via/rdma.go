package via

import (
	"encoding/binary"

	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// A target is what an RDMA operation writes or reads at the other side: address and handle, in front
// of the first fragment of a write and in a read.
const targetSize = 16

func encodeTarget(b []byte, r Remote) {
	binary.LittleEndian.PutUint64(b, r.Address)
	binary.LittleEndian.PutUint32(b[8:], uint32(r.Handle))
	binary.LittleEndian.PutUint32(b[12:], 0)
}

func decodeTarget(b []byte) Remote {
	return Remote{Address: binary.LittleEndian.Uint64(b), Handle: Handle(binary.LittleEndian.Uint32(b[8:]))}
}

// readJob is an RDMA read of the peer, whose data is sent.
type readJob struct {
	active bool
	region *Memory
	off    int // of the next fragment
	left   int
	total  int
	number uint32
}

// All that follows is called with NIC.mu held.

// target returns the region that a peer may write or read n bytes of by this VI, and where. The
// region is nil if it may not.
func (vi *VI) target(r Remote, n int, write bool) (m *Memory, off int) {
	m = vi.n.regions[r.Handle]
	if m == nil || !vi.enables(m, write) {
		return nil, 0
	}
	base := shm.Addr(m.data, 0)
	if r.Address < base || r.Address-base > uint64(len(m.data)) || uint64(n) > uint64(len(m.data))-(r.Address-base) {
		return nil, 0
	}
	return m, int(r.Address - base)
}

// enables reports whether a peer may write or read a region by this VI.
func (vi *VI) enables(m *Memory, write bool) bool {
	switch {
	case vi.n.regions[m.handle] != m || m.attr.Tag != vi.attr.Tag:
		return false
	case write:
		return m.attr.EnableRDMAWrite && vi.attr.EnableRDMAWrite
	default:
		return m.attr.EnableRDMARead && vi.attr.EnableRDMARead
	}
}

// written takes a fragment of an RDMA write. It reports whether the peer keeps to the protocol.
func (vi *VI) written(h *header, data []byte) bool {
	rx := &vi.rx
	if h.flags&flagFirst != 0 {
		if rx.active || int(h.total) > vi.attr.MaxTransferSize || len(data) < targetSize {
			return false
		}
		*rx = transfer{
			active: true, write: true, total: int(h.total), immediate: h.immediate, flags: h.flags,
			number: h.number,
		}
		rx.region, rx.off = vi.target(decodeTarget(data), rx.total, true)
		data = data[targetSize:]
		if rx.region != nil {
			vi.offer(rx.region)
		}
		if h.flags&flagDirect != 0 {
			if len(data) > 0 {
				return false
			}
			rx.got = rx.total
		}
	}
	if !rx.active || !rx.write || rx.number != h.number || int(h.total) != rx.total ||
		len(data) > rx.total-rx.got || len(data) == 0 && rx.got < rx.total {
		return false
	}
	// The region was taken away meanwhile, or the program has unmapped or protected it.
	if rx.region != nil && (!vi.enables(rx.region, true) || !tryCopy(rx.region.data[rx.off+rx.got:], data)) {
		rx.region = nil
	}
	if rx.region == nil && vi.reliable() {
		vi.refuseWrite()
		return true
	}
	pair.At("write.copied")
	if rx.got += len(data); rx.got == rx.total {
		vi.wrote()
	}
	return true
}

// refuseWrite tells both sides that a write was refused: in the receive that it has consumed, or
// by an asynchronous error.
func (vi *VI) refuseWrite() {
	rx := &vi.rx
	vi.failWrite(rx.flags, WriteProtection, RDMAError)
	if vi.reliable() {
		vi.fail(&rx.number, RDMAError)
	}
}

// failWrite tells the program that a write of the peer has failed: in the receive that one with
// immediate data consumes, or by an asynchronous error.
func (vi *VI) failWrite(flags uint8, code ErrorCode, status Status) {
	if flags&flagImmediate != 0 && vi.recv.pending.n > 0 {
		vi.finish(&vi.recv, OpRemoteWrite|status)
	} else {
		vi.n.raise(AsyncError{VI: vi, Code: code})
	}
}

// abortWrite tells the program of a write that has arrived in part when the connection ends.
func (vi *VI) abortWrite() {
	rx := &vi.rx
	if rx.active && rx.write && rx.region != nil {
		rx.active = false
		vi.failWrite(rx.flags, WriteAborted, PartialError)
	}
}

// wrote completes an RDMA write that has arrived.
func (vi *VI) wrote() {
	rx := &vi.rx
	rx.active = false
	switch d := vi.recv.pending.first; {
	case rx.region == nil:
		vi.refuseWrite()
	case rx.flags&flagImmediate == 0:
	case d == nil:
		vi.n.raise(AsyncError{VI: vi, Code: ReceiveEmpty})
		if vi.reliable() {
			vi.fail(&rx.number, RemoteError)
			return
		}
	default:
		d.Length, d.ImmediateData = rx.total, rx.immediate
		vi.finish(&vi.recv, OpRemoteWrite|ImmediateArrived)
	}
	rx.region = nil
	if vi.state == Connected {
		vi.settle()
	}
}

// read takes an RDMA read of the peer. It reports whether the peer keeps to the protocol: it sends
// the next one when it has the data of the last.
func (vi *VI) read(h *header, data []byte) bool {
	if len(data) != targetSize || int(h.total) > vi.attr.MaxTransferSize || vi.serving.active {
		return false
	}
	total := int(h.total)
	m, off := vi.target(decodeTarget(data), total, false)
	if m == nil {
		vi.refuseRead(h.number)
		return true
	}
	vi.offer(m)
	vi.serving = readJob{active: true, region: m, off: off, left: total, total: total, number: h.number}
	if !vi.backlog {
		vi.link.serve(vi)
	}
	return true
}

func (vi *VI) refuseRead(number uint32) {
	vi.n.raise(AsyncError{VI: vi, Code: ReadProtection})
	vi.fail(&number, RDMAError)
}

// transmitRead sends one fragment of what the peer reads. It reports whether the link has taken it.
func (vi *VI) transmitRead() bool {
	j := &vi.serving
	h := header{
		kind: kindData, conn: vi.peer, size: uint32(min(j.left, maxFragment)), total: uint32(j.total),
		number: j.number,
	}
	if !vi.link.fits(headerSize+int(h.size), reserve) {
		return false
	}
	// The region was taken away meanwhile, or the program has unmapped it.
	if !vi.enables(j.region, false) ||
		!tryCopy(vi.link.stage[headerSize:headerSize+int(h.size)], j.region.data[j.off:]) {
		vi.refuseRead(j.number)
		return true
	}
	if !vi.link.write(&h, reserve) {
		return false
	}
	pair.At("read.sent")
	j.off += int(h.size)
	if j.left -= int(h.size); j.left == 0 {
		*j = readJob{}
	}
	return true
}

// readData takes a fragment of what this side reads. It reports whether the peer keeps to the
// protocol.
func (vi *VI) readData(h *header, data []byte) bool {
	d := vi.send.pending.first
	for d != nil && !d.reads {
		d = d.next
	}
	if d == nil || d.number != h.number || int(h.total) != d.Length || len(data) > d.Length-vi.readGot ||
		len(data) == 0 && d.Length > 0 {
		return false
	}
	// The region was deregistered meanwhile, or the program has unmapped or protected it.
	if vi.n.protected(d.Segments, vi.attr.Tag) || !vi.readAt.scatter(d.Segments, data) {
		if vi.send.pending.first == d {
			vi.finish(&vi.send, ProtectionError)
		}
		vi.fail(nil, 0)
		return true
	}
	pair.At("read.copied")
	if vi.readGot += len(data); vi.readGot < d.Length {
		return true
	}
	vi.readGot, vi.readAt = 0, cursor{}
	d.reads, d.sent = false, true
	vi.reading--
	vi.completeSent()
	vi.goOn()
	return true
}
