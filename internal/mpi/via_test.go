package mpi

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/vmmc-go/vmmc/via"
)

var onlyVia = ways[4]

// port is what a rank has of another one by module via.
func (e *Engine) viaPort(rank int) *viaPort {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.peers[rank].port.(*viaPort)
}

func (p *viaPort) is(s portState) bool {
	p.m.e.mu.Lock()
	defer p.m.e.mu.Unlock()
	return p.state == s
}

// end releases ranks of which one is gone: it does not come to Finalize.
func end(t *testing.T, es []*Engine) {
	t.Helper()
	for _, e := range es {
		if err := e.release(); err != nil {
			t.Error(err)
		}
	}
	clear(es)
}

// Ranks connect when they first send, and not before. Two that do so at once make one connection.
func TestViaConnects(t *testing.T) {
	for _, w := range []way{ways[4], ways[5]} {
		t.Run(w.name, func(t *testing.T) {
			for range 10 {
				es := job(t, w, 3)
				a, b, c := es[0], es[1], es[2]
				for _, e := range es {
					for rank := range es {
						if rank != e.rank && !e.viaPort(rank).is(portIdle) {
							t.Fatalf("rank %d has a connection with rank %d already", e.rank, rank)
						}
					}
				}
				each(t, es[:2], func(ctx context.Context, e *Engine) error {
					if err := e.Send(ctx, e.to(1-e.rank, 1), fill(8, e.rank), Standard); err != nil {
						return err
					}
					_, err := e.Recv(ctx, e.from(1-e.rank, 1), make([]byte, 8))
					return err
				})
				if !a.viaPort(1).is(portConnected) || !b.viaPort(0).is(portConnected) {
					t.Error("ranks that have exchanged messages are not connected")
				}
				for _, e := range es[:2] {
					if !e.viaPort(2).is(portIdle) || !c.viaPort(e.rank).is(portIdle) {
						t.Errorf("rank %d has connected with one that it exchanges nothing with", e.rank)
					}
				}
				each(t, es, func(ctx context.Context, e *Engine) error { return e.Finish(ctx, nil) })
			}
		})
	}
}

// A rank that ends before it was connected is an error at those that name it.
func TestViaDeathBeforeConnection(t *testing.T) {
	es := job(t, onlyVia, 3)
	a, b := es[0], es[1]
	ctx := within(t)
	named, err := a.Irecv(a.from(1, 1), make([]byte, 8))
	if err != nil {
		t.Fatal(err)
	}
	wild, err := a.Irecv(a.from(AnySource, 1), make([]byte, 8))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.release(); err != nil {
		t.Fatal(err)
	}
	for what, r := range map[string]*Request{"receive": named, "wildcard receive": wild} {
		if _, err := r.Wait(ctx); !isClass(err, ErrProcFailed) {
			t.Errorf("a %s: %v", what, err)
		}
	}
	if err := a.Send(ctx, a.to(1, 1), nil, Standard); !isClass(err, ErrProcFailed) {
		t.Errorf("a send: %v", err)
	}
	lives(t, a, es[2])
	end(t, []*Engine{a, es[2]})
	clear(es)
}

// A rank whose connection is lost is gone, also if its process lives: both sides are told.
func TestViaConnectionLost(t *testing.T) {
	es := job(t, onlyVia, 3)
	a, b := es[0], es[1]
	lives(t, a, b)
	if err := b.viaPort(0).vi.Disconnect(); err != nil {
		t.Fatal(err)
	}
	for _, p := range [][2]*Engine{{a, b}, {b, a}} {
		if _, err := p[0].Recv(within(t), p[0].from(p[1].rank, 1), nil); !isClass(err, ErrProcFailed) {
			t.Errorf("a receive of rank %d: %v", p[0].rank, err)
		}
	}
	for _, e := range es[:2] {
		lives(t, e, es[2])
	}
	end(t, es)
}

// What is left of the credit when data may take no more of it carries envelopes and answers. A sender
// without credit for data asks instead of waiting, and all credit comes back on one-way traffic.
func TestViaCredit(t *testing.T) {
	es := job(t, onlyVia, 2)
	a, b := es[0], es[1]
	ctx := within(t)
	lives(t, a, b)
	p := a.viaPort(1)
	send := func(tag int) *Request {
		a.mu.Lock()
		defer a.mu.Unlock()
		r := a.newRequest(false)
		a.startSend(r, a.to(1, tag), a.peers[1], fill(8, tag), Standard)
		return r
	}
	b.mu.Lock() // the rank takes nothing, so it returns no credit
	var rs []*Request
	for tag := range prepost + 5 {
		rs = append(rs, send(tag))
	}
	a.mu.Lock()
	count := map[int]int{}
	for _, r := range rs {
		count[r.state]++
	}
	credit := p.credit()
	a.mu.Unlock()
	b.mu.Unlock()
	// The exchange before may have left up to returnAt of the credit at the peer.
	if count[left] != preserve || count[over] > prepost-preserve || count[over] <= prepost-preserve-returnAt || credit != 0 {
		t.Errorf("%d messages have left whole, %d have asked, %d wait, and the credit is %d", count[over], count[left], count[queued], credit)
	}
	const n = 1000
	for tag := range n { // one way, but for the credit
		if tag >= len(rs) {
			rs = append(rs, send(tag))
		}
		in := make([]byte, 8)
		if _, err := b.Recv(ctx, b.from(0, tag), in); err != nil {
			t.Fatal(err)
		}
		checkFill(t, in, tag)
		if _, err := rs[tag].Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	lives(t, a, b)
	until(ctx, t, func() bool {
		a.step()
		b.step()
		a.mu.Lock()
		defer a.mu.Unlock()
		return p.credit() > prepost-returnAt
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	if vbufs := len(p.free) + len(p.inFlight); vbufs > prepost+spares {
		t.Errorf("packets take %d times the memory of one, want %d at most", vbufs, prepost+spares)
	}
}

// A rank that sends a false packet is gone for its receiver, and learns it.
func TestViaFalsePackets(t *testing.T) {
	type packet struct {
		h Header
		n int // bytes of the whole
	}
	for about, c := range map[string]struct {
		make  func(p *viaPort) packet
		times int
	}{
		"too short": {func(*viaPort) packet { return packet{n: headerSize - 1} }, 1},
		"empty":     {func(*viaPort) packet { return packet{} }, 1},
		"payload": {func(p *viaPort) packet {
			return packet{Header{kind: kindNoop, number: p.numbers, size: 100}, headerSize + 99}
		}, 1},
		"long payload": {func(p *viaPort) packet {
			return packet{Header{kind: kindNoop, number: p.numbers, size: 1 << 31}, headerSize}
		}, 1},
		"kind":       {func(p *viaPort) packet { return packet{Header{kind: 99, number: p.numbers}, headerSize} }, 1},
		"a ring's":   {func(p *viaPort) packet { return packet{Header{kind: kindPad, number: p.numbers}, headerSize} }, 1},
		"twice":      {func(p *viaPort) packet { return packet{Header{kind: kindNoop, number: p.numbers - 1}, headerSize} }, 1},
		"one is out": {func(p *viaPort) packet { return packet{Header{kind: kindNoop, number: p.numbers + 1}, headerSize} }, 1},
		"too much taken": {func(p *viaPort) packet {
			return packet{Header{kind: kindNoop, number: p.numbers, taken: p.again + prepost}, headerSize}
		}, 1},
		"less taken than before": {func(p *viaPort) packet {
			return packet{Header{kind: kindNoop, number: p.numbers, taken: p.told - 1}, headerSize}
		}, 1},
		"credit for nothing": {func(p *viaPort) packet {
			return packet{Header{kind: kindCredit, number: p.numbers, taken: p.told}, headerSize}
		}, 1},
		"credit with a payload": {func(p *viaPort) packet {
			return packet{Header{kind: kindCredit, number: p.numbers, taken: p.told, size: 8}, headerSize + 8}
		}, 1},
		"written without a zone": {func(p *viaPort) packet {
			return packet{Header{kind: kindData, flags: flagPut, number: p.numbers, taken: p.told, size: 8}, headerSize}
		}, 1},
		"zone that is short": {func(p *viaPort) packet {
			return packet{Header{kind: kindZone, number: p.numbers, taken: p.told, rreq: 1, length: slotSize}, headerSize}
		}, 1},
		"zone without a handle": {func(p *viaPort) packet {
			return packet{Header{kind: kindZone, number: p.numbers, taken: p.told, length: zoneSlots * slotSize}, headerSize}
		}, 1},
		"zone with a payload": {func(p *viaPort) packet {
			h := Header{kind: kindZone, number: p.numbers, taken: p.told, rreq: 1, length: zoneSlots * slotSize, size: 8}
			return packet{h, headerSize + 8}
		}, 1},
		"two zones": {func(p *viaPort) packet {
			return packet{Header{kind: kindZone, number: p.numbers, taken: p.told, rreq: 1, length: zoneSlots * slotSize}, headerSize}
		}, 2},
		"without credit": {func(p *viaPort) packet {
			return packet{Header{kind: kindNoop, number: p.numbers, taken: p.told}, headerSize}
		}, 20 * prepost},
	} {
		t.Run(about, func(t *testing.T) {
			es := job(t, onlyVia, 3)
			a, b, other := es[0], es[1], es[2]
			lives(t, a, b)
			ctx := within(t)
			r, err := a.Irecv(a.from(1, 1), make([]byte, 8))
			if err != nil {
				t.Fatal(err)
			}
			p := b.viaPort(0)
			a.mu.Lock() // it takes nothing until all is sent
			b.mu.Lock()
			for range c.times {
				k := c.make(p)
				p.numbers++
				v := p.vbuf(&p.free, vbufSize)
				k.h.encode(v.data)
				v.seg[0] = v.mem.Segment(0, k.n)
				v.Segments = v.seg[:]
				if err := p.vi.PostSend(&v.Descriptor); err != nil {
					break // the connection is broken already
				}
				p.inFlight = append(p.inFlight, v)
			}
			b.mu.Unlock()
			a.mu.Unlock()
			if _, err := r.Wait(ctx); !isClass(err, ErrProcFailed) {
				t.Errorf("a receive from the rank that has sent it: %v", err)
			}
			if _, err := b.Recv(ctx, b.from(0, 1), nil); !isClass(err, ErrProcFailed) {
				t.Errorf("a receive of the rank that has sent it: %v", err)
			}
			lives(t, a, other)
			lives(t, b, other)
			end(t, es)
		})
	}
}

// The zone takes long data once the receiver has told of it, and no other. A receiver that takes nothing
// gets as much as it has slots. All bytes arrive, in order, also of several messages at once.
func TestViaZone(t *testing.T) {
	for _, w := range []way{ways[4], ways[5]} {
		t.Run(w.name, func(t *testing.T) {
			es := job(t, w, 2)
			a, b := es[0], es[1]
			ctx := within(t)
			exchange := func(n, messages int) {
				t.Helper()
				var rs []*Request
				ins := make([][]byte, messages)
				for tag := range messages {
					ins[tag] = make([]byte, n)
					r, err := b.Irecv(b.from(0, tag), ins[tag])
					if err != nil {
						t.Fatal(err)
					}
					s, err := a.Isend(a.to(1, tag), fill(n, tag), Standard)
					if err != nil {
						t.Fatal(err)
					}
					rs = append(rs, r, s)
				}
				for _, r := range rs {
					if _, err := r.Wait(ctx); err != nil {
						t.Fatal(err)
					}
				}
				for tag, in := range ins {
					checkFill(t, in, tag)
				}
			}
			slots := func() uint64 {
				a.mu.Lock()
				defer a.mu.Unlock()
				return a.peers[1].port.(*viaPort).slotsOut
			}
			exchange(MaxEager, 20)
			if p := b.viaPort(0); p.zone != nil || slots() != 0 {
				t.Error("there is a zone without long messages")
			}
			exchange(maxPayload, 1) // its data is one packet, and has the zone made
			until(ctx, t, func() bool {
				a.step()
				a.mu.Lock()
				defer a.mu.Unlock()
				return a.peers[1].port.(*viaPort).far.Handle != 0
			})
			if slots() != 0 {
				t.Error("a payload that fits a packet was written to the zone")
			}
			const n, messages = 1<<20 + 5, 3
			exchange(n, messages)
			if want := uint64(messages * (n / slotSize)); slots() != want {
				t.Errorf("%d payloads were written to the zone, want %d", slots(), want)
			}
			if p := b.viaPort(0); p.far.Handle != 0 {
				t.Error("the sender has a zone without data for it")
			}
			before := slots()
			in := make([]byte, n)
			r, err := b.Irecv(b.from(0, 0), in)
			if err != nil {
				t.Fatal(err)
			}
			b.mu.Lock() // it takes nothing but here
			s, err := a.Isend(a.to(1, 0), fill(n, 9), Standard)
			for err == nil && r.state != matched && ctx.Err() == nil {
				b.pollAll()
			}
			for k := 0; k < 100 && ctx.Err() == nil; k++ {
				a.step()
			}
			if k := slots() - before; k > zoneSlots {
				t.Errorf("%d payloads are in a zone for %d", k, zoneSlots)
			}
			b.mu.Unlock()
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range []*Request{r, s} {
				if _, err := r.Wait(ctx); err != nil {
					t.Fatal(err)
				}
			}
			checkFill(t, in, 9)
		})
	}
}

// A rank that names memory which it has not registered is gone for the one that would write there. So is
// one whose packet is longer than all.
func TestViaFalseZone(t *testing.T) {
	for about, forge := range map[string]func(b, a *viaPort){
		"no such memory": func(_, a *viaPort) { a.far.Handle += 1000 },
		"too far":        func(_, a *viaPort) { a.far.Address += zoneSlots * slotSize },
		"long packet": func(b, _ *viaPort) {
			v := b.vbuf(&b.stages, slotSize)
			v.seg[0] = v.mem.Segment(0, vbufSize+1)
			v.Segments, v.Control = v.seg[:], via.OpSendReceive
			b.postDescriptor(v)
		},
	} {
		t.Run(about, func(t *testing.T) {
			es := job(t, onlyVia, 3)
			a, b := es[0], es[1]
			lives(t, a, b)
			p, q := b.viaPort(0), a.viaPort(1)
			until(within(t), t, func() bool {
				a.step()
				a.mu.Lock()
				defer a.mu.Unlock()
				return q.far.Handle != 0
			})
			a.mu.Lock()
			b.mu.Lock()
			forge(p, q)
			b.mu.Unlock()
			a.mu.Unlock()
			r, err := b.Irecv(b.from(0, 1), make([]byte, 1<<20))
			if err != nil && !isClass(err, ErrProcFailed) { // it may know already
				t.Fatal(err)
			}
			if err := a.Send(within(t), a.to(1, 1), fill(1<<20, 1), Standard); !isClass(err, ErrProcFailed) {
				t.Errorf("the send: %v", err)
			}
			if err == nil {
				_, err = r.Wait(within(t))
			}
			if !isClass(err, ErrProcFailed) {
				t.Errorf("the receive: %v", err)
			}
			for _, e := range es[:2] {
				lives(t, e, es[2])
			}
			end(t, es)
		})
	}
}

// A request of one that does not know the rank's key, or that is no other rank, makes no connection.
func TestViaFalseRequests(t *testing.T) {
	es := job(t, onlyVia, 3)
	meet(t, es)
	a, b := es[0], es[1]
	ctx := within(t)
	to := b.viaPort(0)
	m := to.m
	tag, err := m.nic.NewTag()
	if err != nil {
		t.Fatal(err)
	}
	key := binary.LittleEndian.Uint64(a.modules[moduleVIA].(*viaModule).own.Bytes()[keyAt:])
	for about, local := range map[string]via.Address{
		"wrong key":     {Host: to.local.Host, Discriminator: credential(key+1, 1)},
		"the rank's":    {Host: to.local.Host, Discriminator: credential(key, 0)},
		"no such rank":  {Host: to.local.Host, Discriminator: credential(key, 3)},
		"negative rank": {Host: to.local.Host, Discriminator: credential(key, -1)},
		"no rank":       {Host: to.local.Host, Discriminator: credential(key, 1) + "x"},
		"other form":    {Host: to.local.Host, Discriminator: credential(key, 1)[:17] + "01"},
		"nothing":       {Host: to.local.Host},
		"other node":    {Host: via.HostAddress{1}, Discriminator: credential(key, 1)},
	} {
		vi, err := m.nic.NewVI(attributes(tag), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := vi.Connect(ctx, local, to.remote); !errors.Is(err, via.ErrReject) {
			t.Errorf("%s: %v", about, err)
		}
	}
	lives(t, a, b)
	// Nor does a second request of a rank that is connected.
	vi, err := m.nic.NewVI(attributes(tag), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := vi.Connect(ctx, to.local, to.remote); !errors.Is(err, via.ErrReject) {
		t.Errorf("a second request: %v", err)
	}
	lives(t, a, b)
}

// A look at one rank does not use up what tells of the packets of another one: nothing would take them.
func TestViaPollIsOfOnePort(t *testing.T) {
	es := job(t, onlyVia, 3)
	a := es[0]
	for _, e := range es[1:] {
		lives(t, a, e)
	}
	a.stop() // nothing takes packets but what follows
	a.run.Wait()
	ctx := within(t)
	for _, e := range es[1:] {
		if err := e.Send(ctx, e.to(0, 1), nil, Standard); err != nil {
			t.Fatal(err)
		}
	}
	a.mu.Lock()
	first, last := a.peers[1].port.(*viaPort), a.peers[2].port.(*viaPort)
	before := first.completed.Load()
	for n := last.taken.Load(); last.taken.Load() == n && ctx.Err() == nil; {
		if err := last.Poll(); err != nil {
			t.Error(err)
			break
		}
	}
	if n := first.completed.Load() - before; n > 0 {
		t.Errorf("%d packets of another rank are counted", n)
	}
	a.pollAll()
	a.mu.Unlock()
	if n := a.Stats().Unexpected; n != 2 {
		t.Errorf("%d messages have arrived, want 2", n)
	}
	end(t, es)
}

// A rank that cannot be sent to for want of memory is gone, and its process is told.
func TestViaWithoutMemory(t *testing.T) {
	es := job(t, onlyVia, 3)
	a, b := es[0], es[1]
	lives(t, a, b)
	p := a.viaPort(1)
	a.mu.Lock()
	p.free, p.inFlight = nil, nil // so the next packet takes memory
	p.tag = nil                   // and package via refuses to register it
	a.mu.Unlock()
	r, err := a.Isend(a.to(1, 1), fill(8, 1), Standard)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(within(t)); !isClass(err, ErrProcFailed) {
		t.Errorf("a send: %v", err)
	}
	if _, err := b.Recv(within(t), b.from(0, 1), nil); !isClass(err, ErrProcFailed) {
		t.Errorf("a receive at the other side: %v", err)
	}
	lives(t, a, es[2])
	end(t, es)
}

// What the option may say.
func TestChooseModules(t *testing.T) {
	for text, want := range map[string]choice{
		"":        {moduleShm, moduleTCP, false},
		"shm":     {moduleShm, moduleShm, true},
		"via":     {moduleVIA, moduleVIA, true},
		"shm,via": {moduleShm, moduleVIA, true},
		"via,tcp": {moduleVIA, moduleTCP, true},
	} {
		if got, err := choose(text); got != want || err != nil {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	seen := map[uint32]string{}
	for _, text := range []string{"", "shm", "tcp", "via", "shm,via", "via,shm", "via,tcp"} {
		c, _ := choose(text)
		if seen[c.code()] != "" {
			t.Errorf("%q and %q are told by one number", text, seen[c.code()])
		}
		seen[c.code()] = "it is " + text
	}
	for _, text := range []string{"mail", ",", "shm,", ",via", "shm,via,tcp", "SHM"} {
		if _, err := choose(text); !isClass(err, ErrArg) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
