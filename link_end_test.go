package vmmc_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
)

// gate is a network that holds back one way of its connections from when it is shut until it is
// open.
type gate struct {
	held  int // the way: 0 is from the dialler, 1 to it
	shut  atomic.Bool
	opens chan struct{}
	once  sync.Once
	conns []net.Conn
	mu    sync.Mutex
	wg    sync.WaitGroup

	closed bool // guarded by mu
}

func newGate(t *testing.T, held int) *gate {
	g := &gate{held: held, opens: make(chan struct{})}
	t.Cleanup(func() {
		g.open()
		g.close()
		g.wg.Wait()
	})
	return g
}

// close ends the connections, and no others are made.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, c := range g.conns {
		_ = c.Close()
	}
}

func (g *gate) open() { g.once.Do(func() { close(g.opens) }) }

func (g *gate) dial(ctx context.Context, address string) (net.Conn, error) {
	far, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		_ = far.Close()
		return nil, err
	}
	defer l.Close()
	near, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
	if err != nil {
		_ = far.Close()
		return nil, err
	}
	mid, err := l.Accept()
	if err != nil {
		_ = far.Close()
		_ = near.Close()
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		for _, c := range []net.Conn{near, mid, far} {
			_ = c.Close()
		}
		return nil, net.ErrClosed
	}
	g.conns = append(g.conns, mid, far)
	g.wg.Go(func() { g.pass(0, far, mid) })
	g.wg.Go(func() { g.pass(1, mid, far) })
	return near, nil
}

func (g *gate) pass(way int, to, from net.Conn) {
	defer func() { _ = to.(*net.TCPConn).CloseWrite() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if way == g.held && g.shut.Load() {
			<-g.opens
		}
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// bothWays are two processes that import buffer 1 from each other; there is what a has of b, and
// back what b has of a.
func bothWays(t *testing.T, a, b *vmmc.Process, opts ...vmmc.ExportOption) (mem []byte, there, back *vmmc.Import) {
	t.Helper()
	mem = alloc(t, a, 4096)
	if _, err := a.Export(1, mem, opts...); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Export(1, alloc(t, b, 4096), opts...); err != nil {
		t.Fatal(err)
	}
	var err error
	if there, err = a.Import(within(t), b.Node(), b.PID(), 1); err != nil {
		t.Fatal(err)
	}
	if back, err = b.Import(within(t), a.Node(), a.PID(), 1); err != nil {
		t.Fatal(err)
	}
	for _, im := range []*vmmc.Import{there, back} { // the exporter has the link
		if err := im.Send(within(t), w32(1), 0); err != nil {
			t.Fatal(err)
		}
		if err := im.Fence(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	return mem, there, back
}

// handled returns when all events and notifications of p that were queued before have run.
func handled(t *testing.T, p *vmmc.Process) {
	t.Helper()
	exp, err := p.Export(999, alloc(t, p, 4096), vmmc.WithHandler(func(vmmc.Notification) {}))
	if err != nil {
		t.Fatal(err)
	}
	im, err := p.Import(within(t), p.Node(), p.PID(), 999)
	if err != nil {
		t.Fatal(err)
	}
	if err := im.SendNotify(within(t), w32(1), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := exp.WaitNotified(within(t), 0); err != nil {
		t.Fatal(err)
	}
	if err := exp.Close(); err != nil {
		t.Fatal(err)
	}
}

// A process that imports and exports has a link each way. Whichever ends first, that the process is
// gone is told once, after the last message of it, and when calls on the imports from it fail.
func TestPeerGoneAfterBothLinks(t *testing.T) {
	const last = 200
	for _, c := range []struct {
		name string
		held int
	}{
		{"the importer's link ends last", 0},
		{"the exporter's link ends last", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			here, there := nodes(t, "between nodes")
			type seen struct {
				kind vmmc.EventKind
				word uint32
				err  error
				ran  int64
				why  error
			}
			events := make(chan seen, 100)
			var mem []byte
			var far *vmmc.Import
			ready := make(chan struct{}) // closed when both are set
			var ran atomic.Int64
			a, err := vmmc.Open(t.Context(), vmmc.WithSocket(here), vmmc.WithEvents(func(e vmmc.Event) {
				if e.Kind == vmmc.PeerGone {
					<-ready
					events <- seen{e.Kind, binary.LittleEndian.Uint32(mem), far.Send(t.Context(), w32(7), 0), ran.Load(), e.Err}
				}
			}))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = a.Close() })
			b := join(t, there)
			g := newGate(t, c.held)
			if c.held == 0 {
				vmmc.SetDialer(b, g.dial)
			} else {
				vmmc.SetDialer(a, g.dial)
			}
			var back *vmmc.Import
			mem, far, back = bothWays(t, a, b, vmmc.WithHandler(func(vmmc.Notification) { ran.Add(1) }))
			close(ready)
			g.shut.Store(true)
			for i := uint32(2); i <= last; i++ {
				send := back.Send
				if i%10 == 0 {
					send = back.SendNotify
				}
				if err := send(within(t), w32(i), 0); err != nil {
					t.Fatal(err)
				}
			}
			if c.held == 1 {
				if err := back.Fence(within(t)); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			if c.held == 0 {
				until(t, "the import fails", func() bool { return far.Send(t.Context(), w32(7), 0) != nil })
			} else {
				until(t, "the importer is forgotten", func() bool { return vmmc.Grants(a) == 0 })
			}
			g.open()
			var e seen
			select {
			case e = <-events:
			case <-time.After(bound):
				t.Fatal("no event says that the process is gone")
			}
			if !errors.Is(e.err, vmmc.ErrBadIbufState) {
				t.Errorf("a send when the event was run: %v", e.err)
			}
			if e.word != last || e.ran != last/10 {
				t.Errorf("%d of %d messages had arrived when the event was run, and %d notifications run: %v", e.word, last, e.ran, e.why)
			}
			until(t, "the importer is forgotten", func() bool { return vmmc.Grants(a) == 0 })
			handled(t, a)
			if now := binary.LittleEndian.Uint32(mem); now != e.word || len(events) > 0 {
				t.Errorf("%d messages arrived after the event, and %d events came", now-e.word, len(events))
			}
		})
	}
}

// The event is told once of a process that is at both ends of links, on one node and between nodes.
func TestPeerGoneIsToldOnce(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			events := make(chan vmmc.Event, 100)
			a, err := vmmc.Open(t.Context(), vmmc.WithSocket(near), vmmc.WithEvents(func(e vmmc.Event) {
				if e.Kind == vmmc.PeerGone {
					events <- e
				}
			}))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = a.Close() })
			var opts []vmmc.ExportOption
			if way == "stream" {
				opts = append(opts, vmmc.Unmapped())
			}
			for range 5 {
				b := join(t, far)
				exp := len(events)
				mem := alloc(t, a, 4096)
				x, err := a.Export(1, mem, opts...)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := b.Export(1, alloc(t, b, 4096), opts...); err != nil {
					t.Fatal(err)
				}
				for _, p := range [][2]*vmmc.Process{{a, b}, {b, a}} {
					im, err := p[0].Import(within(t), p[1].Node(), p[1].PID(), 1)
					if err != nil {
						t.Fatal(err)
					}
					if err := im.Send(within(t), w32(1), 0); err != nil {
						t.Fatal(err)
					}
				}
				if err := b.Close(); err != nil {
					t.Fatal(err)
				}
				select {
				case e := <-events:
					if e.Peer != b.ID() || !errors.Is(e.Err, vmmc.ErrPeerGone) {
						t.Errorf("of %v is told: %v", e.Peer, e.Err)
					}
				case <-time.After(bound):
					t.Fatal("no event says that the process is gone")
				}
				until(t, "the importer is forgotten", func() bool { return vmmc.Grants(a) == 0 })
				handled(t, a)
				if len(events) != exp {
					t.Errorf("told again: %v", (<-events).Err)
				}
				if err := x.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// When one link of two fails for good the other one ends too, for both processes: what either sends
// then is not taken by one that was told that its peer is gone. Both may import again.
func TestLinksOfTwoProcessesEndTogether(t *testing.T) {
	a, b, s, events := surviving(t, 0)
	told := make(chan vmmc.Event, 100)
	vmmc.SetEvents(b, func(e vmmc.Event) { told <- e })
	for round := range 3 {
		_, there, back := bothWays(t, a, b)
		s.cut(true) // of the link by which a imports
		for _, c := range []struct {
			p      *vmmc.Process
			of     vmmc.ProcessID
			im     *vmmc.Import
			events chan vmmc.Event
		}{{a, b.ID(), there, events}, {b, a.ID(), back, told}} {
			if e := awaitEvent(t, c.events, vmmc.PeerGone); e.Peer != c.of {
				t.Errorf("round %d: of %v is told: %v", round, e.Peer, e.Err)
			}
			if err := c.im.Send(within(t), w32(9), 0); !errors.Is(err, vmmc.ErrPeerGone) {
				t.Errorf("round %d: a send after the event: %v", round, err)
			}
		}
		for _, p := range []*vmmc.Process{a, b} {
			handled(t, p)
			vmmc.CloseExport(t, p, 1)
		}
		for len(events)+len(told) > 0 {
			var e vmmc.Event
			select {
			case e = <-events:
			case e = <-told:
			}
			if e.Kind != vmmc.ImportRevoked { // of [handled]
				t.Errorf("round %d: %v of %v is told, too: %v", round, e.Kind, e.Peer, e.Err)
			}
		}
	}
}

// An importer that lives on after the event, and imports anew, is told of again when it is gone,
// whatever it has sent since: on one node messages are copied and no frame of them comes, and
// between nodes nothing comes of an importer that sends nothing and ends without a word.
func TestPeerGoneOfAnImporterThatCameBack(t *testing.T) {
	for _, way := range ways {
		for _, sends := range []bool{true, false} {
			name := way + "/that sends"
			if !sends {
				name = way + "/that sends nothing"
			}
			t.Run(name, func(t *testing.T) {
				near, far := nodes(t, way)
				a, err := vmmc.Open(t.Context(), vmmc.WithSocket(near), vmmc.WithResume(0)) // its links end without a Bye
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = a.Close() })
				end := func() { vmmc.SeverLinks(a) }
				if way == "between nodes" {
					s := &shaky{}
					t.Cleanup(s.close)
					vmmc.SetDialer(a, s.dial)
					end = func() { s.cut(true) }
				}
				events := make(chan vmmc.Event, 10)
				b, err := vmmc.Open(t.Context(), vmmc.WithSocket(far), vmmc.WithResume(0), vmmc.WithEvents(func(e vmmc.Event) { events <- e }))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = b.Close() })
				var opts []vmmc.ExportOption
				if way == "stream" {
					opts = append(opts, vmmc.Unmapped())
				}
				if _, err := b.Export(1, alloc(t, b, 4096), opts...); err != nil {
					t.Fatal(err)
				}
				for range 3 {
					im, err := a.Import(within(t), b.Node(), b.PID(), 1)
					if err != nil {
						t.Fatal(err)
					}
					if sends {
						if err := im.Send(within(t), w32(1), 0); err != nil {
							t.Fatal(err)
						}
						if err := im.Fence(within(t)); err != nil {
							t.Fatal(err)
						}
					}
					end()
					if e := awaitEvent(t, events, vmmc.PeerGone); e.Peer != a.ID() {
						t.Errorf("of %v is told: %v", e.Peer, e.Err)
					}
					until(t, "the import fails", func() bool { return im.Send(within(t), w32(1), 0) != nil })
				}
				handled(t, b)
				for len(events) > 0 {
					if e := <-events; e.Kind == vmmc.PeerGone {
						t.Errorf("told once too often: %v", e.Err)
					}
				}
			})
		}
	}
}
