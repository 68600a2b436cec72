package via

import "github.com/vmmc-go/vmmc/internal/pair"

// The SENDs of a connection. All of this is called with NIC.mu held.

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
		case d.lost || vi.n.protected(d.Segments, vi.attr.Tag):
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
	if first && vi.link.fits(headerSize+targetSize, reserve) && vi.goDirect(d) {
		if h.kind == kindRead || d.Control&Immediate == 0 {
			vi.transmitted(d, total, true)
			return true
		}
		h.flags |= flagDirect
		n, last = 0, true
	}
	if last && acknowledged {
		h.flags |= flagAcknowledge
	}
	h.size = uint32(prefix + n)
	size := headerSize + int(h.size)
	if !vi.link.fits(size, reserve) {
		return false
	}
	at := vi.from
	// The region was deregistered meanwhile, or the program has unmapped it.
	if vi.n.protected(d.Segments, vi.attr.Tag) ||
		!at.gather(vi.link.stage[headerSize+prefix:size], d.Segments) {
		d.lost = true
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
	switch {
	case h.kind == kindRead:
		d.reads = true
		vi.reading++
	case acknowledged:
		if h.kind == kindWrite {
			vi.writing++
		}
		vi.link.expect(vi)
	}
	vi.transmitted(d, total, h.kind != kindRead && !acknowledged)
	return true
}

// transmitted goes on from the current descriptor, which has left. sent reports whether it waits only
// for those before it.
func (vi *VI) transmitted(d *Descriptor, total int, sent bool) {
	d.number, d.Length, d.sent = vi.number, total, sent
	vi.number++
	vi.advance()
	vi.completeSent()
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
			if d.Control&opBits == OpRDMAWrite {
				vi.writing--
			}
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
