package via

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// What a link sends. All of this but unstall is called with NIC.mu held.

// control is a message of the link's own, which waits for room.
type control struct {
	header
	data []byte
}

// message is one that lies in stage.
type message struct {
	pad  int    // where a pad message goes before it, in the ring, or -1
	at   int    // in the peer's buffer
	end  uint32 // the position behind it
	size int
}

// fits reports whether there is room for a message of n bytes, and leave bytes more.
func (l *link) fits(n, leave int) bool {
	if l.stalled || l.over {
		return false
	}
	n = padded(n)
	if at := int(l.sent % ringSize); at+n > ringSize {
		n += ringSize - at
	}
	return n+leave <= ringSize-int(l.sent-l.acked)
}

// write sends the message whose data lies in stage. It reports whether that has left.
func (l *link) write(h *header, leave int) bool {
	size := padded(headerSize + int(h.size))
	if !l.fits(size, leave) {
		return false
	}
	h.taken = l.next
	if len(l.errs) > 0 {
		h.taken = l.told // errors go first
	}
	l.last = message{pad: -1, size: size}
	pos := l.sent
	if at := int(pos % ringSize); at+size > ringSize {
		l.last.pad = at
		pos += uint32(ringSize - at)
	}
	l.last.at, l.last.end = ringOff+int(pos%ringSize), pos+uint32(size)
	h.encode(l.stage)
	l.sent = l.last.end
	if h.taken == l.next {
		l.told, l.owes = l.next, false
	}
	if err := l.sendLast(); err != nil {
		l.stall(true)
	}
	return true
}

// sendLast sends the message in stage. When that fails the peer may have taken it or not: then it is
// sent once more, and nothing else before it.
func (l *link) sendLast() error {
	m := &l.last
	if m.pad >= 0 {
		pad := header{kind: kindPad, size: uint32(ringSize - m.pad - headerSize), taken: l.told}
		var b [headerSize]byte
		pad.encode(b[:])
		if err := l.im.Send(pair.NoWait, b[:], ringOff+m.pad); err != nil {
			return err
		}
	}
	return l.im.SendSignal(pair.NoWait, l.stage[:m.size], m.at, m.end, headOff)
}

// stall has a goroutine wait until the connection takes messages. again reports whether the message
// in stage must be sent again.
func (l *link) stall(again bool) {
	if !l.stalled && !l.over {
		l.stalled, l.again = true, again
		l.n.wg.Go(l.unstall)
	}
}

// unstall waits until the connection takes messages, and has them sent.
func (l *link) unstall() {
	for {
		err := l.im.Fence(l.ctx)
		l.n.mu.Lock()
		if err == nil && l.again && !l.over {
			err = l.sendLast()
		}
		if err == nil || l.over {
			l.stalled = false
			l.pump()
			l.n.mu.Unlock()
			return
		}
		l.n.mu.Unlock()
		timeout.Sleep(l.ctx, time.Millisecond)
	}
}

// tell sends a message of the link's own.
func (l *link) tell(h header, data []byte) {
	h.size = uint32(len(data))
	l.ctrl = append(l.ctrl, control{h, data})
	l.pump()
}

// tellError sends an error, before all else.
func (l *link) tellError(h header) {
	l.errs = append(l.errs, control{header: h})
	l.pump()
}

// tellTaken tells the peer how far its messages were taken.
func (l *link) tellTaken() {
	if l.stalled || l.over || len(l.errs) > 0 || l.told == l.next {
		return
	}
	binary.NativeEndian.PutUint32(l.word[:], l.next)
	if err := l.im.Send(pair.NoWait, l.word[:], takenOff); err != nil {
		l.stall(false)
		return
	}
	l.told, l.owes = l.next, false
}

// serve has a VI's SENDs transmitted, in turn with those of others.
func (l *link) serve(vi *VI) {
	if !vi.next() {
		return
	}
	if len(l.backlog) == 0 && len(l.ctrl) == 0 && len(l.errs) == 0 {
		for vi.transmit() {
			if vi.link != l || !vi.next() {
				return
			}
		}
	}
	if vi.link == l {
		vi.backlog = true
		l.backlog = append(l.backlog, vi)
	}
}

// pump sends what there is room for: errors, then how far messages were taken, then the link's own
// messages, and then a fragment of each VI in turn.
func (l *link) pump() {
	if l.pumping { // what it transmits has failed, and added a message
		return
	}
	l.pumping = true
	defer func() { l.pumping = false }()
	for {
		l.errs = l.pumpControls(l.errs, 0)
		if l.owes || l.next-l.told >= ringSize/4 {
			l.tellTaken()
		}
		if len(l.errs) > 0 {
			return
		}
		l.ctrl = l.pumpControls(l.ctrl, reserve)
		if len(l.ctrl) > 0 || len(l.backlog) == 0 || l.stalled || l.over {
			return
		}
		vi := l.backlog[0]
		l.backlog = append(l.backlog[:0], l.backlog[1:]...)
		vi.backlog = false
		if !vi.next() {
			continue
		}
		if !vi.transmit() {
			vi.backlog = true
			l.backlog = slices.Insert(l.backlog, 0, vi)
			return
		}
		if vi.link == l && vi.next() {
			vi.backlog = true
			l.backlog = append(l.backlog, vi)
		}
	}
}

func (l *link) pumpControls(cs []control, leave int) []control {
	for len(cs) > 0 && l.fits(headerSize+len(cs[0].data), leave) {
		copy(l.stage[headerSize:], cs[0].data)
		if !l.write(&cs[0].header, leave) {
			break
		}
		cs = append(cs[:0], cs[1:]...)
	}
	return cs
}

// drop takes a VI out of the list of those with SENDs.
func (l *link) drop(vi *VI) {
	if vi.backlog {
		vi.backlog = false
		l.backlog = slices.DeleteFunc(l.backlog, func(o *VI) bool { return o == vi })
	}
}
