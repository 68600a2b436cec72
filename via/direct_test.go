package via_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/via"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// region is n bytes of the library's allocator that peers may write and read.
func (d *device) region(t testing.TB, n int) *via.Memory {
	t.Helper()
	mem, err := d.p.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Register(mem.Bytes(), via.MemoryAttributes{
		Tag: d.tag, EnableRDMAWrite: true, EnableRDMARead: true, Direct: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// rdma posts an operation and waits for its end.
func rdma(t testing.TB, y *via.VI, op via.Control, to via.Remote, segments ...via.Segment) {
	t.Helper()
	post(t, y.PostSend(&via.Descriptor{Control: op, Segments: segments, Remote: to}))
	sent(t, y, map[via.Control]via.Status{via.OpRDMAWrite: via.OpWrite, via.OpRDMARead: via.OpRead}[op])
}

// direct reads a region until the VI may use it directly.
func direct(t testing.TB, y *via.VI, m *via.Memory, b *device) {
	t.Helper()
	eventually(t, "the region is granted", func() bool {
		rdma(t, y, via.OpRDMARead, m.Remote(0), b.mem.Segment(3<<20, 8))
		return y.Direct() > 0
	})
}

// Operations go directly where they can be, and by messages otherwise. They do not pass one another,
// whichever way each one goes.
func TestDirect(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		const size = 1 << 20
		a, b := start(t, w)
		m := a.region(t, size)
		for _, level := range levels[1:] {
			x, y := rdmaCouple(t, a, b, level, true, true)
			if w == ways[0] {
				direct(t, y, m, b)
			} else {
				for range 20 {
					rdma(t, y, via.OpRDMARead, m.Remote(0), b.mem.Segment(3<<20, 8))
				}
				if y.Direct() > 0 {
					t.Error("a region was granted that cannot be mapped")
				}
			}
			src, back := b.mem.Bytes()[:size], b.mem.Bytes()[2<<20:][:size]
			for i, n := range []int{0, 4, 64, 4096, 256<<10 + 4, size} {
				fill(src, byte(i))
				clear(m.Bytes())
				rdma(t, y, via.OpRDMAWrite, m.Remote(size-n), b.mem.Segment(0, n/8*4), b.mem.Segment(n/8*4, n-n/8*4))
				x.State() // behind the accesses of x's NIC, for the race detector
				if !bytes.Equal(m.Bytes()[size-n:], src[:n]) || !bytes.Equal(m.Bytes()[:size-n], make([]byte, size-n)) {
					t.Fatalf("%d bytes were not written", n)
				}
				clear(back)
				rdma(t, y, via.OpRDMARead, m.Remote(size-n), b.mem.Segment(2<<20, n/8*4), b.mem.Segment(2<<20+n/8*4, n-n/8*4))
				if !bytes.Equal(back[:n], src[:n]) {
					t.Fatalf("%d bytes were not read", n)
				}
				// Immediate data.
				clear(m.Bytes())
				post(t, x.PostReceive(a.at(0, 0)))
				post(t, y.PostSend(&via.Descriptor{
					Control: via.OpRDMAWrite | via.Immediate, Segments: b.at(0, n).Segments, Remote: m.Remote(0),
					ImmediateData: 77,
				}))
				sent(t, y, via.OpWrite)
				d, err := x.ReceiveWait(within(t))
				if err != nil || d.Length != n || d.ImmediateData != 77 ||
					d.Status != via.Done|via.OpRemoteWrite|via.ImmediateArrived {
					t.Fatalf("%+v, %v", d, err)
				}
				if !bytes.Equal(m.Bytes()[:n], src[:n]) {
					t.Fatalf("%d bytes were not written before the immediate data came", n)
				}
			}
			// Words and bytes, by turns to the same place: the last one stays, and reads find it.
			for i := range 200 {
				n := 64 + i%2 // 65 bytes go by a message
				fill(src[:128], byte(i))
				post(t, y.PostSend(&via.Descriptor{
					Control: via.OpRDMAWrite, Segments: b.at(0, 65-i%2).Segments, Remote: m.Remote(0),
				}))
				fill(src[128:256], byte(i+100))
				post(t, y.PostSend(&via.Descriptor{
					Control: via.OpRDMAWrite, Segments: b.at(128, n).Segments, Remote: m.Remote(0),
				}))
				post(t, y.PostSend(&via.Descriptor{
					Control: via.OpRDMARead, Segments: b.at(2<<20, 64).Segments, Remote: m.Remote(0),
				}))
				sent(t, y, via.OpWrite)
				sent(t, y, via.OpWrite)
				sent(t, y, via.OpRead)
				if !bytes.Equal(back[:64], src[128:192]) {
					t.Fatalf("round %d: the first write has passed the second one", i)
				}
			}
			// One byte more than there is, and a region that cannot be written.
			post(t, y.PostSend(&via.Descriptor{
				Control: via.OpRDMAWrite, Segments: b.at(0, 8).Segments, Remote: m.Remote(size - 4),
			}))
			sent(t, y, via.OpWrite|via.RDMAError)
			a.told(t, via.WriteProtection)
			a.told(t, via.ConnectionLost)
			b.told(t, via.ConnectionLost)
			want(t, "disconnect", errorsOf(x.Disconnect(), y.Disconnect()), 0)
		}
	})
}

// A region that does not ask for it or of which peers may do one thing only, a VI through which they may, parts of pages and
// memory of the Go heap are not granted.
func TestNotDirect(t *testing.T) {
	a, b := start(t, ways[0])
	whole := a.region(t, 8192)
	attr, err := whole.Attributes()
	want(t, "attributes", err, 0)
	both := attr
	part, err := a.Register(a.region(t, 8192).Bytes()[:4100], both)
	want(t, "register", err, 0)
	heap, err := a.Register(make([]byte, 1<<20), both)
	want(t, "register", err, 0)
	for _, c := range []struct {
		name                        string
		m                           *via.Memory
		asked, region, write, reads bool
	}{
		{"a region that does not ask", whole, false, true, true, true},
		{"a region for reads", whole, true, false, true, true},
		{"a VI for reads", whole, true, true, false, true},
		{"a part of a page", part, true, true, true, true},
		{"the heap", heap, true, true, true, true},
	} {
		attr.Direct, attr.EnableRDMAWrite = c.asked, c.region
		want(t, "set", c.m.SetAttributes(attr), 0)
		x, y := rdmaCouple(t, a, b, via.ReliableDelivery, c.write, c.reads)
		for range 50 {
			rdma(t, y, via.OpRDMARead, c.m.Remote(0), b.mem.Segment(0, 8))
		}
		if y.Direct() > 0 {
			t.Errorf("%s is granted", c.name)
		}
		want(t, "disconnect", errorsOf(x.Disconnect(), y.Disconnect()), 0)
	}
}

// When Disconnect returns, a peer that writes directly writes no more. The next connection has
// grants of its own.
func TestDirectEndsWithTheConnection(t *testing.T) {
	a, b := start(t, ways[0])
	const size = 1 << 20
	m := a.region(t, size)
	fill(b.mem.Bytes()[:size], 1)
	other, beside := rdmaCouple(t, a, b, via.ReliableDelivery, true, true) // it shares the link
	for round := range 50 {
		x, y := rdmaCouple(t, a, b, via.ReliableDelivery, true, true)
		direct(t, y, m, b)
		direct(t, beside, m, b)
		if round%2 == 0 { // one that is posted before y's NIC has taken the message
			clear(m.Bytes())
			d := &via.Descriptor{Control: via.OpRDMAWrite, Segments: b.at(0, 64).Segments, Remote: m.Remote(0)}
			want(t, "disconnect", x.Disconnect(), 0)
			post(t, y.PostSend(d))
			if m.Changed() {
				t.Fatal("it was written after Disconnect")
			}
			b.told(t, via.ConnectionLost)
			flushed(t, y.SendDone, 1)
			want(t, "disconnect", errorsOf(y.Disconnect(), y.Destroy(), x.Destroy()), 0)
			continue
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for y.PostSend(&via.Descriptor{
				Control: via.OpRDMAWrite, Segments: b.at(0, size).Segments, Remote: m.Remote(0),
			}) == nil {
				if _, err := y.SendWait(within(t)); err != nil {
					return
				}
			}
		}()
		eventually(t, "it is written", func() bool { return m.Changed() })
		want(t, "disconnect", x.Disconnect(), 0)
		clear(m.Bytes())
		<-ended
		if !bytes.Equal(m.Bytes(), make([]byte, size)) {
			t.Fatal("it was written after Disconnect")
		}
		b.told(t, via.ConnectionLost)
		want(t, "disconnect", errorsOf(y.Disconnect(), y.Destroy(), x.Destroy()), 0)
		if s := other.State(); s != via.Connected {
			t.Fatalf("the other VI is in state %v", s)
		}
	}
	a.silent(t)
}

// A direct operation costs no memory of the Go heap.
func TestDirectAllocations(t *testing.T) {
	if race {
		t.Skip("the race detector allocates")
	}
	a, b := start(t, ways[0])
	m := a.region(t, 4096)
	_, y := rdmaCouple(t, a, b, via.ReliableDelivery, true, true)
	direct(t, y, m, b)
	for _, op := range []via.Control{via.OpRDMAWrite, via.OpRDMARead} {
		d := &via.Descriptor{Control: op, Segments: b.at(0, 4096).Segments, Remote: m.Remote(0)}
		n := testing.AllocsPerRun(1000, func() {
			if y.PostSend(d) != nil {
				t.Fatal("post")
			}
			if _, err := y.SendDone(); err != nil {
				t.Fatal(err)
			}
		})
		if n > 0 {
			t.Errorf("%v allocations", n)
		}
	}
}

// writer is a child: step, how often, a file that lets it go on, and a region's address and handle. It
// connects with the listener "test" of node n1, and writes and reads the region.
func writer(ctx context.Context, p *vmmc.Process, args ...string) error {
	n, mem, vi, err := child(p, args)
	if err != nil {
		return err
	}
	if args[2] != "" {
		steps.PauseAt(args[0], args[1], args[2])
	}
	var to via.Remote
	if _, err := fmt.Sscan(args[3], &to.Address, &to.Handle); err != nil {
		return err
	}
	host, err := n.HostByName("n1", 0)
	if err != nil {
		return err
	}
	if _, err := vi.Connect(ctx, via.Address{}, via.Address{Host: host, Discriminator: "test"}); err != nil {
		return err
	}
	fill(mem.Bytes(), 1)
	for err == nil {
		for _, op := range []via.Control{via.OpRDMAWrite, via.OpRDMARead} {
			_ = vi.PostSend(&via.Descriptor{
				Control: op, Segments: []via.Segment{mem.Segment(0, 1<<20)}, Remote: to,
			})
		}
		for range 2 {
			if _, e := vi.SendWait(ctx); e != nil {
				err = e
			}
		}
	}
	fmt.Println("over:", err)
	<-ctx.Done() // never: the test kills it
	return err
}

// owner is a child: step, how often. It lets peers that connect with its listener "test" write and
// read a region, whose address and handle it prints.
func owner(ctx context.Context, p *vmmc.Process, args ...string) error {
	n, _, vi, err := child(p, args)
	if err != nil {
		return err
	}
	st, err := vi.Query()
	if err != nil {
		return err
	}
	st.Attributes.EnableRDMAWrite, st.Attributes.EnableRDMARead = true, true
	mem, err := p.Alloc(1 << 20)
	if err != nil {
		return err
	}
	m, err := n.Register(mem.Bytes(), via.MemoryAttributes{
		Tag: st.Attributes.Tag, EnableRDMAWrite: true, EnableRDMARead: true, Direct: true,
	})
	if err == nil {
		err = vi.SetAttributes(st.Attributes)
	}
	if err != nil {
		return err
	}
	l, err := n.Listen(ctx, "test")
	if err != nil {
		return err
	}
	fmt.Println(m.Remote(0).Address, m.Handle())
	r, err := l.Wait(ctx)
	if err == nil {
		err = r.Accept(vi)
	}
	<-ctx.Done() // never: the test kills it
	return err
}

// An owner that is killed, when it has exported its region or while that is written, ends the
// connection: each descriptor is completed once.
func TestDirectOwnerKilled(t *testing.T) {
	nodes := vmmctest.Nodes(t, 1)
	b := openOn(t, nodes[0], ways[0])
	for _, step := range []string{"direct.exported", ""} {
		t.Run("at "+step, func(t *testing.T) {
			c := vmmctest.Child(t, nodes[0], "owner", step, "1")
			var to via.Remote
			if _, err := fmt.Sscan(c.Line(), &to.Address, &to.Handle); err != nil {
				t.Fatal(err)
			}
			y := b.vi(t, via.ReliableReception)
			if _, err := y.Connect(within(t), via.Address{}, b.addr("test")); err != nil {
				t.Fatal(err)
			}
			killed := make(chan struct{})
			go func() {
				defer close(killed)
				if step != "" {
					if got := c.Line(); got != step {
						t.Errorf("%q", got)
					}
				} else {
					eventually(t, "the region is granted", func() bool { return y.Direct() > 0 })
				}
				c.Kill()
			}()
			for ok, n := true, 0; ok; n++ {
				d := &via.Descriptor{Control: via.OpRDMAWrite, Segments: b.at(0, 1<<20).Segments, Remote: to}
				post(t, y.PostSend(d))
				got, err := y.SendWait(within(t))
				if got != d {
					t.Fatalf("%v, %v", got, err)
				}
				if ok = err == nil; !ok && d.Status&via.ErrorMask != via.Flushed {
					t.Errorf("status %#x", d.Status)
				}
			}
			<-killed
			b.told(t, via.ConnectionLost)
			flushed(t, y.SendDone, 0)
			want(t, "disconnect", errorsOf(y.Disconnect(), y.Destroy()), 0)
			b.silent(t)
		})
	}
}

// served is a VI that a child is connected with, and a region that the child writes.
func served(t testing.TB, a *device) (x *via.VI, m *via.Memory, accept func()) {
	t.Helper()
	x = a.vi(t, via.ReliableReception)
	attr := a.attr(via.ReliableReception)
	attr.EnableRDMAWrite, attr.EnableRDMARead = true, true
	want(t, "set attributes", x.SetAttributes(attr), 0)
	l := a.listen(t, "test")
	return x, a.region(t, 1<<20), func() {
		r, err := l.Wait(within(t))
		if err == nil {
			err = r.Accept(x)
		}
		want(t, "accept", errorsOf(err, l.Close()), 0)
	}
}

// A peer that is killed at a step of a direct operation is one that has ended: its VI is lost, and
// the region can be given to the next one.
func TestDirectPeerKilled(t *testing.T) {
	nodes := vmmctest.Nodes(t, 1)
	a := openOn(t, nodes[0], ways[0])
	for _, s := range []struct{ step, nth string }{
		{"direct.imported", "1"}, {"direct.begun", "1"}, {"direct.begun", "2"}, {"direct.begun", "50"},
	} {
		t.Run(s.step+"/"+s.nth, func(t *testing.T) {
			x, m, accept := served(t, a)
			c := vmmctest.Child(t, nodes[0], "writer", s.step, s.nth, "", fmt.Sprint(m.Remote(0).Address, m.Handle()))
			accept()
			if got := c.Line(); got != s.step {
				t.Fatalf("%q", got)
			}
			c.Kill()
			if e := next(t, a.errs); e.Code == via.WriteAborted { // one by messages was under way
				a.told(t, via.ConnectionLost)
			} else if e.Code != via.ConnectionLost {
				t.Fatalf("asynchronous error %v", e.Code)
			}
			want(t, "disconnect", x.Disconnect(), 0)
			clear(m.Bytes())
			want(t, "deregister", m.Deregister(), 0)
			if !bytes.Equal(m.Bytes(), make([]byte, 1<<20)) {
				t.Error("it was written afterwards")
			}
		})
	}
}

// A peer that is stopped in a direct operation does not hold up Disconnect, and what it writes later
// is not seen.
func TestDirectPeerStopped(t *testing.T) {
	nodes := vmmctest.Nodes(t, 1)
	a := openOn(t, nodes[0], ways[0])
	x, m, accept := served(t, a)
	file := filepath.Join(t.TempDir(), "go on")
	c := vmmctest.Child(t, nodes[0], "writer", "direct.begun", "5", file, fmt.Sprint(m.Remote(0).Address, m.Handle()))
	accept()
	if got := c.Line(); got != "direct.begun" {
		t.Fatalf("%q", got)
	}
	want(t, "disconnect", x.Disconnect(), 0)
	clear(m.Bytes())
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := c.Line(); !strings.HasPrefix(got, "over:") {
		t.Errorf("the peer says %q", got)
	}
	if !bytes.Equal(m.Bytes(), make([]byte, 1<<20)) {
		t.Error("it was written after Disconnect")
	}
}

// A region that was taken away from all processes is granted again to those that have the rights: after
// SetAttributes there and back, and after another connection's end.
func TestDirectAgain(t *testing.T) {
	a, b := start(t, ways[0])
	m := a.region(t, 1<<16)
	_, y := rdmaCouple(t, a, b, via.ReliableDelivery, true, true)
	on, err := m.Attributes()
	want(t, "attributes", err, 0)
	off := on
	off.EnableRDMARead = false
	for _, c := range []struct {
		name string
		ends func()
	}{
		{"set attributes", func() { want(t, "set", errorsOf(m.SetAttributes(off), m.SetAttributes(on)), 0) }},
		{"disconnect another one", func() {
			x, _ := rdmaCouple(t, a, b, via.ReliableDelivery, true, true)
			want(t, "disconnect", x.Disconnect(), 0)
		}},
	} {
		direct(t, y, m, b)
		old := y.Regions()[0].ID()
		c.ends()
		eventually(t, c.name+": the region is granted again", func() bool {
			rdma(t, y, via.OpRDMARead, m.Remote(0), b.mem.Segment(3<<20, 8))
			ims := y.Regions()
			return len(ims) == 1 && ims[0].ID() != old
		})
	}
}

// An unreliable VI writes by messages only, also where a false owner grants it a region: a direct write
// would pass an earlier one that is not acknowledged.
func TestNotDirectUnreliable(t *testing.T) {
	const size = 1 << 16
	a, b := start(t, ways[0])
	m := a.region(t, size)
	_, r := rdmaCouple(t, a, b, via.ReliableDelivery, true, true)
	direct(t, r, m, b)
	x, y := rdmaCouple(t, a, b, via.Unreliable, true, false)
	for range 50 {
		rdma(t, y, via.OpRDMAWrite, m.Remote(0), b.mem.Segment(0, 8))
	}
	_, peer := x.Conns()
	a.Grant(peer, m.Remote(0).Address, size, m.Handle(), r.Regions()[0].ID())
	post(t, y.PostReceive(b.at(0, 64))) // behind the grant
	post(t, x.PostSend(a.at(0, 64)))
	received(t, y, via.OpReceive)
	eventually(t, "grants are imported", func() bool { return !b.Importing() })
	if n := y.Direct(); n > 0 {
		t.Errorf("an unreliable VI may use %d regions directly", n)
	}
}
