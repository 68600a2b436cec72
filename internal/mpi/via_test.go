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
				v := p.vbuf()
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

// A request of one that does not know the rank's key, or that is no other rank, makes no connection.
func TestViaFalseRequests(t *testing.T) {
	es := job(t, onlyVia, 3)
	a, b := es[0], es[1]
	ctx := within(t)
	to := b.viaPort(0)
	m := to.m
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
		vi, err := m.nic.NewVI(m.attributes(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := vi.Connect(ctx, local, to.remote); !errors.Is(err, via.ErrReject) {
			t.Errorf("%s: %v", about, err)
		}
	}
	lives(t, a, b)
	// Nor does a second request of a rank that is connected.
	vi, err := m.nic.NewVI(m.attributes(), nil, nil)
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
	m := a.modules[moduleVIA].(*viaModule)
	p := a.viaPort(1)
	a.mu.Lock()
	p.free, p.inFlight = nil, nil // so the next packet takes memory
	tag := m.tag
	m.tag = nil // and package via refuses to register it
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
	a.mu.Lock()
	m.tag = tag
	a.mu.Unlock()
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
