package mpi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/via"
)

const (
	// prepost is how many receives of a connection are posted before it is made: the credit of the peer
	// (VIADEV_PREPOST_DEPTH).
	prepost = 32
	// preserve is how much of the credit is left to packets without payload, so that data never keeps
	// answers from leaving (VIADEV_CREDIT_PRESERVE).
	preserve = 10
	// returnAt is how many receives are posted again before a packet of its own says so. That one takes
	// no credit, so both sides can send it when neither has any.
	returnAt = prepost / 2
	// zoneSlots payloads of slotSize are in the zone at most. When the receiver has taken returnSlots of
	// them it says so.
	zoneSlots   = 8
	slotSize    = 64 << 10
	returnSlots = zoneSlots / 2
	// spares are receives for the packets that take no credit. The peer has a few on their way at most:
	// the next one tells of receives for packets, or of slots, that the peer uses when it has taken one.
	// Twice as many are posted, because a receive is posted again after its packet was taken.
	spares = 2 * (prepost/returnAt + zoneSlots/returnSlots)
	// vbufSize is the size of a packet's memory at both ends.
	vbufSize = 16<<10 - 64
)

// The states of a port:
//
//	idle -- Send --> requesting --------------------> connected
//	 |                   | rejected                      ^  |
//	 |                   v                               |  v error, or the port is refused or closed
//	 |                awaiting -- the peer's request ----'  ended
//	 '--- the peer's request ----------------------------'
//
// Two ranks may request each other at the same time. The one with the lesser rank rejects, and its
// own request is accepted.
type portState uint8

const (
	portIdle portState = iota
	portRequesting
	portAwaiting
	portConnected
	portEnded
)

// vbuf is the memory of a packet, with its descriptor.
type vbuf struct {
	via.Descriptor

	seg  [1]via.Segment
	mem  *via.Memory
	data []byte
}

// viaPort is what a rank has of another one by module via. Guarded by Engine.mu, but for the atomics.
type viaPort struct {
	m             *viaModule
	rank          int
	id            uint32 // of the peer's presence
	to            Sink
	wanted        bool                        // reports whether the presence is imported, or is about to be
	stop          context.CancelFunc          // ends that
	im            *vmmc.Import                // of the presence. nil until it is imported: the peer is met then
	ended         atomic.Pointer[vmmc.Import] // im, for Ended
	sends         bool                        // reports whether a packet waits for im
	closed        bool
	asker         *via.Request // of the peer, which waits for im
	local, remote via.Address
	refusal       vmmc.Word // not 0: the peer takes no packets of this rank
	watches       []vmmc.Watch

	state   portState
	pending *via.Request       // of the peer, while this rank requests
	vi      *via.VI            // nil until it is first needed
	tag     *via.ProtectionTag // its own: no other rank reaches the memory
	unready error              // why vi has too few receives
	err     error              // why the port has ended
	cause   atomic.Pointer[via.AsyncError]

	completed atomic.Uint32 // receives that are complete
	taken     atomic.Uint32 // of these, those that Poll has taken. Stored under Engine.mu.
	broken    atomic.Bool   // reports whether the port has ended without a packet. Stored under Engine.mu.
	refused   atomic.Bool   // Refuse was called: what arrives is no news. Stored under Engine.mu.
	receives  []vbuf        // in the order of their posts
	next      int           // of receives: the next one that completes

	number  uint32 // of the next packet that arrives
	arrived uint32 // packets that took credit
	again   uint32 // of these, those whose receives are posted again
	told    uint32 // again when the peer was told

	numbers  uint32 // of the next packet that is sent
	sent     uint32 // packets that took credit
	acked    uint32 // of these, those whose receives are posted again
	free     []*vbuf
	stages   []*vbuf // of payloads that go to the peer's zone, as free
	inFlight []*vbuf // SENDs, in their order
	h        Header

	// The zone of this rank, which the peer writes: nil until the peer has sent data.
	zone     []byte
	slotsIn  uint32 // payloads that were taken from it
	slotTold uint32 // slotsIn when the peer was told

	// The zone of the peer: Handle is 0 until the peer has told.
	far      via.Remote
	slotsOut uint64            // payloads that were written to it
	slotEnds [zoneSlots]uint32 // sent, behind the packet of each slot
}

// Lost ends a port whose peer was not met. No connection was made, so the peer has sent nothing.
func (p *viaPort) Lost(err error) bool {
	if p.im != nil {
		return false
	}
	_ = p.end(err)
	if p.stop != nil {
		p.stop()
	}
	return true
}

// Polled reports true: Step looks at one word for each rank that is connected.
func (p *viaPort) Polled() bool { return true }

// maxPayload is what a vbuf has beside the header.
const maxPayload = vbufSize - headerSize

// MaxPacket is a slot of the peer's zone when there is one: longer payloads than a vbuf's go there.
func (p *viaPort) MaxPacket() int {
	if p.far.Handle != 0 {
		return slotSize
	}
	return maxPayload
}

// Eager reports whether enough credit is left.
func (p *viaPort) Eager(n int) bool {
	return n <= min(MaxEager, maxPayload) && p.state == portConnected && p.credit() > preserve
}

// credit is how many packets the peer has posted receives for.
func (p *viaPort) credit() uint32 { return prepost - (p.sent - p.acked) }

// Ended reports whether the rank has ended. Poll finds out that a connection is lost.
func (p *viaPort) Ended() bool {
	im := p.ended.Load()
	if im == nil {
		return false
	}
	select {
	case <-im.Done():
		return true
	default:
		return false
	}
}

// Err is that of the presence's import, or why there is none.
func (p *viaPort) Err() error {
	if p.im == nil {
		return p.err
	}
	return p.im.Err()
}

// News reports whether packets have arrived, or the peer takes none.
func (p *viaPort) News() bool {
	return !p.refused.Load() && (p.broken.Load() || p.completed.Load() != p.taken.Load() || p.refusal.Load() != 0)
}

// Watches is the word by which the peer refuses.
func (p *viaPort) Watches() []vmmc.Watch { return p.watches }

// Send posts a SEND, if there is credit. The first one has the connection made.
func (p *viaPort) Send(h *Header, data []byte) bool {
	switch p.state {
	case portIdle:
		if p.im == nil {
			p.sends = true
			p.begin()
			return false
		}
		p.state = portRequesting
		p.m.tasks.Go(p.request)
		return false
	case portConnected:
	case portRequesting, portAwaiting, portEnded:
		return false
	}
	need := uint32(1)
	if len(data) > 0 {
		need += preserve
	}
	switch {
	case p.credit() < need:
		return false
	case len(data) > maxPayload:
		if !p.put(h, data) {
			return false
		}
	case !p.post(h, data, len(data)):
		return false
	}
	p.sent++
	return true
}

// put writes a payload to the peer's zone by RDMA, and posts its packet. It reports false if no slot is
// free. A slot is free when the peer has taken its packet.
func (p *viaPort) put(h *Header, data []byte) bool {
	slot := p.slotsOut % zoneSlots
	if p.slotsOut >= zoneSlots && p.slotEnds[slot]-p.acked-1 < p.sent-p.acked { // of those not taken yet
		return false
	}
	v := p.vbuf(&p.stages, slotSize)
	if v == nil {
		return false
	}
	copy(v.data, data)
	v.seg[0] = v.mem.Segment(0, len(data))
	v.Segments, v.Control = v.seg[:], via.OpRDMAWrite
	v.Remote = via.Remote{Address: p.far.Address + slot*slotSize, Handle: p.far.Handle}
	if !p.postDescriptor(v) {
		return false
	}
	h.flags |= flagPut
	if !p.post(h, nil, len(data)) {
		return false
	}
	p.slotsOut++
	p.slotEnds[slot] = p.sent + 1
	return true
}

// post posts a SEND of a packet whose payload has size bytes. It reports false if there is no memory for
// it.
func (p *viaPort) post(h *Header, data []byte, size int) bool {
	v := p.vbuf(&p.free, vbufSize)
	if v == nil {
		return false
	}
	h.size, h.taken, h.number = uint32(size), p.again, p.numbers
	h.encode(v.data)
	n := headerSize + copy(v.data[headerSize:], data)
	v.seg[0] = v.mem.Segment(0, n)
	v.Segments = v.seg[:]
	if !p.postDescriptor(v) {
		return false
	}
	p.numbers++
	p.told, p.slotTold = p.again, p.slotsIn
	return true
}

func (p *viaPort) postDescriptor(v *vbuf) bool {
	if err := p.vi.PostSend(&v.Descriptor); err != nil {
		p.breaks(fmt.Errorf("post a SEND or an RDMA write to rank %d: %w", p.rank, err))
		return false
	}
	p.inFlight = append(p.inFlight, v)
	return true
}

// vbuf takes memory of a size from a list of what complete descriptors have left. There is as much as was
// ever under way.
func (p *viaPort) vbuf(list *[]*vbuf, size int) *vbuf {
	for len(*list) == 0 && len(p.inFlight) > 0 {
		d, _ := p.vi.SendDone() // a failed one: the receives fail, too
		if d == nil {
			break
		}
		v := p.inFlight[0]
		p.inFlight = append(p.inFlight[:0], p.inFlight[1:]...)
		if len(v.data) == slotSize {
			p.stages = append(p.stages, v)
		} else {
			p.free = append(p.free, v)
		}
	}
	if n := len(*list); n > 0 {
		v := (*list)[n-1]
		*list = (*list)[:n-1]
		return v
	}
	v := &vbuf{data: make([]byte, size)}
	var err error
	if v.mem, err = p.m.nic.Register(v.data, via.MemoryAttributes{Tag: p.tag}); err != nil {
		p.breaks(fmt.Errorf("register memory for packets to rank %d: %w", p.rank, err))
		return nil
	}
	return v
}

// Poll takes the packets that have arrived. They lie in memory of this process alone. It takes receives
// that are not counted yet, too: another goroutine may be about to count them, and when the rank has
// ended this is the last look. It does not step, because that would count the receives of other ports,
// which nothing might poll then.
func (p *viaPort) Poll() error {
	for p.vi != nil {
		d, _ := p.vi.ReceiveDone()
		if d == nil {
			break
		}
		v := &p.receives[p.next]
		if d != &v.Descriptor {
			return p.end(fmt.Errorf("package via has completed another receive of rank %d", p.rank))
		}
		p.taken.Add(1)
		if d.Err() != nil {
			return p.end(p.lost())
		}
		if p.next++; p.next == len(p.receives) {
			p.next = 0
		}
		if err := p.take(v); err != nil {
			return p.end(err)
		}
	}
	switch {
	case p.refusal.Load() != 0:
		return p.end(p.refusedBy())
	case p.state == portEnded:
		return p.err
	}
	return nil
}

// take takes a packet, and posts its receive again.
func (p *viaPort) take(v *vbuf) error {
	h := &p.h
	if v.Length < headerSize {
		return p.violation("a packet of %d bytes", v.Length)
	}
	h.decode(v.data)
	n, payload := h.taken-p.acked, v.data[headerSize:v.Length]
	put := h.flags&flagPut != 0
	switch {
	case put && (h.kind != kindData || len(payload) > 0 || p.zone == nil || h.size > slotSize):
		return p.violation("a packet of kind %d with %d bytes that were written to memory of this rank", h.kind, h.size)
	case !put && int(h.size) != len(payload):
		return p.violation("a packet of %d bytes with a payload of %d", v.Length, h.size)
	case h.number != p.number:
		return p.violation("packet %d, want %d", h.number, p.number)
	case n > p.sent-p.acked:
		return p.violation("it has taken %d packets of %d", int32(n), p.sent-p.acked)
	}
	p.number++
	if h.kind == kindCredit {
		if n == 0 || h.size > 0 {
			return p.violation("a packet for credit with %d bytes returns %d", h.size, n)
		}
		if err := p.repost(v); err != nil {
			return err
		}
		p.acked += n
		return nil
	}
	p.acked += n
	if p.arrived++; p.arrived-p.told > prepost {
		return p.violation("it has sent %d packets without credit", p.arrived-p.told-prepost)
	}
	if put {
		payload = p.zone[p.slotsIn%zoneSlots*slotSize:][:h.size]
		p.slotsIn++
	}
	var err error
	if h.kind == kindZone {
		err = p.zoneTold(h)
	} else {
		err = p.to.Deliver(h, payload)
	}
	if err == nil {
		err = p.repost(v)
	}
	if err != nil {
		return err
	}
	p.again++
	if h.kind == kindData && len(payload) == maxPayload && p.zone == nil && p.state == portConnected {
		p.makeZone()
	}
	if (p.again-p.told >= returnAt || p.slotsIn-p.slotTold >= returnSlots) && p.state == portConnected {
		h := Header{kind: kindCredit}
		p.post(&h, nil, 0)
	}
	return nil
}

// makeZone gives the peer, which sends long messages, memory of this rank to write them to. The program's
// memory will not do: a receive may be given up at any time, and a write that is refused then would end
// the connection. On one node the peer copies to the zone itself. Without memory data goes on in packets.
func (p *viaPort) makeZone() {
	if p.credit() == 0 {
		return // the next packet
	}
	mem, err := p.m.e.p.Alloc(zoneSlots * slotSize)
	if err != nil {
		return
	}
	region, err := p.m.nic.Register(mem.Bytes(), via.MemoryAttributes{
		Tag: p.tag, EnableRDMAWrite: true, EnableRDMARead: true, Direct: true,
	})
	if err != nil {
		_ = mem.Close() // nothing uses it
		return
	}
	p.m.zones = append(p.m.zones, mem)
	p.zone = mem.Bytes()
	r := region.Remote(0)
	if p.post(&Header{kind: kindZone, context: r.Address, length: zoneSlots * slotSize, rreq: uint32(r.Handle)}, nil, 0) {
		p.sent++
	}
}

// zoneTold takes the place of the peer's zone. The peer's NIC checks what is written there.
func (p *viaPort) zoneTold(h *Header) error {
	if p.far.Handle != 0 || h.rreq == 0 || h.size > 0 || h.length != zoneSlots*slotSize {
		return p.violation("a zone with %d bytes, and handle %d", h.length, h.rreq)
	}
	p.far = via.Remote{Address: h.context, Handle: via.Handle(h.rreq)}
	return nil
}

func (p *viaPort) repost(v *vbuf) error {
	if err := p.vi.PostReceive(&v.Descriptor); err != nil {
		return fmt.Errorf("post a receive for packets of rank %d: %w", p.rank, err)
	}
	return nil
}

// end ends the port with an error, and returns that.
func (p *viaPort) end(err error) error {
	if p.state != portEnded {
		p.state, p.err = portEnded, err
	}
	if p.asker != nil {
		_ = p.asker.Reject() // an error: it was given up
		p.asker = nil
	}
	return p.err
}

// breaks ends the port with an error that no packet tells of, and has the engine find it.
func (p *viaPort) breaks(err error) {
	_ = p.end(err)
	p.broken.Store(true)
	p.m.tasks.Go(func() {
		p.m.e.mu.Lock()
		defer p.m.e.mu.Unlock()
		p.m.e.pollAll()
	})
}

// lost is the error of a connection that is lost.
func (p *viaPort) lost() error {
	err := errors.New("the connection of module via is lost")
	if a := p.cause.Load(); a != nil && a.Err != nil {
		err = fmt.Errorf("%w: %w", err, a.Err)
	} else if a != nil {
		err = fmt.Errorf("%w: %v", err, a.Code)
	}
	return &vmmc.Error{Op: "take packets of module via", Peer: p.m.e.ids[p.rank].String(), Code: vmmc.ErrPeerGone, Err: err}
}

// refusedBy is the error of a peer that refuses this rank.
func (p *viaPort) refusedBy() error {
	return p.violation("it takes no packets of this rank any more, because of an error that it has reported")
}

func (p *viaPort) violation(format string, args ...any) error {
	return &vmmc.Error{
		Op: "take packets of module via", Peer: p.m.e.ids[p.rank].String(), Code: vmmc.ErrProtocol,
		Err: fmt.Errorf(format, args...),
	}
}

// Refuse ends the connection, and tells the peer by its presence, also if there is no connection.
func (p *viaPort) Refuse() {
	if p.refused.Swap(true) {
		return
	}
	_ = p.end(errors.New("this rank takes no packets of it any more"))
	if p.im == nil { // meet tells the peer
		p.begin()
		return
	}
	im, vi := p.im, p.vi
	p.m.tasks.Go(func() {
		p.tellRefusal(im)
		if vi != nil {
			_ = vi.Disconnect() // an error: a request is under way, which ends with the module
		}
	})
}

// tellRefusal is called without the lock.
func (p *viaPort) tellRefusal(im *vmmc.Import) {
	rank := p.m.e.rank
	// An error: the peer has ended.
	_ = im.SendSignal(p.m.ctx, binary.NativeEndian.AppendUint32(nil, 1), presenceAt+rank*presenceLen, uint32(rank+1), presenceBellAt)
}

// Close ends the import of the presence. The connection ends with the module's NIC.
func (p *viaPort) Close() error {
	p.m.e.mu.Lock()
	p.closed = true
	p.refused.Store(true)
	_ = p.end(errors.New("the port is closed"))
	im := p.im
	if p.stop != nil {
		p.stop()
	}
	p.m.e.mu.Unlock()
	if im == nil {
		return nil
	}
	return im.Close()
}
