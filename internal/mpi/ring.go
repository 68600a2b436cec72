package mpi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/state"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// The modules shm and tcp are one code with two policies: a ring of packets in the receiver's
// memory. With shm it is in pages that both ranks map. With tcp it is never mapped, so that packets
// go over a connection, on one node too.
type ringModule struct {
	name   string
	mapped bool
	e      *Engine
	ring   int // bytes of a ring
	own    pair.Buffer
	bell   vmmc.Word
	heard  atomic.Uint32 // the bell when Answer has looked. Stored under Engine.mu.
	rings  []*ring       // by rank. Guarded by Engine.mu.

	ctx   context.Context //nolint:containedctx // ends with the module
	stop  context.CancelFunc
	tasks sync.WaitGroup
}

func newRingModule(e *Engine, name string, mapped bool) *ringModule {
	m := &ringModule{name: name, mapped: mapped, e: e, ring: ringSize(e.size), rings: make([]*ring, e.size)}
	m.ctx, m.stop = context.WithCancel(context.Background())
	return m
}

// Name is the module's.
func (m *ringModule) Name() string { return m.name }

func (m *ringModule) lane() int { return laneHead + m.ring }

func (m *ringModule) label() []byte {
	b := append(make([]byte, 0, 16), magic...)
	b = binary.LittleEndian.AppendUint32(b, uint32(m.e.size))
	return binary.LittleEndian.AppendUint32(b, uint32(m.ring))
}

// export exports n bytes for ranks that map them, or may not.
func (m *ringModule) export(n int) (pair.Buffer, error) {
	opts := []vmmc.ExportOption{vmmc.WithLabel(m.label())}
	if !m.mapped {
		opts = append(opts, vmmc.Unmapped())
	}
	return pair.NewBuffer(m.e.p, n, func(b []byte) {
		copy(b, magic)
		binary.LittleEndian.PutUint32(b[ringAtBlk:], uint32(m.ring))
		binary.LittleEndian.PutUint32(b[sizeAtBlk:], uint32(m.e.size))
	}, opts...)
}

// Offer exports the block.
func (m *ringModule) Offer() (uint32, error) {
	var err error
	m.own, err = m.export(callAt(m.e.size))
	if err == nil {
		m.bell, err = m.own.Word(bellAt)
	}
	if err != nil {
		return 0, fmt.Errorf("module %s: %w", m.name, err)
	}
	return m.own.ID(), nil
}

// Connect makes the ring of a rank. The rank's block is imported when that is first wanted.
func (m *ringModule) Connect(rank int, id uint32, to Sink) (Port, error) {
	r := &ring{m: m, rank: rank, id: id, to: to, size: m.ring}
	m.rings[rank] = r
	return r, nil
}

// Rung reports whether a rank has called.
func (m *ringModule) Rung() bool { return m.bell.Load() != m.heard.Load() }

// Bell is the word.
func (m *ringModule) Bell() vmmc.Watch { return vmmc.Watch{Word: m.bell, Old: m.heard.Load()} }

// Answer connects to those that have called.
func (m *ringModule) Answer() {
	m.heard.Store(m.bell.Load())
	for rank, r := range m.rings {
		if r == nil || r.call == refusal {
			continue
		}
		w, err := m.own.Word(callAt(rank))
		if err != nil {
			continue // the engine has ended
		}
		switch call := w.Load(); {
		case call == refusal:
			r.call = refusal
			m.e.peers[rank].fail(r.violation("it takes no packets of this rank any more, because of an error that it has reported"))
		case r.call == 0 && call != 0:
			r.call = call
			r.Want()
			r.proceed()
		}
	}
}

// Close ends the export.
func (m *ringModule) Close() error {
	m.stop()
	m.tasks.Wait()
	return m.own.Close()
}

// ringState is how far a rank has connected to another one. Each of the two imports the other one's
// block, and calls then: it says which memory, the lane, the other one writes to. Each imports the lane
// that it was told. So whatever arrives, the receiver has an import that ends after it.
//
//	idle -- Want, or the peer's call --> importing --> calling -- the peer's call --> linking --> connected
//
// A ring that is closed, or whose first import has failed, or whose peer was lost before that, becomes
// ended. What ends later is the import of the block.
type ringState uint8

const (
	ringIdle ringState = iota
	ringImporting
	ringCalling
	ringLinking
	ringConnected
	ringEnded
)

func (s ringState) String() string {
	return [...]string{"idle", "importing", "calling", "linking", "connected", "ended"}[s]
}

var ringTransitions = state.Table[ringState]{
	ringIdle:      {ringImporting, ringEnded},
	ringImporting: {ringCalling, ringEnded},
	ringCalling:   {ringLinking, ringEnded},
	ringLinking:   {ringConnected, ringEnded},
	ringConnected: {ringEnded},
}

// ring is a pair of rings: the peer's, which this rank writes, and its own, which the peer writes.
// Guarded by Engine.mu, but for the words and what is seen of them.
type ring struct {
	m    *ringModule
	rank int
	id   uint32 // of the peer's block
	to   Sink
	size int

	state ringState
	call  uint32             // of the peer: the number of its lane; 0: it has not called
	told  bool               // reports whether the peer was called
	stop  context.CancelFunc // ends the imports
	err   error              // why it has ended without an import
	block *vmmc.Import       // of the peer. nil before calling
	lane  pair.Buffer        // from calling on, unless there is no memory
	ring  []byte             // of the lane
	im    *vmmc.Import       // the peer's lane. nil before connected

	ended               atomic.Pointer[vmmc.Import] // block, for Ended
	head, peerTaken     vmmc.Word
	seenHead, seenTaken atomic.Uint32 // of the words. Stored under Engine.mu.
	watches             []vmmc.Watch

	next     uint32 // behind the last packet that was taken
	nextTold uint32 // next when the peer was told
	number   uint32 // of the next packet that arrives

	sent    uint32 // behind the last packet that was sent
	acked   uint32 // how far the peer has taken them
	numbers uint32 // of the next packet that is sent
	last    packet
	stalled bool        // reports whether a send would wait
	refused atomic.Bool // Refuse was called: what the peer sends is no news. Stored under Engine.mu.
	again   bool        // reports whether last must be sent again. Only while stalled.
	stage   []byte
	word    [4]byte
	h       Header
}

func (r *ring) setState(to ringState) {
	ringTransitions.Check(r.state, to)
	r.state = to
}

// Want begins to connect.
func (r *ring) Want() {
	if r.state != ringIdle {
		return
	}
	r.setState(ringImporting)
	var ctx context.Context
	ctx, r.stop = context.WithCancel(r.m.ctx)
	r.m.tasks.Go(func() { r.connect(ctx) })
}

// connect imports the peer's block, and calls the peer.
func (r *ring) connect(ctx context.Context) {
	block, err := r.importOf(ctx, r.id, r.m.own.Size())
	e := r.m.e
	if err != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		if r.state != ringEnded {
			r.end(err)
			e.peers[r.rank].fail(err)
		}
		return
	}
	lane, err := r.m.export(r.m.lane())
	e.mu.Lock()
	if r.state == ringEnded {
		e.mu.Unlock()
		_, _ = lane.Close(), block.Close() // an error: the engine has ended, too
		return
	}
	r.block, r.lane = block, lane
	r.ended.Store(block)
	r.setState(ringCalling)
	if err == nil {
		err = r.takeLane()
	}
	if err != nil {
		e.peers[r.rank].fail(fmt.Errorf("module %s: memory for packets of rank %d: %w", r.m.name, r.rank, err))
	}
	refused := r.refused.Load()
	e.mu.Unlock()
	if !refused {
		r.tell(lane.ID(), e.rank+1)
	}
	e.mu.Lock()
	r.told = true
	refused = r.refused.Load()
	r.proceed()
	e.mu.Unlock()
	if refused {
		r.tell(refusal, e.size+e.rank+1)
	}
}

// tell calls the peer. Each number of the bell is stored once, so the bell changes by each. It is
// called without the lock.
func (r *ring) tell(call uint32, bell int) {
	// An error: the peer has ended, and so has the import.
	_ = r.block.SendSignal(r.m.ctx, binary.NativeEndian.AppendUint32(nil, call), callAt(r.m.e.rank), uint32(bell), bellAt)
}

// importOf imports a buffer of the peer.
func (r *ring) importOf(ctx context.Context, id uint32, size int) (im *vmmc.Import, err error) {
	e := r.m.e
	select {
	case e.connecting <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-e.connecting }()
	if im, err = e.Import(ctx, r.rank, id); err != nil {
		return nil, fmt.Errorf("connect to rank %d by module %s: %w", r.rank, r.m.name, err)
	}
	switch {
	case !slices.Equal(im.Label(), r.m.label()) || im.Size() != size:
		err = fmt.Errorf("rank %d has another version of this package, or is of another job", r.rank)
	case r.m.mapped && im.Path() != vmmc.PathMapped:
		err = fmt.Errorf("module shm: the memory of rank %d, at %v, cannot be mapped: choose module tcp", r.rank, im.Exporter())
	default:
		return im, nil
	}
	return nil, errors.Join(err, im.Close())
}

// takeLane has the ring take packets.
func (r *ring) takeLane() (err error) {
	if r.head, err = r.lane.Word(headOff); err == nil {
		r.peerTaken, err = r.lane.Word(takenOff)
	}
	if err != nil {
		return err
	}
	r.ring = r.lane.Bytes()[laneHead:]
	r.watches = []vmmc.Watch{{Word: r.head, From: r.block}, {Word: r.peerTaken, From: r.block}}
	r.m.e.activate(r.m.e.peers[r.rank])
	return nil
}

// proceed imports the peer's lane, if both ranks have called.
func (r *ring) proceed() {
	if r.state != ringCalling || r.call == 0 || r.call == refusal || !r.told || r.refused.Load() {
		return
	}
	r.setState(ringLinking)
	ctx, id := r.m.ctx, r.call
	r.m.tasks.Go(func() {
		im, err := r.importOf(ctx, id, r.m.lane())
		e := r.m.e
		e.mu.Lock()
		if r.state != ringLinking {
			e.mu.Unlock()
			if im != nil {
				_ = im.Close() // an error: the engine has ended, too
			}
			return
		}
		defer e.mu.Unlock()
		if err != nil {
			e.peers[r.rank].fail(err)
			return
		}
		r.im = im
		r.stage = make([]byte, padded(headerSize+r.MaxPacket()))
		r.setState(ringConnected)
		// The peer may have filled the ring before there was an import to tell it by what was taken.
		if r.owesTaken() {
			r.tellTaken()
		}
		e.peers[r.rank].pump()
	})
}

// end ends a ring that has no import, or that is closed.
func (r *ring) end(err error) {
	r.setState(ringEnded)
	r.err = err
	if r.stop != nil {
		r.stop()
	}
}

// Lost ends a ring that has no import. The peer has not been called, so it has sent nothing.
func (r *ring) Lost(err error) bool {
	if r.state != ringIdle && r.state != ringImporting {
		return false
	}
	r.end(err)
	return true
}

// packet is one that lies in stage.
type packet struct {
	pad  int    // where a pad goes before it, in the ring, or -1
	at   int    // in the peer's lane
	end  uint32 // the position behind it
	size int
}

// MaxPacket is an eighth of the ring at most: the largest packet, and the pad before it, fit beside
// what the peer has taken and not told of.
func (r *ring) MaxPacket() int { return min(32<<10, r.size/8) - headerSize }

// Eager reports whether a message fits a packet. One that finds no room waits.
func (r *ring) Eager(n int) bool { return n <= min(MaxEager, r.MaxPacket()) }

// Polled reports whether the ring is in mapped memory.
func (r *ring) Polled() bool { return r.m.mapped }

// Ended reports whether the import has.
func (r *ring) Ended() bool {
	im := r.ended.Load()
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

// Err is that of the import, or why there is none.
func (r *ring) Err() error {
	if r.block == nil {
		return r.err
	}
	return r.block.Err()
}

// News reports whether the peer has written a word.
func (r *ring) News() bool {
	return !r.refused.Load() && (r.head.Load() != r.seenHead.Load() || r.peerTaken.Load() != r.seenTaken.Load())
}

// Watches are the two words.
func (r *ring) Watches() []vmmc.Watch {
	r.watches[0].Old, r.watches[1].Old = r.seenHead.Load(), r.seenTaken.Load()
	return r.watches
}

// Send writes a packet into the peer's ring. The first one has the ranks connect.
func (r *ring) Send(h *Header, data []byte) bool {
	if r.state != ringConnected {
		r.Want()
		return false
	}
	size := padded(headerSize + len(data))
	pos := r.sent
	pad := -1
	if at := int(pos % uint32(r.size)); at+size > r.size {
		pad = at
		pos += uint32(r.size - at)
	}
	end := pos + uint32(size)
	if r.stalled || int(end-r.acked) > r.size {
		return false
	}
	h.size, h.taken, h.number = uint32(len(data)), r.next, r.numbers
	if pad >= 0 {
		h.number++
		r.numbers++
	}
	r.numbers++
	h.encode(r.stage)
	copy(r.stage[headerSize:], data)
	clear(r.stage[headerSize+len(data) : size])
	r.last = packet{pad: pad, at: laneHead + int(pos%uint32(r.size)), end: end, size: size}
	r.sent, r.nextTold = end, r.next
	if err := r.sendLast(); err != nil {
		r.stall(true)
	}
	return true
}

// sendLast sends the packet in stage. When that fails the peer may have got it or not: then it is
// sent once more, to the same place, and nothing else before it.
func (r *ring) sendLast() error {
	p := &r.last
	if p.pad >= 0 {
		pad := Header{kind: kindPad, size: uint32(r.size - p.pad - headerSize), taken: r.nextTold, number: r.numbers - 2}
		var b [headerSize]byte
		pad.encode(b[:])
		if err := r.im.Send(pair.NoWait, b[:], laneHead+p.pad); err != nil {
			return err
		}
	}
	return r.im.SendSignal(pair.NoWait, r.stage[:p.size], p.at, p.end, headOff)
}

// stall has a goroutine wait until the connection takes packets. again reports whether the packet
// in stage must be sent again.
func (r *ring) stall(again bool) {
	if !r.stalled && r.state != ringEnded {
		r.stalled, r.again = true, again
		r.m.tasks.Go(r.unstall)
	}
}

// unstall waits until the connection takes packets, sends what could not be sent, and has the engine
// send what waits.
func (r *ring) unstall() {
	for {
		err := r.im.Fence(r.m.ctx)
		r.m.e.mu.Lock()
		if err == nil && r.state != ringEnded {
			err = r.catchUp()
		}
		if err == nil || r.state == ringEnded || r.im.Err() != nil || r.m.ctx.Err() != nil {
			r.stalled = false
			r.m.e.pumpAll()
			r.m.e.mu.Unlock()
			return
		}
		r.m.e.mu.Unlock()
		timeout.Sleep(r.m.ctx, time.Millisecond)
	}
}

// catchUp sends the packet in stage again, and then what Poll could not tell while the ring was
// stalled. Poll does not make up for that: a peer without room sends nothing that would have Poll
// called.
func (r *ring) catchUp() error {
	if r.again {
		if err := r.sendLast(); err != nil {
			return err
		}
		r.again = false
	}
	if r.owesTaken() {
		return r.sendTaken()
	}
	return nil
}

// owesTaken reports whether so much was taken that the peer must be told.
func (r *ring) owesTaken() bool { return !r.refused.Load() && r.next-r.nextTold >= uint32(r.size/4) }

// tellTaken tells the peer how far its packets were taken. While the ring is stalled unstall does.
func (r *ring) tellTaken() {
	if r.stalled || r.state != ringConnected || r.refused.Load() {
		return
	}
	if err := r.sendTaken(); err != nil {
		r.stall(false)
	}
}

func (r *ring) sendTaken() error {
	binary.NativeEndian.PutUint32(r.word[:], r.next)
	if err := r.im.Send(pair.NoWait, r.word[:], takenOff); err != nil {
		return err
	}
	r.nextTold = r.next
	return nil
}

// Poll takes what has arrived. It reads nothing twice that the peer can write.
func (r *ring) Poll() error {
	if r.ring == nil {
		return nil
	}
	taken := r.peerTaken.Load()
	head := r.head.Load()
	r.seenHead.Store(head)
	r.seenTaken.Store(taken)
	if n := head - r.next; n > uint32(r.size) || n%packetAlign != 0 {
		return r.violation("%d bytes have arrived in a ring of %d", n, r.size)
	}
	h := &r.h
	for r.next != head {
		at := int(r.next % uint32(r.size))
		h.decode(r.ring[at : at+headerSize])
		if h.size > uint32(r.size) {
			return r.violation("a packet of %d bytes", h.size)
		}
		size := padded(headerSize + int(h.size))
		if at+size > r.size || uint32(size) > head-r.next {
			return r.violation("a packet of %d bytes at %d", h.size, at)
		}
		if h.number != r.number {
			return r.violation("packet %d, want %d", h.number, r.number)
		}
		r.number++
		if err := r.acknowledge(h.taken); err != nil {
			return err
		}
		if h.kind != kindPad {
			if err := r.to.Deliver(h, r.ring[at+headerSize:][:h.size]); err != nil {
				return err
			}
		}
		r.next += uint32(size)
		if r.owesTaken() {
			r.tellTaken()
		}
	}
	return r.acknowledge(taken)
}

// acknowledge notes how far the peer has taken packets.
func (r *ring) acknowledge(taken uint32) error {
	switch n := taken - r.acked; {
	case int32(n) <= 0: // older than what a packet has said, or no news
	case n > r.sent-r.acked:
		return r.violation("it has taken %d bytes of %d", n, r.sent-r.acked)
	default:
		r.acked = taken
	}
	return nil
}

func (r *ring) violation(format string, args ...any) error {
	return &vmmc.Error{
		Op: "take packets of module " + r.m.name, Peer: r.m.e.ids[r.rank].String(), Code: vmmc.ErrProtocol,
		Err: fmt.Errorf(format, args...),
	}
}

// Refuse tells the peer by a call, for which there is always room. A rank that has not called yet does so.
func (r *ring) Refuse() {
	if r.state == ringEnded || r.refused.Swap(true) {
		return
	}
	if r.told {
		r.m.tasks.Go(func() { r.tell(refusal, r.m.e.size+r.m.e.rank+1) })
		return
	}
	r.Want()
}

// Close ends the imports and the lane.
func (r *ring) Close() error {
	r.m.e.mu.Lock()
	if r.state != ringEnded {
		r.end(errors.New("the ring is closed"))
	}
	block, im, lane := r.block, r.im, r.lane
	r.m.e.mu.Unlock()
	var errs []error
	for _, im := range []*vmmc.Import{im, block} {
		if im != nil {
			errs = append(errs, im.Close())
		}
	}
	return errors.Join(append(errs, lane.Close())...)
}
