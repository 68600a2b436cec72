package via

import (
	"errors"

	"github.com/vmmc-go/vmmc/internal/pair"
)

// What a link receives. All of this is called with NIC.mu held.

// expected is a transfer that is complete when the peer has taken it.
type expected struct {
	vi   *VI
	conn uint32
	pos  uint32
}

// expect has a VI told when the peer has taken the last message.
func (l *link) expect(vi *VI) {
	if l.served > 0 && len(l.expects) == cap(l.expects) {
		l.expects = append(l.expects[:0], l.expects[l.served:]...)
		l.served = 0
	}
	l.expects = append(l.expects, expected{vi: vi, conn: vi.conn, pos: l.sent})
}

// take takes the messages up to head. It reads nothing twice that the peer can write.
func (l *link) take(head uint32) {
	if n := head - l.next; n > ringSize || n%align != 0 {
		l.violate("%d bytes have arrived in a ring of %d", n, ringSize)
		return
	}
	for l.next != head && !l.over {
		var h header
		at := int(l.next % ringSize)
		h.decode(l.ring[at : at+headerSize])
		size := padded(headerSize + int(h.size))
		if h.size > ringSize || at+size > ringSize || uint32(size) > head-l.next {
			l.violate("a message of %d bytes", h.size)
			return
		}
		pair.At("link.take")
		if h.kind == kindPad {
			l.next += uint32(size)
			continue
		}
		l.acknowledge(h.taken)
		if l.over {
			return
		}
		l.dispatch(&h, l.ring[at+headerSize:][:h.size])
		l.next += uint32(size) // what was sent meanwhile has not acknowledged the message
		if h.flags&flagAcknowledge != 0 {
			l.owes = true
		}
		if l.next-l.told >= ringSize/4 {
			l.tellTaken()
		}
	}
}

// acknowledge goes on from what the peer has taken.
func (l *link) acknowledge(taken uint32) {
	switch n := taken - l.acked; {
	case int32(n) <= 0: // one that is older than another one
		return
	case n > l.sent-l.acked:
		l.violate("it has taken %d bytes of %d", n, l.sent-l.acked)
		return
	}
	l.acked = taken
	for l.served < len(l.expects) && int32(taken-l.expects[l.served].pos) >= 0 {
		e := l.expects[l.served]
		l.served++
		if e.vi.link == l && e.vi.conn == e.conn {
			e.vi.acknowledged()
		}
	}
	if l.served == len(l.expects) {
		l.expects, l.served = l.expects[:0], 0
	}
}

// dispatch does what a message says.
func (l *link) dispatch(h *header, data []byte) {
	switch h.kind {
	case kindRequest:
		l.request(h, data)
		return
	case kindCancel:
		l.cancel(h.immediate)
		return
	case kindReply:
		l.reply(h, data)
		return
	}
	vi := l.n.connOf(h.conn)
	if vi == nil || vi.link != l || vi.state != Connected {
		return // the connection has ended on this side
	}
	switch h.kind {
	case kindSend:
		if !vi.receive(h, data) {
			l.violate("fragments that do not add up")
		}
	case kindWrite:
		if !vi.written(h, data) {
			vi.rx = transfer{}
			vi.failWrite(h.flags, WriteData, FormatError)
			l.violate("fragments of a write that do not add up")
		}
	case kindRead:
		if !vi.read(h, data) {
			l.violate("an RDMA read that cannot be")
		}
	case kindData:
		if !vi.readData(h, data) {
			l.violate("data that was not to be read")
		}
	case kindGrant:
		if !vi.grantArrived(data) {
			l.violate("a grant of %d bytes", len(data))
		}
	case kindBreak:
		vi.refused(h)
	case kindDisconnect:
		vi.broken(errors.New("the other side has disconnected"))
	default:
		l.violate("a message of kind %d", h.kind)
	}
}
