package via_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/via"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// steps has tests act at the steps of the protocol.
var steps testutil.Steps

func TestMain(m *testing.M) {
	pair.Step = steps.At
	vmmctest.Role("client", client)
	vmmctest.Role("server", server)
	vmmctest.Role("peer", peer)
	vmmctest.Role("writer", writer)
	vmmctest.Role("owner", owner)
	vmmctest.Role("rank", rank)
	vmmctest.Role("nic", opener)
	vmmctest.Role("watcher", watcher)
	vmmctest.Main(m)
}

// bound is a guard against hanging.
const bound = testutil.Bound

var (
	within     = testutil.Context
	eventually = testutil.Eventually
)

// want checks an error's code; 0 is no error.
func want(t testing.TB, what string, err error, code via.Code) {
	t.Helper()
	if code == 0 && err != nil || code != 0 && !errors.Is(err, code) {
		t.Errorf("%s: %v, want %v", what, err, code)
	}
}

// way is how messages travel.
type way struct {
	name     string
	nodes    int
	unmapped bool
}

var ways = []way{{"mapped", 1, false}, {"stream", 1, true}, {"between nodes", 2, false}}

var levels = []via.Level{via.Unreliable, via.ReliableDelivery, via.ReliableReception}

// each runs a test for each way.
func each(t *testing.T, f func(t *testing.T, w way)) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) { f(t, w) })
	}
}

// device is a NIC with a tag, some memory, and the asynchronous errors that were told.
type device struct {
	*via.NIC
	p    *vmmc.Process
	tag  *via.ProtectionTag
	mem  *via.Memory
	errs chan via.AsyncError
}

const memSize = 4 << 20

func openOn(t testing.TB, node *vmmctest.Node, w way) *device {
	t.Helper()
	return openIn(t, node.Open(t), w)
}

func openIn(t testing.TB, p *vmmc.Process, w way) *device {
	t.Helper()
	n, err := via.Open(p, "nic0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() }) // the test may have closed it
	if w.unmapped {
		n.Unmap()
	}
	d := &device{NIC: n, p: p, errs: make(chan via.AsyncError, 4096)}
	n.OnError(func(e via.AsyncError) {
		select {
		case d.errs <- e:
		default: // the test does not look at them
		}
	})
	if d.tag, err = n.NewTag(); err != nil {
		t.Fatal(err)
	}
	if d.mem, err = n.Register(make([]byte, memSize), via.MemoryAttributes{Tag: d.tag}); err != nil {
		t.Fatal(err)
	}
	return d
}

// told waits for an asynchronous error.
func (d *device) told(t testing.TB, code via.ErrorCode) via.AsyncError {
	t.Helper()
	select {
	case e := <-d.errs:
		if e.Code != code {
			t.Fatalf("asynchronous error %v (%v), want %v", e.Code, e.Err, code)
		}
		return e
	case <-time.After(bound):
		t.Fatalf("no asynchronous error, want %v", code)
	}
	panic("unreachable")
}

// silent checks that no asynchronous error was told.
func (d *device) silent(t testing.TB) {
	t.Helper()
	select {
	case e := <-d.errs:
		t.Errorf("asynchronous error %v: %v", e.Code, e.Err)
	default:
	}
}

func (d *device) attr(level via.Level) via.VIAttributes {
	return via.VIAttributes{Level: level, MaxTransferSize: d.Attributes().MaxTransferSize, Tag: d.tag}
}

func (d *device) vi(t testing.TB, level via.Level) *via.VI {
	t.Helper()
	vi, err := d.NewVI(d.attr(level), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return vi
}

func (d *device) listen(t testing.TB, discriminator string) *via.Listener {
	t.Helper()
	l, err := d.Listen(within(t), discriminator)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// at is a descriptor of n bytes of the memory from off on.
func (d *device) at(off, n int) *via.Descriptor {
	return &via.Descriptor{Segments: []via.Segment{d.mem.Segment(off, n)}}
}

// start opens a NIC on the first node and one on the last.
func start(t testing.TB, w way) (a, b *device) {
	t.Helper()
	nodes := vmmctest.Nodes(t, w.nodes)
	return openOn(t, nodes[0], w), openOn(t, nodes[w.nodes-1], w)
}

// connect connects y's VI, which requests, with x's.
func connect(t testing.TB, l *via.Listener, x, y *via.VI) {
	t.Helper()
	ctx, stop := context.WithCancel(within(t))
	defer stop()
	done := make(chan error, 1)
	go func() {
		r, err := l.Wait(ctx)
		if err == nil {
			err = r.Accept(x)
		}
		if err != nil {
			stop() // nothing answers the request
		}
		done <- err
	}()
	_, err := y.Connect(ctx, via.Address{Discriminator: "client"}, l.Address())
	if err != nil {
		stop()
	}
	if accepted := <-done; err != nil || accepted != nil {
		t.Fatalf("connect: %v, accept: %v", err, accepted)
	}
}

// joined starts NICs and connects a VI of each.
func joined(t testing.TB, w way, level via.Level) (a, b *device, x, y *via.VI) {
	t.Helper()
	a, b = start(t, w)
	x, y = couple(t, a, b, level)
	return a, b, x, y
}

var couples atomic.Uint32

// couple connects a new VI of each NIC.
func couple(t testing.TB, a, b *device, level via.Level) (x, y *via.VI) {
	t.Helper()
	x, y = a.vi(t, level), b.vi(t, level)
	l := a.listen(t, fmt.Sprint("couple", couples.Add(1)))
	connect(t, l, x, y)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return x, y
}

func post(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sent waits for a SEND and checks its status.
func sent(t testing.TB, vi *via.VI, status via.Status) *via.Descriptor {
	t.Helper()
	d, err := vi.SendWait(within(t))
	return checked(t, d, err, status)
}

// received waits for a receive and checks its status.
func received(t testing.TB, vi *via.VI, status via.Status) *via.Descriptor {
	t.Helper()
	d, err := vi.ReceiveWait(within(t))
	return checked(t, d, err, status|via.OpReceive)
}

func checked(t testing.TB, d *via.Descriptor, err error, status via.Status) *via.Descriptor {
	t.Helper()
	if d == nil {
		t.Fatalf("no descriptor: %v", err)
	}
	if d.Status != status|via.Done {
		t.Fatalf("status %#x, want %#x", d.Status, status|via.Done)
	}
	if (d.Status&via.ErrorMask != 0) != errors.Is(err, via.ErrDescriptor) {
		t.Fatalf("status %#x and error %v", d.Status, err)
	}
	return d
}

// flushed checks that n descriptors of a queue are completed as flushed, and that it is empty then.
func flushed(t testing.TB, done func() (*via.Descriptor, error), n int) {
	t.Helper()
	for range n {
		d, err := done()
		if d == nil || d.Status&via.ErrorMask != via.Flushed || !errors.Is(err, via.ErrDescriptor) {
			t.Fatalf("%+v, %v, want a flushed descriptor", d, err)
		}
	}
	if d, err := done(); d != nil || !errors.Is(err, via.ErrDescriptor) {
		t.Fatalf("%+v, %v, want an empty queue", d, err)
	}
}

// child is a VI of a child, with receives posted.
func child(p *vmmc.Process, args []string) (n *via.NIC, mem *via.Memory, vi *via.VI, err error) {
	steps.PauseAt(args[0], args[1], "")
	if n, err = via.Open(p, "nic0"); err != nil {
		return
	}
	tag, err := n.NewTag()
	if err != nil {
		return
	}
	if mem, err = n.Register(make([]byte, memSize), via.MemoryAttributes{Tag: tag}); err != nil {
		return
	}
	vi, err = n.NewVI(via.VIAttributes{
		Level: via.ReliableReception, MaxTransferSize: 1 << 20, Tag: tag,
	}, nil, nil)
	for i := 0; err == nil && i < 64; i++ {
		err = vi.PostReceive(&via.Descriptor{Segments: []via.Segment{mem.Segment(64<<10*i, 64<<10)}})
	}
	return
}

// client is a child: step, how often. It connects with the listener "test" of node n1, sends 40
// messages and disconnects.
func client(ctx context.Context, p *vmmc.Process, args ...string) error {
	n, mem, vi, err := child(p, args)
	if err != nil {
		return err
	}
	host, err := n.HostByName("n1", 0)
	if err != nil {
		return err
	}
	remote := via.Address{Host: host, Discriminator: "test"}
	if _, err := vi.Connect(ctx, via.Address{}, remote); err != nil {
		return err
	}
	for range 40 {
		if err := vi.PostSend(&via.Descriptor{Segments: []via.Segment{mem.Segment(0, 48<<10)}}); err != nil {
			return err
		}
	}
	for range 40 {
		if _, err := vi.SendWait(ctx); err != nil {
			return err
		}
	}
	if err := vi.Disconnect(); err != nil {
		return err
	}
	fmt.Println("disconnected")
	<-ctx.Done() // never: the test kills it
	return nil
}

// server is a child: step, how often. It listens as "test" and takes what comes.
func server(ctx context.Context, p *vmmc.Process, args ...string) error {
	n, _, vi, err := child(p, args)
	if err != nil {
		return err
	}
	l, err := n.Listen(ctx, "test")
	if err != nil {
		return err
	}
	fmt.Println("listens")
	r, err := l.Wait(ctx)
	if err == nil {
		err = r.Accept(vi)
	}
	for err == nil {
		var d *via.Descriptor
		if d, err = vi.ReceiveWait(ctx); err == nil {
			err = vi.PostReceive(d)
		}
	}
	<-ctx.Done() // never: the test kills it
	return err
}
