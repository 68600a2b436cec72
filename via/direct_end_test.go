package via_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/via"
)

// kept imports the region that y uses directly once more. As a process that bypasses package via, it
// keeps that whatever becomes of y.
func kept(t testing.TB, a, b *device, y *via.VI) *vmmc.Import {
	t.Helper()
	im, err := b.p.Import(within(t), a.p.Node(), a.p.PID(), y.Regions()[0].ID())
	if err != nil {
		t.Fatal(err)
	}
	if err := im.Send(within(t), []byte("friendly"), 0); err != nil {
		t.Fatal(err)
	}
	return im
}

// revoked checks that an import writes to a region no more.
func revoked(t testing.TB, im *vmmc.Import, m *via.Memory) {
	t.Helper()
	clear(m.Bytes()[:8])
	err := im.Send(within(t), []byte("hostile!"), 0)
	if err == nil || m.Changed() {
		t.Errorf("a process that bypasses the library writes after the call has returned: %v", err)
	}
}

// A process whose last VI with the rights leaves, however it does, has none when Disconnect returns.
func TestDirectRevoked(t *testing.T) {
	for _, c := range []struct {
		name string
		ends func(t *testing.T, a, b *device, x, y *via.VI)
	}{
		{"disconnect", func(*testing.T, *device, *device, *via.VI, *via.VI) {}},
		{"the peer disconnects", func(t *testing.T, _, _ *device, _, y *via.VI) {
			want(t, "disconnect", y.Disconnect(), 0)
		}},
		{"the peer breaks the protocol", func(t *testing.T, _, b *device, _, y *via.VI) {
			_, peer := y.Conns()
			if err := b.Forge(within(t), via.Message(via.Kinds, 0, peer, 0, 0, 0, 0)); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := start(t, ways[0])
			m := a.region(t, 1<<16)
			x, y := rdmaCouple(t, a, b, via.ReliableDelivery, true, true)
			direct(t, y, m, b)
			im := kept(t, a, b, y)
			c.ends(t, a, b, x, y)
			if c.name != "disconnect" {
				eventually(t, "the connection breaks", func() bool { return x.State() == via.Failed })
			}
			want(t, "disconnect", x.Disconnect(), 0)
			revoked(t, im, m)
			want(t, "set attributes", x.SetAttributes(a.attr(via.ReliableDelivery)), 0)
			want(t, "destroy", x.Destroy(), 0)
		})
	}
}

// Of two VIs of a process one breaks, and then the other one disconnects.
func TestDirectTwoLeave(t *testing.T) {
	a, b := start(t, ways[0])
	m := a.region(t, 1<<16)
	x1, y1 := rdmaCouple(t, a, b, via.ReliableDelivery, true, true)
	x2, y2 := rdmaCouple(t, a, b, via.ReliableDelivery, true, true)
	direct(t, y1, m, b)
	direct(t, y2, m, b)
	im := kept(t, a, b, y1)
	want(t, "disconnect", y2.Disconnect(), 0)
	eventually(t, "the connection breaks", func() bool { return x2.State() == via.Failed })
	want(t, "disconnect", x1.Disconnect(), 0)
	revoked(t, im, m)
	want(t, "disconnect", x2.Disconnect(), 0)
}

// Nothing is written after Disconnect when messages to the peer's process wait for their turn.
func TestDirectEndsBehindBacklog(t *testing.T) {
	a, b := start(t, ways[0])
	m := a.region(t, 1<<16)
	x, y := rdmaCouple(t, a, b, via.ReliableDelivery, true, true)
	direct(t, y, m, b)
	const size, sends = 64 << 20, 20
	mem, err := b.p.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	e, err := b.p.Export(4242, mem.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	im, err := a.p.Import(within(t), b.p.Node(), b.p.PID(), 4242)
	if err != nil {
		t.Fatal(err)
	}
	src := make([]byte, size)
	for range sends {
		if _, err := im.SendAsync(context.Background(), src, 0); err != nil {
			t.Fatal(err)
		}
	}
	want(t, "disconnect", x.Disconnect(), 0)
	clear(m.Bytes())
	fill(b.mem.Bytes()[:64], 1)
	for range 1000 {
		_ = y.PostSend(&via.Descriptor{Control: via.OpRDMAWrite, Segments: b.at(0, 64).Segments, Remote: m.Remote(0)})
		_, _ = y.SendDone()
	}
	if !bytes.Equal(m.Bytes(), make([]byte, 1<<16)) {
		t.Error("it was written after Disconnect")
	}
	if err := im.Fence(within(t)); err != nil {
		t.Error(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// Deregister beside a Disconnect that takes the same regions away returns when they are.
func TestDeregisterBesideDisconnect(t *testing.T) {
	const regions = 20
	a, b := start(t, ways[0])
	for range 3 {
		x, y := rdmaCouple(t, a, b, via.ReliableDelivery, true, true)
		ms := make([]*via.Memory, regions)
		for i := range ms {
			ms[i] = a.region(t, 1<<16)
		}
		eventually(t, "the regions are granted", func() bool {
			for _, m := range ms {
				rdma(t, y, via.OpRDMARead, m.Remote(0), b.mem.Segment(3<<20, 8))
			}
			return y.Direct() == regions
		})
		ims := y.Regions()
		over := make(chan error, 1)
		go func() { over <- x.Disconnect() }()
		for _, m := range ms {
			want(t, "deregister", m.Deregister(), 0)
			clear(m.Bytes()[:8])
			for _, im := range ims {
				_ = im.Send(within(t), []byte("hostile!"), 0)
			}
			if m.Changed() {
				t.Fatal("it was written after Deregister")
			}
		}
		want(t, "disconnect", <-over, 0)
		_ = y.Disconnect()
	}
}

// In a handler of package vmmc Disconnect refuses to take regions away, and leaves all as it is.
func TestDisconnectInHandler(t *testing.T) {
	a, b := start(t, ways[0])
	m := a.region(t, 1<<16)
	x, y := rdmaCouple(t, a, b, via.ReliableDelivery, true, true)
	direct(t, y, m, b)
	im := kept(t, a, b, y)
	mem, err := a.p.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	if _, err := a.p.Export(777, mem.Bytes(), vmmc.WithHandler(func(vmmc.Notification) {
		done <- x.Disconnect()
	})); err != nil {
		t.Fatal(err)
	}
	bell, err := b.p.Import(within(t), a.p.Node(), a.p.PID(), 777)
	if err != nil {
		t.Fatal(err)
	}
	if err := bell.SendNotify(within(t), make([]byte, 8), 0); err != nil {
		t.Fatal(err)
	}
	want(t, "disconnect in a handler", <-done, via.ErrInvalidState)
	if s := x.State(); s != via.Connected {
		t.Fatalf("the VI is in state %v", s)
	}
	want(t, "deregister", m.Deregister(), 0)
	revoked(t, im, m)
	want(t, "disconnect", x.Disconnect(), 0)
}

// What messages store in a region is not lost while it is taken away from a process: messages of the
// same NIC, and of another one that has the same memory registered.
func TestReceivesWhileRevoked(t *testing.T) {
	for _, nics := range []int{1, 2} {
		t.Run(fmt.Sprint(nics, " NICs"), func(t *testing.T) { receiveWhileRevoked(t, nics) })
	}
}

func receiveWhileRevoked(t *testing.T, nics int) {
	a, b := start(t, ways[0])
	const size = 1 << 20
	m := a.region(t, size)
	to, stored := a, m
	if nics == 2 {
		to = openIn(t, a.p, ways[0])
		var err error
		stored, err = to.Register(m.Bytes(), via.MemoryAttributes{Tag: to.tag})
		want(t, "register", err, 0)
	}
	x, y := couple(t, to, b, via.ReliableReception)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	all := make([]byte, size)
	wg.Go(func() {
		src := b.mem.Bytes()[1<<20:][:4096]
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			fill(src, byte(i+i/256))
			off := i * 4096 % size
			if err := x.PostReceive(&via.Descriptor{Segments: []via.Segment{stored.Segment(off, 4096)}}); err != nil {
				t.Error(err)
				return
			}
			if err := y.PostSend(b.at(1<<20, 4096)); err != nil {
				t.Error(err)
				return
			}
			_, err1 := x.ReceiveWait(within(t))
			_, err2 := y.SendWait(within(t))
			if err1 != nil || err2 != nil {
				t.Errorf("round %d: %v, %v", i, err1, err2)
				return
			}
			copy(all[off:], src)
			if i%64 == 63 && !bytes.Equal(m.Bytes(), all) { // before the place is written once more
				t.Errorf("round %d: a message was lost", i)
				return
			}
		}
	})
	for range 30 {
		x, y := rdmaCouple(t, a, b, via.ReliableDelivery, true, true)
		direct(t, y, m, b)
		want(t, "disconnect", x.Disconnect(), 0)
		eventually(t, "the connection breaks", func() bool { return y.State() == via.Failed })
		want(t, "disconnect", errorsOf(y.Disconnect(), y.Destroy(), x.Destroy()), 0)
	}
	close(stop)
	wg.Wait()
	if !bytes.Equal(m.Bytes(), all) {
		t.Error("a message was lost")
	}
}

// The peer gives back the pages of a region that was taken away, when it uses the region again, and when
// its VI leaves.
func TestRevokedImportsAreClosed(t *testing.T) {
	a, b := start(t, ways[0])
	m := a.region(t, 1<<16)
	x, y := rdmaCouple(t, a, b, via.ReliableDelivery, true, true)
	direct(t, y, m, b)
	on, err := m.Attributes()
	want(t, "attributes", err, 0)
	off := on
	off.EnableRDMAWrite = false
	want(t, "set", m.SetAttributes(off), 0)
	eventually(t, "the import is closed", func() bool {
		rdma(t, y, via.OpRDMARead, m.Remote(0), b.mem.Segment(3<<20, 8))
		return b.Imports() == 0
	})
	want(t, "set", m.SetAttributes(on), 0)
	direct(t, y, m, b)
	want(t, "disconnect", x.Disconnect(), 0)
	eventually(t, "the import is closed", func() bool { return y.State() == via.Failed && b.Imports() == 0 })
}

// A VI whose request was refused has let nothing in: its Disconnect takes nothing away from the process
// that has refused, which has a healthy VI.
func TestRefusedRequestTakesNothingAway(t *testing.T) {
	a, b := start(t, ways[0])
	m := a.region(t, 1<<16)
	_, y := rdmaCouple(t, a, b, via.ReliableDelivery, true, true)
	direct(t, y, m, b)
	im := y.Regions()[0]
	l := b.listen(t, "refuses")
	done := make(chan error, 1)
	go func() {
		r, err := l.Wait(within(t))
		if err == nil {
			err = r.Reject()
		}
		done <- err
	}()
	z := a.vi(t, via.ReliableDelivery)
	_, err := z.Connect(within(t), via.Address{}, l.Address())
	want(t, "connect", err, via.ErrReject)
	post(t, <-done)
	want(t, "disconnect", z.Disconnect(), 0)
	rdma(t, y, via.OpRDMAWrite, m.Remote(0), b.mem.Segment(0, 64))
	if err := im.Err(); err != nil || y.Direct() != 1 {
		t.Errorf("the healthy VI uses %d regions directly, want the same one: %v", y.Direct(), err)
	}
}

// While a call takes regions of one NIC away, another NIC registers other memory, and that of the
// regions only afterwards.
func TestRegisterWhileRevoked(t *testing.T) {
	a, b := start(t, ways[0])
	const size = 1 << 16
	m := a.region(t, size)
	_, y := rdmaCouple(t, a, b, via.ReliableDelivery, true, true)
	direct(t, y, m, b)
	other := openIn(t, a.p, ways[0])
	attr := via.MemoryAttributes{Tag: other.tag}
	for _, part := range [][]byte{m.Bytes(), m.Bytes()[:1], m.Bytes()[size-1:]} {
		var revoked atomic.Bool
		begun, over := make(chan struct{}), make(chan error, 1)
		a.WhileRevoking(func() {
			go func() {
				close(begun)
				r, err := other.Register(part, attr)
				if !revoked.Load() {
					err = errors.Join(err, errors.New("registered while its pages may be replaced"))
				}
				if err == nil {
					err = r.Deregister()
				}
				over <- err
			}()
			<-begun
			elsewhere := make(chan error, 1)
			go func() {
				for range 1000 {
					r, err := other.Register(make([]byte, size), attr)
					if err == nil {
						err = r.Deregister()
					}
					if err != nil {
						elsewhere <- err
						return
					}
				}
				elsewhere <- nil
			}()
			select {
			case err := <-elsewhere:
				want(t, "register other memory", err, 0)
			case <-within(t).Done():
				t.Error("other memory is not registered while regions are taken away")
			}
			revoked.Store(true)
		})
		if err := <-over; err != nil {
			t.Error(err)
		}
	}
}
