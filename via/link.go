package via

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
)

// A link joins two NICs. Each of them has a buffer for the other one: words that the peer stores,
// what it reads once, and a ring of the peer's messages (docs/decisions/0030).
const (
	headOff    = 64  // a word: the position behind the peer's last message
	takenOff   = 128 // a word: how far the peer has taken this NIC's messages
	infoOff    = 192 // what the peer reads once
	infoSize   = 64
	ringOff    = 4096
	ringSize   = 256 << 10
	bufferSize = ringOff + ringSize

	magic = "vmmcvia\x01"

	numberOff   = 8 // in the information: the NIC's number
	ringSizeOff = 12
)

// Positions count bytes, modulo 2^32. Messages begin at multiples of 32.
const (
	headerSize  = 32
	align       = 32
	maxFragment = 32 << 10 // without a target
	// Room for errors, which go before all else: one of each connection.
	reserve = maxVIs * headerSize
)

// The kinds of messages.
const (
	kindPad        = iota // no message: the next one is at the ring's beginning
	kindSend              // a fragment of a SEND
	kindBreak             // the sender's VI is in state Error
	kindDisconnect        // the sender's VI was disconnected
	kindRequest           // a request for a connection
	kindCancel            // of a request
	kindReply             // to a request
	kindWrite             // a fragment of an RDMA write; the first one begins with a target
	kindRead              // an RDMA read: a target
	kindData              // a fragment of what was read
)

const (
	flagFirst       = 1 << iota // the first fragment
	flagImmediate               // the header has immediate data
	flagAcknowledge             // tell soon how far messages were taken
)

// header is that of a message.
type header struct {
	kind, flags uint8
	conn        uint32 // the receiver's number of the connection
	size, total uint32 // of the fragment, of the transfer
	immediate   uint32
	number      uint32 // of the transfer on its connection
	taken       uint32 // how far the sender has taken the receiver's messages
	status      uint32
}

func (h *header) encode(b []byte) {
	_ = b[headerSize-1]
	b[0], b[1], b[2], b[3] = h.kind, h.flags, 0, 0
	for i, v := range [...]uint32{h.conn, h.size, h.total, h.immediate, h.number, h.taken, h.status} {
		binary.LittleEndian.PutUint32(b[4+4*i:], v)
	}
}

func (h *header) decode(b []byte) {
	_ = b[headerSize-1]
	h.kind, h.flags = b[0], b[1]
	for i, p := range [...]*uint32{
		&h.conn, &h.size, &h.total, &h.immediate, &h.number, &h.taken, &h.status,
	} {
		*p = binary.LittleEndian.Uint32(b[4+4*i:])
	}
}

// padded is how much of the ring n bytes take.
func padded(n int) int { return (n + align - 1) &^ (align - 1) }

// peerKey names a NIC.
type peerKey struct {
	process vmmc.ProcessID
	number  uint32
}

// link is what a NIC has of another one. The fields behind the words are guarded by NIC.mu.
type link struct {
	n     *NIC
	key   peerKey
	own   *vmmc.Export
	mem   *vmmc.Memory
	im    *vmmc.Import
	head  vmmc.Word
	taken vmmc.Word
	ring  []byte

	seenHead, seenTaken atomic.Uint32 // of the words. Stored under mu, behind what follows from it.
	timed               atomic.Bool   // reports whether the goroutine looks now and then
	attention           chan struct{} // wakes it

	ctx  context.Context //nolint:containedctx // ends with the link
	stop context.CancelFunc
	over bool

	next uint32 // behind the last message that was taken
	told uint32 // next when the peer was told
	owes bool   // reports whether the peer wants to be told

	sent    uint32 // behind the last message that was sent
	acked   uint32 // how far the peer has taken them
	last    message
	stalled bool // reports whether a send would wait
	again   bool // reports whether last must be sent again. Only while stalled.
	pumping bool // reports whether pump runs
	errs    []control
	ctrl    []control
	backlog []*VI // those with a SEND that has not left, in turn
	expects []expected
	served  int // of expects
	stage   []byte
	word    [4]byte // what tellTaken sends: here it is not allocated each time

	requests map[uint32]*Request // of the peer, that wait for an answer
}

type control struct {
	header
	data []byte
}

// expected is a transfer that is complete when the peer has taken it.
type expected struct {
	vi   *VI
	conn uint32
	pos  uint32
}

// noWait is a context that has ended. A send looks at it only before it has to wait.
var noWait = func() context.Context {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	return ctx
}()

// newLink makes a link with a buffer for a process.
func (n *NIC) newLink(peer vmmc.ProcessID) (*link, error) {
	mem, err := n.p.Alloc(bufferSize)
	if err != nil {
		return nil, err
	}
	l := &link{
		n: n, mem: mem, stage: make([]byte, padded(headerSize+targetSize+maxFragment)),
		attention: make(chan struct{}, 1), key: peerKey{process: peer},
		requests: map[uint32]*Request{},
	}
	info := mem.Bytes()[infoOff:]
	copy(info, magic)
	binary.LittleEndian.PutUint32(info[numberOff:], n.number)
	binary.LittleEndian.PutUint32(info[ringSizeOff:], ringSize)
	opts := append(slices.Clip(n.export), pair.For(peer))
	l.own, err = pair.Export(func(id uint32) (*vmmc.Export, error) {
		return n.p.Export(id, mem.Bytes(), opts...)
	})
	if err != nil {
		return nil, errors.Join(err, mem.Close())
	}
	if l.head, err = l.own.Word(headOff); err == nil {
		l.taken, err = l.own.Word(takenOff)
	}
	if err != nil {
		return nil, errors.Join(err, l.closeBuffer())
	}
	l.ring = mem.Bytes()[ringOff:]
	return l, nil
}

func (l *link) closeBuffer() error {
	if err := l.own.Close(); err != nil {
		return err
	}
	return l.mem.Close()
}

// join reads what the peer says of itself.
func (l *link) join(ctx context.Context, im *vmmc.Import) error {
	if im.Size() != bufferSize {
		return fmt.Errorf("the peer's buffer has %d bytes, want %d: its version differs", im.Size(), bufferSize)
	}
	var b [infoSize]byte
	if err := im.Get(ctx, b[:], infoOff); err != nil {
		return err
	}
	if string(b[:len(magic)]) != magic || binary.LittleEndian.Uint32(b[ringSizeOff:]) != ringSize {
		return errors.New("the peer's buffer is not one of a NIC of this version")
	}
	l.im, l.key.number = im, binary.LittleEndian.Uint32(b[numberOff:])
	return nil
}

// start makes the link one of the NIC's.
func (l *link) start() error {
	n := l.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return errNICClosed("connect to a NIC")
	}
	l.ctx, l.stop = context.WithCancel(n.ctx)
	links := append(slices.Clip(n.linkList()), l)
	n.links.Store(&links)
	n.wg.Go(l.run)
	return nil
}

// hasNews reports whether the peer has sent something that was not taken yet.
func (l *link) hasNews() bool {
	return l.head.Load() != l.seenHead.Load() || l.taken.Load() != l.seenTaken.Load()
}

// lookAgain is how often the link's goroutine looks while the program polls.
const lookAgain = time.Millisecond

// run takes what arrives while the program calls nothing, and ends the link.
func (l *link) run() {
	defer func() {
		l.n.awaitLookers()
		_ = l.im.Close() // the peer sees it end
		_ = l.closeBuffer()
	}()
	n := l.n
	timer := time.NewTimer(lookAgain)
	defer timer.Stop()
	ws := []vmmc.Watch{{Word: l.head, From: l.im}, {Word: l.taken, From: l.im}}
	for polls := n.polls(); ; {
		n.mu.Lock()
		l.progress()
		over := l.over
		ws[0].Old, ws[1].Old = l.seenHead.Load(), l.seenTaken.Load()
		n.mu.Unlock()
		if over {
			return
		}
		l.timed.Store(true)
		now := n.polls()
		if now != polls && n.sleepers.Load() == 0 && l.im.Err() == nil {
			polls = now
			timer.Reset(lookAgain)
			select {
			case <-timer.C:
			case <-l.attention:
			case <-l.ctx.Done():
			}
			l.timed.Store(false)
			continue
		}
		l.timed.Store(false)
		if _, err := n.p.WaitAny(l.ctx, ws...); err != nil {
			n.mu.Lock()
			l.progress() // what has arrived before the end
			if why := l.im.Err(); why != nil {
				err = why
			}
			l.finish(err)
			n.mu.Unlock()
			return
		}
	}
}

// attend has the goroutine wait for the words.
func (l *link) attend() {
	if l.timed.Load() {
		select {
		case l.attention <- struct{}{}:
		default:
		}
	}
}

// All that follows is called with mu held.

// finish ends the link. cause is nil if the NIC is closed.
func (l *link) finish(cause error) {
	if l.over {
		return
	}
	l.over = true
	links := slices.DeleteFunc(slices.Clone(l.n.linkList()), func(o *link) bool { return o == l })
	l.n.links.Store(&links)
	for _, vi := range l.n.conns {
		if vi == nil || vi.link != l {
			continue
		}
		switch vi.state {
		case Connected:
			vi.broken(cause)
		case ConnectPending:
			vi.outcome = &connectResult{code: ErrNotReachable, err: cause}
			vi.connecting.wake()
		case Idle, Failed: // they have no link
		}
	}
	for _, o := range l.n.listeners {
		o.forget(l)
	}
	l.stop()
}

// violate ends the link with a peer that breaks the protocol.
func (l *link) violate(format string, args ...any) {
	l.finish(&vmmc.Error{
		Op: "take messages", Peer: l.key.process.String(), Code: vmmc.ErrProtocol,
		Err: fmt.Errorf(format, args...),
	})
}

// progress takes what has arrived, and transmits what there is room for.
func (l *link) progress() {
	if l.over {
		return
	}
	taken := l.taken.Load() // before head: an error that goes before it is among the messages
	head := l.head.Load()
	l.take(head)
	if !l.over {
		l.acknowledge(taken)
	}
	if l.over {
		return
	}
	l.pump()
	l.seenTaken.Store(taken)
	l.seenHead.Store(head)
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
	case kindBreak:
		vi.refused(h)
	case kindDisconnect:
		vi.broken(errors.New("the other side has disconnected"))
	default:
		l.violate("a message of kind %d", h.kind)
	}
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

// message is one that lies in stage.
type message struct {
	pad  int    // where a pad message goes before it, in the ring, or -1
	at   int    // in the peer's buffer
	end  uint32 // the position behind it
	size int
}

// sendLast sends the message in stage. When that fails the peer may have taken it or not: then it is
// sent once more, and nothing else before it.
func (l *link) sendLast() error {
	m := &l.last
	if m.pad >= 0 {
		pad := header{kind: kindPad, size: uint32(ringSize - m.pad - headerSize), taken: l.told}
		var b [headerSize]byte
		pad.encode(b[:])
		if err := l.im.Send(noWait, b[:], ringOff+m.pad); err != nil {
			return err
		}
	}
	return l.im.SendSignal(noWait, l.stage[:m.size], m.at, m.end, headOff)
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
		select {
		case <-l.ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}
}

// tellTaken tells the peer how far its messages were taken.
func (l *link) tellTaken() {
	if l.stalled || l.over || len(l.errs) > 0 || l.told == l.next {
		return
	}
	binary.NativeEndian.PutUint32(l.word[:], l.next)
	if err := l.im.Send(noWait, l.word[:], takenOff); err != nil {
		l.stall(false)
		return
	}
	l.told, l.owes = l.next, false
}

// tellError sends an error, before all else.
func (l *link) tellError(h header) {
	l.errs = append(l.errs, control{header: h})
	l.pump()
}

// tell sends a message of the link's own.
func (l *link) tell(h header, data []byte) {
	h.size = uint32(len(data))
	l.ctrl = append(l.ctrl, control{h, data})
	l.pump()
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

// drop takes a VI out of the list of those with SENDs.
func (l *link) drop(vi *VI) {
	if vi.backlog {
		vi.backlog = false
		l.backlog = slices.DeleteFunc(l.backlog, func(o *VI) bool { return o == vi })
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
