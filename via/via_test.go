package via_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/via"
	"github.com/vmmc-go/vmmc/vmmctest"
)

func TestNIC(t *testing.T) {
	p := vmmctest.Nodes(t, 1)[0].Open(t)
	for _, name := range []string{"/dev/via_lo", "/dev/clanvi0", "VINIC0", "nic0"} {
		n, err := via.Open(p, name)
		if err != nil {
			t.Fatal(err)
		}
		again, err := via.Open(p, name)
		if err != nil || n == again {
			t.Fatalf("opened again: %v", err)
		}
		before := n.Attributes()
		if before != again.Attributes() || before != n.Attributes() {
			t.Error("the attributes change")
		}
		if got := n.Attributes().Device; got != name {
			t.Errorf("device %q, want %q", got, name)
		}
		want(t, "close", n.Close(), 0)
		want(t, "close again", n.Close(), via.ErrInvalidParameter)
		_, err = n.NewTag()
		want(t, "a tag of a closed NIC", err, via.ErrInvalidParameter)
		_, err = n.NewVI(via.VIAttributes{}, nil, nil)
		want(t, "a VI of a closed NIC", err, via.ErrInvalidParameter)
		_, err = n.NewCompletionQueue(1)
		want(t, "a completion queue of a closed NIC", err, via.ErrInvalidParameter)
		_, err = n.Register(make([]byte, 1), via.MemoryAttributes{})
		want(t, "memory of a closed NIC", err, via.ErrInvalidParameter)
		_, err = n.Listen(within(t), "x")
		want(t, "a listener of a closed NIC", err, via.ErrInvalidParameter)
		want(t, "close the other one", again.Close(), 0)
	}
	for _, name := range []string{"", "nic", "nic00", "eth0", "/dev/via_lo0"} {
		_, err := via.Open(p, name)
		want(t, "device "+name, err, via.ErrInvalidParameter)
	}
	_, err := via.Open(nil, "nic0")
	want(t, "no process", err, via.ErrInvalidParameter)
}

func TestTags(t *testing.T) {
	a, b := start(t, ways[0])
	limit := a.Attributes().MaxTags
	var tags []*via.ProtectionTag
	for len(tags) < limit-1 { // the device has one
		tag, err := a.NewTag()
		if err != nil {
			t.Fatalf("tag %d: %v", len(tags), err)
		}
		tags = append(tags, tag)
	}
	_, err := a.NewTag()
	want(t, "one tag more", err, via.ErrResource)
	want(t, "destroy", tags[0].Destroy(), 0)
	want(t, "destroy again", tags[0].Destroy(), via.ErrInvalidParameter)
	_, err = a.NewTag()
	want(t, "a tag in its place", err, 0)
	want(t, "destroy one in use", a.tag.Destroy(), via.ErrResource)
	for _, bad := range []*via.ProtectionTag{nil, tags[0], b.tag} {
		_, err = a.Register(make([]byte, 1), via.MemoryAttributes{Tag: bad})
		want(t, "register with a bad tag", err, via.ErrInvalidTag)
		want(t, "set a bad tag", a.mem.SetAttributes(via.MemoryAttributes{Tag: bad}), via.ErrInvalidTag)
		attr := a.attr(via.Unreliable)
		attr.Tag = bad
		_, err = a.NewVI(attr, nil, nil)
		want(t, "a VI with a bad tag", err, via.ErrInvalidTag)
	}
	vi := a.vi(t, via.Unreliable)
	want(t, "deregister", a.mem.Deregister(), 0)
	want(t, "destroy one that a VI has", a.tag.Destroy(), via.ErrResource)
	want(t, "destroy the VI", vi.Destroy(), 0)
	want(t, "destroy", a.tag.Destroy(), 0)
}

func TestMemory(t *testing.T) {
	a, _ := start(t, ways[0])
	for _, empty := range [][]byte{nil, {}} {
		_, err := a.Register(empty, via.MemoryAttributes{Tag: a.tag})
		want(t, "no memory", err, via.ErrInvalidParameter)
	}
	b := make([]byte, 100)
	seen := map[via.Handle]bool{0: true}
	var all []*via.Memory
	for _, piece := range [][]byte{b, b, b[1:7], b[5:], b[99:]} {
		m, err := a.Register(piece, via.MemoryAttributes{Tag: a.tag})
		if err != nil {
			t.Fatal(err)
		}
		if seen[m.Handle()] {
			t.Errorf("handle %d is 0 or was given out", m.Handle())
		}
		seen[m.Handle()] = true
		if attr, err := m.Attributes(); err != nil || attr.Tag != a.tag {
			t.Errorf("%v, %v", attr, err)
		}
		all = append(all, m)
	}
	for _, m := range all {
		want(t, "deregister", m.Deregister(), 0)
		want(t, "deregister again", m.Deregister(), via.ErrInvalidParameter)
		_, err := m.Attributes()
		want(t, "query", err, via.ErrInvalidParameter)
		want(t, "set", m.SetAttributes(via.MemoryAttributes{Tag: a.tag}), via.ErrInvalidParameter)
	}
}

func TestVIAttributes(t *testing.T) {
	a, b := start(t, ways[0])
	good := a.attr(via.ReliableDelivery)
	cq, err := b.NewCompletionQueue(1)
	if err != nil {
		t.Fatal(err)
	}
	vi := a.vi(t, via.Unreliable)
	for _, c := range []struct {
		name   string
		change func(*via.VIAttributes)
		code   via.Code
	}{
		{"no level", func(v *via.VIAttributes) { v.Level = 0 }, via.ErrInvalidLevel},
		{"two levels", func(v *via.VIAttributes) { v.Level = 3 }, via.ErrInvalidLevel},
		{"another level", func(v *via.VIAttributes) { v.Level = 8 }, via.ErrInvalidLevel},
		{"no size", func(v *via.VIAttributes) { v.MaxTransferSize = 0 }, via.ErrInvalidMTU},
		{"a negative size", func(v *via.VIAttributes) { v.MaxTransferSize = -1 }, via.ErrInvalidMTU},
		{"a large size", func(v *via.VIAttributes) { v.MaxTransferSize++ }, via.ErrInvalidMTU},
		{"no tag", func(v *via.VIAttributes) { v.Tag = nil }, via.ErrInvalidTag},
		{"good", func(*via.VIAttributes) {}, 0},
	} {
		attr := good
		c.change(&attr)
		_, err := a.NewVI(attr, nil, nil)
		want(t, c.name, err, c.code)
		want(t, "set: "+c.name, vi.SetAttributes(attr), c.code)
	}
	if s, err := vi.Query(); err != nil || s.Attributes != good || s.State != via.Idle {
		t.Errorf("%+v, %v", s, err)
	}
	_, err = a.NewVI(good, cq, nil)
	want(t, "a completion queue of another NIC", err, via.ErrInvalidParameter)
	want(t, "destroy it", cq.Destroy(), 0)
	_, err = b.NewVI(b.attr(via.Unreliable), nil, cq)
	want(t, "a completion queue that is destroyed", err, via.ErrInvalidParameter)
	want(t, "destroy it again", cq.Destroy(), via.ErrInvalidParameter)
}

func TestNumberOfVIs(t *testing.T) {
	a, _ := start(t, ways[0])
	var vis []*via.VI
	for range a.Attributes().MaxVIs {
		vis = append(vis, a.vi(t, via.Unreliable))
	}
	_, err := a.NewVI(a.attr(via.Unreliable), nil, nil)
	want(t, "one more", err, via.ErrResource)
	want(t, "destroy", vis[0].Destroy(), 0)
	a.vi(t, via.Unreliable)
}

func TestStates(t *testing.T) {
	if err := via.WalkStates(openOn(t, vmmctest.Nodes(t, 1)[0], ways[0]).NIC); err != nil {
		t.Error(err)
	}
}

// Each call in each state that a VI stays in.
func TestCallsInStates(t *testing.T) {
	a, b, x, y := joined(t, ways[0], via.ReliableDelivery)
	l := a.listen(t, "states")
	ctx := within(t)
	attr := a.attr(via.ReliableDelivery)
	want(t, "attributes while connected", x.SetAttributes(attr), via.ErrInvalidState)
	want(t, "destroy while connected", x.Destroy(), via.ErrResource)
	_, err := y.Connect(ctx, via.Address{}, l.Address())
	want(t, "connect while connected", err, via.ErrInvalidState)
	post(t, x.PostReceive(a.at(0, 8)))
	want(t, "disconnect", y.Disconnect(), 0)
	a.told(t, via.ConnectionLost)
	if got := x.State(); got != via.Failed {
		t.Fatalf("state %v", got)
	}
	flushed(t, x.ReceiveDone, 1)
	post(t, x.PostSend(a.at(0, 8)))
	flushed(t, x.SendDone, 1)
	post(t, x.PostReceive(a.at(0, 8)))
	want(t, "attributes in state error", x.SetAttributes(attr), via.ErrInvalidState)
	want(t, "destroy in state error", x.Destroy(), via.ErrResource)
	want(t, "disconnect in state error", x.Disconnect(), 0)
	want(t, "destroy with a descriptor", x.Destroy(), via.ErrResource)
	flushed(t, x.ReceiveDone, 1)
	if got := x.State(); got != via.Idle {
		t.Fatalf("state %v", got)
	}
	post(t, x.PostSend(a.at(0, 8)))
	flushed(t, x.SendDone, 1)
	post(t, x.PostReceive(a.at(0, 8)))
	if d, err := x.ReceiveDone(); d != nil || !errors.Is(err, via.ErrNotDone) {
		t.Errorf("%v, %v", d, err)
	}
	want(t, "destroy with a receive", x.Destroy(), via.ErrResource)
	want(t, "disconnect when idle", x.Disconnect(), 0)
	flushed(t, x.ReceiveDone, 1)
	want(t, "destroy", x.Destroy(), 0)
	for what, err := range map[string]error{
		"destroy": x.Destroy(), "disconnect": x.Disconnect(), "set attributes": x.SetAttributes(attr),
		"post a SEND": x.PostSend(a.at(0, 8)), "post a receive": x.PostReceive(a.at(0, 8)),
	} {
		want(t, what+" when destroyed", err, via.ErrInvalidParameter)
	}
	_, err = x.Query()
	want(t, "query when destroyed", err, via.ErrInvalidParameter)
	_, err = x.SendDone()
	want(t, "poll when destroyed", err, via.ErrInvalidParameter)
	_, err = x.ReceiveWait(ctx)
	want(t, "wait when destroyed", err, via.ErrInvalidParameter)
	_, err = x.Connect(ctx, via.Address{}, l.Address())
	want(t, "connect when destroyed", err, via.ErrInvalidParameter)
	b.silent(t)
}

func TestNameService(t *testing.T) {
	a, b := start(t, ways[2])
	host, err := a.HostByName("n2", 0)
	if err != nil || host != b.Attributes().Address || host == a.Attributes().Address {
		t.Errorf("%v, %v", host, err)
	}
	own, err := a.HostByName("", 0)
	if err != nil || own != a.Attributes().Address {
		t.Errorf("%v, %v", own, err)
	}
	if name, err := a.HostByAddress(host); err != nil || name != "n2" {
		t.Errorf("%q, %v", name, err)
	}
	_, err = a.HostByName("n2", 1)
	want(t, "a second address", err, via.ErrNameService)
	_, err = a.HostByName("n2", -1)
	want(t, "address -1", err, via.ErrInvalidParameter)
	_, err = a.HostByName("n3", 0)
	want(t, "no such name", err, via.ErrNameService)
	_, err = a.HostByAddress(via.HostAddress{1})
	want(t, "no such address", err, via.ErrNameService)
}

func TestConnect(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		a, b := start(t, w)
		ctx := within(t)
		y := b.vi(t, via.ReliableDelivery)
		local := via.Address{Host: b.Attributes().Address, Discriminator: "me"}
		remote := via.Address{Host: a.Attributes().Address, Discriminator: "you"}
		try := func(what string, remote via.Address, code via.Code) {
			t.Helper()
			_, err := y.Connect(ctx, local, remote)
			want(t, what, err, code)
			if got := y.State(); got != via.Idle {
				t.Fatalf("%s: state %v", what, got)
			}
		}
		try("nothing waits", remote, via.ErrNoMatch)
		l := a.listen(t, "you")
		_, err := a.Listen(ctx, "you")
		want(t, "a second listener", err, via.ErrResource)
		_, err = a.Listen(ctx, "0123456789abcdef0123456789abcdef0")
		want(t, "a long discriminator", err, via.ErrInvalidParameter)
		for _, d := range []string{"yo", "you\x00", "", "YOU"} {
			try(fmt.Sprintf("discriminator %q", d), via.Address{Host: remote.Host, Discriminator: d}, via.ErrNoMatch)
		}
		try("a long discriminator", via.Address{Host: remote.Host, Discriminator: "0123456789abcdef0123456789abcdef0"},
			via.ErrInvalidParameter)
		try("no such host", via.Address{Host: via.HostAddress{7}, Discriminator: "you"}, via.ErrNotReachable)
		_, err = y.Connect(nil, local, remote) //nolint:staticcheck // what is tested
		want(t, "no context", err, via.ErrInvalidParameter)
		soon, stop := context.WithCancel(ctx)
		stop()
		_, err = y.Connect(soon, local, remote)
		want(t, "a context that has ended", err, via.ErrTimeout)
		_, err = l.Wait(soon)
		want(t, "wait with a context that has ended", err, via.ErrTimeout)

		// answers runs Connect, and f with the request.
		answers := func(f func(r *via.Request)) (via.VIAttributes, error) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				r, err := l.Wait(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				f(r)
			}()
			attr, err := y.Connect(ctx, local, remote)
			<-done
			return attr, err
		}
		_, err = answers(func(r *via.Request) {
			want(t, "reject", r.Reject(), 0)
			want(t, "reject again", r.Reject(), via.ErrInvalidParameter)
			want(t, "accept what was rejected", r.Accept(a.vi(t, via.ReliableDelivery)), via.ErrInvalidParameter)
		})
		want(t, "rejected", err, via.ErrReject)
		x := a.vi(t, via.ReliableDelivery)
		attr, err := answers(func(r *via.Request) {
			if r.Remote != local || r.Local != remote {
				t.Errorf("a request of %v for %v", r.Remote, r.Local)
			}
			if r.Attributes.Level != via.ReliableDelivery || r.Attributes.MaxTransferSize != 1<<20 {
				t.Errorf("%+v", r.Attributes)
			}
			small := a.attr(via.ReliableDelivery)
			small.MaxTransferSize = 100
			vi, err := a.NewVI(small, nil, nil)
			want(t, "a VI", err, 0)
			want(t, "another size", r.Accept(vi), via.ErrInvalidMTU)
			want(t, "another level", r.Accept(a.vi(t, via.Unreliable)), via.ErrInvalidLevel)
			want(t, "no VI", r.Accept(nil), via.ErrInvalidParameter)
			want(t, "another NIC's VI", r.Accept(b.vi(t, via.ReliableDelivery)), via.ErrInvalidParameter)
			want(t, "accept", r.Accept(x), 0)
			want(t, "accept again", r.Accept(a.vi(t, via.ReliableDelivery)), via.ErrInvalidParameter)
		})
		want(t, "connect", err, 0)
		if attr.Level != via.ReliableDelivery || attr.MaxTransferSize != 1<<20 {
			t.Errorf("%+v", attr)
		}
		for vi, addr := range map[*via.VI][2]via.Address{x: {remote, local}, y: {local, remote}} {
			s, err := vi.Query()
			if err != nil || s.State != via.Connected || s.Local != addr[0] || s.Remote != addr[1] {
				t.Errorf("%+v, %v", s, err)
			}
		}
		z := b.vi(t, via.ReliableDelivery)
		ended := make(chan error, 1)
		go func() {
			_, err := z.Connect(ctx, local, remote)
			ended <- err
		}()
		r, err := l.Wait(ctx)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "accept by a VI that is connected", r.Accept(x), via.ErrInvalidState)
		want(t, "reject", r.Reject(), 0)
		want(t, "rejected", <-ended, via.ErrReject)
		want(t, "close", l.Close(), 0)
		want(t, "close again", l.Close(), 0)
		_, err = l.Wait(ctx)
		want(t, "wait", err, via.ErrInvalidParameter)
		_, err = z.Connect(ctx, local, remote)
		want(t, "nothing waits any more", err, via.ErrNoMatch)
		a.silent(t)
		b.silent(t)
	})
}

// A request that is given up is not accepted, or the VI that has accepted it finds out.
func TestRequestGivenUp(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		a, b := start(t, w)
		ctx := within(t)
		l := a.listen(t, "test")
		y := b.vi(t, via.Unreliable)
		soon, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			_, err := y.Connect(soon, via.Address{}, l.Address())
			ended <- err
		}()
		r, err := l.Wait(ctx)
		if err != nil {
			t.Fatal(err)
		}
		stop()
		want(t, "given up", <-ended, via.ErrTimeout)
		x := a.vi(t, via.Unreliable)
		if err := r.Accept(x); err == nil {
			a.told(t, via.ConnectionLost)
			want(t, "disconnect", x.Disconnect(), 0)
		} else {
			want(t, "accept", err, via.ErrTimeout)
		}
		connect(t, l, x, y)
		a.silent(t)
		b.silent(t)
	})
}

func TestManyRequests(t *testing.T) {
	a, b := start(t, ways[0])
	ctx := within(t)
	l := a.listen(t, "test")
	const n = 100
	var wg sync.WaitGroup
	for range n {
		y := b.vi(t, via.ReliableDelivery)
		wg.Go(func() {
			_, err := y.Connect(ctx, via.Address{}, l.Address())
			want(t, "connect", err, 0)
		})
	}
	for range n {
		r, err := l.Wait(ctx)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "accept", r.Accept(a.vi(t, via.ReliableDelivery)), 0)
	}
	wg.Wait()
	if a.Links() != 1 || b.Links() != 1 {
		t.Errorf("%d and %d links of two NICs", a.Links(), b.Links())
	}
}

// VIs of one process are connected as those of two are.
func TestOwnProcess(t *testing.T) {
	p := vmmctest.Nodes(t, 1)[0].Open(t)
	a, b := openIn(t, p, ways[0]), openIn(t, p, ways[0])
	for _, other := range []*device{a, b} {
		l := a.listen(t, "test")
		x, y := a.vi(t, via.ReliableReception), other.vi(t, via.ReliableReception)
		connect(t, l, x, y)
		copy(other.mem.Bytes()[100:], "hello")
		post(t, x.PostReceive(a.at(0, 5)))
		post(t, y.PostSend(other.at(100, 5)))
		sent(t, y, 0)
		received(t, x, 0)
		if got := string(a.mem.Bytes()[:5]); got != "hello" {
			t.Errorf("%q", got)
		}
		want(t, "close", l.Close(), 0)
	}
}

// fill writes bytes that differ from piece to piece.
func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = seed + byte(i*7) + byte(i>>8)
	}
}

func TestData(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		a, b := start(t, w)
		for _, level := range levels {
			t.Run(fmt.Sprint(level), func(t *testing.T) {
				x, y := couple(t, a, b, level)
				sizes := []int{0, 1, 3, 63, 64, 65, 4096, 32<<10 - 1, 32 << 10, 32<<10 + 1, 300000, 1 << 20}
				for i, n := range sizes {
					src := b.mem.Bytes()[13 : 13+n]
					fill(src, byte(i))
					clear(a.mem.Bytes()[:n+100])
					post(t, x.PostReceive(a.at(51, n)))
					d := b.at(13, n)
					if i%2 == 0 {
						d.Control, d.ImmediateData = via.Immediate, uint32(i)+1
					}
					post(t, y.PostSend(d))
					if got := sent(t, y, 0); got != d || d.Length != n {
						t.Fatalf("%d bytes: length %d", n, d.Length)
					}
					status := via.Status(0)
					if i%2 == 0 {
						status = via.ImmediateArrived
					}
					r := received(t, x, status)
					if r.Length != n || i%2 == 0 && r.ImmediateData != uint32(i)+1 {
						t.Fatalf("%d bytes: length %d, immediate data %d", n, r.Length, r.ImmediateData)
					}
					got := a.mem.Bytes()
					if !bytes.Equal(got[51:51+n], src) || got[50] != 0 || got[51+n] != 0 {
						t.Fatalf("%d bytes differ", n)
					}
				}
				a.silent(t)
				b.silent(t)
			})
		}
	})
}

func TestSegments(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		a, b, x, y := joined(t, w, via.ReliableDelivery)
		most := a.Attributes().MaxSegments
		fill(b.mem.Bytes()[:200000], 3)
		// Segments of 1, 2, ... bytes, from the end to the beginning; received in others.
		var s, r via.Descriptor
		var sum []byte
		for i := range most {
			from := 100000 - 300*i
			s.Segments = append(s.Segments, b.mem.Segment(from, i))
			sum = append(sum, b.mem.Bytes()[from:from+i]...)
		}
		at := 0
		for i := range most {
			r.Segments = append(r.Segments, a.mem.Segment(at, most-i))
			at += most - i + 1
		}
		post(t, x.PostReceive(&r))
		post(t, y.PostSend(&s))
		sent(t, y, 0)
		received(t, x, 0)
		var got []byte
		for _, g := range r.Segments {
			got = append(got, g.Data...)
		}
		if r.Length != len(sum) || !bytes.Equal(got[:r.Length], sum) {
			t.Fatalf("%d bytes of %d, or others", r.Length, len(sum))
		}
		s.Segments = append(s.Segments, b.mem.Segment(0, 1))
		post(t, y.PostSend(&s))
		sent(t, y, via.FormatError)
		b.told(t, via.ConnectionLost)
		a.told(t, via.ConnectionLost)
	})
}

// 10,000 messages keep their order, though sender and receiver run out of descriptors and room.
func TestOrder(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		a, b := start(t, w)
		for _, level := range levels[1:] {
			t.Run(fmt.Sprint(level), func(t *testing.T) {
				x, y := couple(t, a, b, level)
				ctx := within(t)
				const n, depth, size = 10000, 32, 600
				for i := range depth {
					post(t, x.PostReceive(a.at(i*size, size)))
				}
				credit := make(chan struct{}, n)
				for range depth {
					credit <- struct{}{}
				}
				var wg sync.WaitGroup
				defer wg.Wait()
				wg.Go(func() {
					for i := range uint32(n) {
						<-credit
						d := b.at(int(i%depth)*size, 4+int(i)%(size-4))
						binary.LittleEndian.PutUint32(d.Segments[0].Data, i)
						if err := y.PostSend(d); err != nil {
							t.Error(err)
							return
						}
						if d, err := y.SendWait(ctx); err != nil {
							t.Error(d, err)
							return
						}
					}
				})
				for i := range uint32(n) {
					d := received(t, x, 0)
					got := binary.LittleEndian.Uint32(d.Segments[0].Data)
					if got != i || d.Length != 4+int(i)%(size-4) {
						t.Fatalf("message %d of %d bytes, want %d", got, d.Length, i)
					}
					post(t, x.PostReceive(d))
					credit <- struct{}{}
				}
			})
		}
	})
}

// More is posted than the ring has room for, both ways at once.
func TestBacklog(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		a, b, x, y := joined(t, w, via.ReliableReception)
		const n, size = 30, 100 << 10
		for i := range n {
			post(t, x.PostReceive(a.at(2<<20+i%8*size, size)))
			post(t, y.PostReceive(b.at(2<<20+i%8*size, size)))
		}
		for i := range n {
			post(t, x.PostSend(a.at(i%8*size, size)))
			post(t, y.PostSend(b.at(i%8*size, size)))
		}
		for range n {
			sent(t, x, 0)
			sent(t, y, 0)
			received(t, x, 0)
			received(t, y, 0)
		}
	})
}

// A message for which no receive is posted.
func TestNoReceive(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		a, b := start(t, w)
		for _, level := range levels {
			t.Run(fmt.Sprint(level), func(t *testing.T) {
				x, y := couple(t, a, b, level)
				post(t, y.PostSend(b.at(0, 100<<10)))
				if e := a.told(t, via.ReceiveEmpty); e.VI != x {
					t.Error("of another VI")
				}
				if level == via.Unreliable {
					sent(t, y, 0)
					post(t, x.PostReceive(a.at(0, 8)))
					post(t, y.PostSend(b.at(0, 8)))
					received(t, x, 0)
					sent(t, y, 0)
					return
				}
				a.told(t, via.ConnectionLost)
				b.told(t, via.ConnectionLost)
				if level == via.ReliableReception {
					sent(t, y, via.RemoteError)
				}
				if x.State() != via.Failed || y.State() != via.Failed {
					t.Errorf("states %v and %v", x.State(), y.State())
				}
			})
		}
	})
}

// A descriptor that is in error: what it is, and what becomes of the others.
func TestDescriptorErrors(t *testing.T) {
	other := func(t *testing.T, d *device) *via.Memory {
		tag, err := d.NewTag()
		if err != nil {
			t.Fatal(err)
		}
		m, err := d.Register(make([]byte, 4096), via.MemoryAttributes{Tag: tag})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	piece := func(t *testing.T, d *device) *via.Memory {
		m, err := d.Register(d.mem.Bytes()[100:200], via.MemoryAttributes{Tag: d.tag})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	gone := func(t *testing.T, d *device) *via.Memory {
		m := piece(t, d)
		if err := m.Deregister(); err != nil {
			t.Fatal(err)
		}
		return m
	}
	a, b := start(t, ways[0])
	for _, c := range []struct {
		name       string
		descriptor func(t *testing.T, d *device) *via.Descriptor
		send, recv via.Status
	}{
		{"reserved bits", func(_ *testing.T, d *device) *via.Descriptor {
			return &via.Descriptor{Control: 0x10, Segments: d.at(0, 8).Segments}
		}, via.FormatError, via.FormatError},
		{"operation 3", func(_ *testing.T, d *device) *via.Descriptor {
			return &via.Descriptor{Control: 3, Segments: d.at(0, 8).Segments}
		}, via.FormatError, via.FormatError},
		{"no region", func(_ *testing.T, d *device) *via.Descriptor {
			return &via.Descriptor{Segments: []via.Segment{{Data: d.mem.Bytes()[:8]}}}
		}, via.ProtectionError, via.ProtectionError},
		{"a region that is gone", func(t *testing.T, d *device) *via.Descriptor {
			return &via.Descriptor{Segments: []via.Segment{gone(t, d).Segment(0, 8)}}
		}, via.ProtectionError, via.ProtectionError},
		{"another tag", func(t *testing.T, d *device) *via.Descriptor {
			return &via.Descriptor{Segments: []via.Segment{other(t, d).Segment(0, 8)}}
		}, via.ProtectionError, via.ProtectionError},
		{"other memory", func(_ *testing.T, d *device) *via.Descriptor {
			return &via.Descriptor{Segments: []via.Segment{{Data: make([]byte, 8), Handle: d.mem.Handle()}}}
		}, via.ProtectionError, via.ProtectionError},
		{"a byte before a region", func(t *testing.T, d *device) *via.Descriptor {
			m := piece(t, d)
			return &via.Descriptor{Segments: []via.Segment{{Data: d.mem.Bytes()[99:107], Handle: m.Handle()}}}
		}, via.ProtectionError, via.ProtectionError},
		{"a byte behind a region", func(t *testing.T, d *device) *via.Descriptor {
			m := piece(t, d)
			return &via.Descriptor{Segments: []via.Segment{{Data: d.mem.Bytes()[193:201], Handle: m.Handle()}}}
		}, via.ProtectionError, via.ProtectionError},
		{"a region's bounds", func(t *testing.T, d *device) *via.Descriptor {
			m := piece(t, d)
			return &via.Descriptor{Segments: []via.Segment{m.Segment(0, 4), m.Segment(96, 4)}}
		}, 0, 0},
		{"too long or too short", func(_ *testing.T, d *device) *via.Descriptor {
			return d.at(0, 1<<20+1)
		}, via.LengthError, 0},
		{"a receive that is too small", func(_ *testing.T, d *device) *via.Descriptor {
			return d.at(0, 7)
		}, 0, via.LengthError},
	} {
		for _, level := range levels {
			t.Run(fmt.Sprint(c.name, "/", level), func(t *testing.T) {
				x, y := couple(t, a, b, level)
				broken := func() {
					t.Helper()
					if level == via.Unreliable {
						return
					}
					a.told(t, via.ConnectionLost)
					b.told(t, via.ConnectionLost)
					want(t, "disconnect", x.Disconnect(), 0)
					want(t, "disconnect", y.Disconnect(), 0)
					for _, done := range []func() (*via.Descriptor, error){
						x.SendDone, x.ReceiveDone, y.SendDone, y.ReceiveDone,
					} {
						for d, _ := done(); d != nil; d, _ = done() {
						}
					}
					x, y = couple(t, a, b, level)
				}
				// As a SEND.
				post(t, x.PostReceive(a.at(0, 8)))
				post(t, y.PostSend(c.descriptor(t, b)))
				sent(t, y, c.send)
				switch {
				case c.send == 0:
					received(t, x, 0)
				case level == via.Unreliable: // the receive is still there
					post(t, y.PostSend(b.at(0, 8)))
					received(t, x, 0)
					sent(t, y, 0)
				default:
					broken()
				}
				// As a receive.
				post(t, x.PostReceive(c.descriptor(t, a)))
				if c.recv == via.FormatError {
					received(t, x, via.FormatError)
					broken()
					return
				}
				post(t, y.PostSend(b.at(0, 8)))
				received(t, x, c.recv)
				if c.recv == 0 {
					sent(t, y, 0)
					return
				}
				broken()
			})
		}
	}
}

// Memory is deregistered while SENDs from it and receives into it are under way.
func TestDeregisterUnderWay(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		a, b := start(t, w)
		for _, level := range levels {
			x, y := couple(t, a, b, level)
			from, err := b.Register(make([]byte, 1<<20), via.MemoryAttributes{Tag: b.tag})
			if err != nil {
				t.Fatal(err)
			}
			const n = 10
			for range n {
				post(t, x.PostReceive(a.at(0, 1<<20)))
				post(t, y.PostSend(&via.Descriptor{Segments: []via.Segment{from.Segment(0, 1<<20)}}))
			}
			want(t, "deregister", from.Deregister(), 0)
			want(t, "disconnect", y.Disconnect(), 0)
			a.told(t, via.ConnectionLost) // because of the SENDs, or of the end
			failed := 0
			for range n {
				d, err := y.SendDone()
				if d == nil {
					t.Fatal(err)
				}
				if d.Err() != nil {
					failed++
				}
			}
			if failed == 0 {
				t.Error("all has left at once: the test is of no use")
			}
			want(t, "disconnect", x.Disconnect(), 0)
			for range n {
				if d, err := x.ReceiveDone(); d == nil {
					t.Fatal(err)
				}
			}
			for len(b.errs) > 0 {
				<-b.errs
			}
		}
	})
}

func TestPostErrors(t *testing.T) {
	a, _, x, _ := joined(t, ways[0], via.ReliableDelivery)
	want(t, "nil", x.PostReceive(nil), via.ErrInvalidParameter)
	want(t, "nil", x.PostSend(nil), via.ErrInvalidParameter)
	a.silent(t)
	d := a.at(0, 8)
	post(t, x.PostReceive(d))
	want(t, "posted twice", x.PostReceive(d), via.ErrInvalidParameter)
	if e := a.told(t, via.PostDescriptor); e.Descriptor != d || e.VI != x {
		t.Errorf("%+v", e)
	}
	for range a.Attributes().MaxDescriptors - 1 {
		post(t, x.PostReceive(a.at(0, 8)))
	}
	d = a.at(0, 8)
	want(t, "one too many", x.PostReceive(d), via.ErrResource)
	if e := a.told(t, via.Overrun); e.Descriptor != d || e.VI != x {
		t.Errorf("%+v", e)
	}
	if x.State() != via.Connected {
		t.Errorf("state %v", x.State())
	}
}

// The other end goes away: both queues are flushed, the program is told, and the VI can be connected
// again.
func TestRemoteEnd(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		nodes := vmmctest.Nodes(t, w.nodes)
		for _, level := range levels {
			for what, end := range map[string]func(b *device, y *via.VI) error{
				"disconnect":  func(_ *device, y *via.VI) error { return y.Disconnect() },
				"close NIC":   func(b *device, _ *via.VI) error { return b.Close() },
				"end process": func(b *device, _ *via.VI) error { return b.p.Close() },
			} {
				t.Run(fmt.Sprint(level, "/", what), func(t *testing.T) {
					a, b := openOn(t, nodes[0], w), openOn(t, nodes[w.nodes-1], w)
					x, y := a.vi(t, level), b.vi(t, level)
					l := a.listen(t, "test")
					connect(t, l, x, y)
					for range 5 {
						post(t, x.PostReceive(a.at(0, 8)))
					}
					waits := make(chan error, 1)
					go func() {
						_, err := x.ReceiveWait(within(t))
						waits <- err
					}()
					if err := end(b, y); err != nil {
						t.Fatal(err)
					}
					if e := a.told(t, via.ConnectionLost); e.VI != x {
						t.Error("of another VI")
					}
					want(t, "a wait", <-waits, via.ErrDescriptor)
					flushed(t, x.ReceiveDone, 4)
					if got := x.State(); got != via.Failed {
						t.Errorf("state %v", got)
					}
					want(t, "disconnect", x.Disconnect(), 0)
					c := openOn(t, nodes[w.nodes-1], w)
					z := c.vi(t, level)
					connect(t, l, x, z)
					post(t, x.PostReceive(a.at(0, 8)))
					post(t, z.PostSend(c.at(0, 8)))
					sent(t, z, 0)
					received(t, x, 0)
				})
			}
		}
	})
}

// A program that polls all the time finds out, too.
func TestRemoteEndWhilePolling(t *testing.T) {
	a, b, x, _ := joined(t, ways[0], via.ReliableDelivery)
	post(t, x.PostReceive(a.at(0, 8)))
	closed := make(chan error, 1)
	go func() { closed <- b.p.Close() }()
	for ctx := within(t); ; {
		d, err := x.ReceiveDone()
		if d != nil {
			checked(t, d, err, via.OpReceive|via.Flushed)
			break
		}
		if ctx.Err() != nil {
			t.Fatal("the receive is not flushed")
		}
	}
	a.told(t, via.ConnectionLost)
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// A node that is cut off ends the connection within the time that links promise.
func TestNodeCutOff(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	a := openIn(t, nodes[0].Open(t, vmmc.WithResume(0)), ways[2])
	b := openIn(t, nodes[1].Open(t, vmmc.WithResume(0)), ways[2])
	x, y := a.vi(t, via.ReliableReception), b.vi(t, via.ReliableReception)
	connect(t, a.listen(t, "test"), x, y)
	post(t, x.PostReceive(a.at(0, 8)))
	nodes[0].Cut()
	post(t, y.PostSend(b.at(0, 8)))
	a.told(t, via.ConnectionLost)
	b.told(t, via.ConnectionLost)
	flushed(t, y.SendDone, 1)
	flushed(t, x.ReceiveDone, 1)
}

func TestCompletionQueue(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		a, b := start(t, w)
		ctx := within(t)
		for _, n := range []int{0, -1} {
			_, err := a.NewCompletionQueue(n)
			want(t, "entries", err, via.ErrInvalidParameter)
		}
		_, err := a.NewCompletionQueue(a.Attributes().MaxCompletionEntries + 1)
		want(t, "entries", err, via.ErrResource)
		cq, err := a.NewCompletionQueue(4)
		if err != nil {
			t.Fatal(err)
		}
		l := a.listen(t, "test")
		const n = 10
		var xs, ys []*via.VI
		for range n { // one queue for SENDs and receives of all
			x, err := a.NewVI(a.attr(via.ReliableDelivery), cq, cq)
			if err != nil {
				t.Fatal(err)
			}
			y := b.vi(t, via.ReliableDelivery)
			connect(t, l, x, y)
			post(t, x.PostReceive(a.at(0, 8)))
			xs, ys = append(xs, x), append(ys, y)
		}
		if _, err := cq.Done(); !errors.Is(err, via.ErrNotDone) {
			t.Error(err)
		}
		soon, stop := context.WithCancel(ctx)
		stop()
		_, err = cq.Wait(soon)
		want(t, "wait", err, via.ErrTimeout)
		_, err = cq.Wait(nil) //nolint:staticcheck // what is tested
		want(t, "wait without a context", err, via.ErrInvalidParameter)
		_, err = xs[0].ReceiveWait(ctx)
		want(t, "wait for a queue that has a completion queue", err, via.ErrInvalidParameter)
		want(t, "destroy with VIs", cq.Destroy(), via.ErrResource)
		want(t, "resize", cq.Resize(2*n), 0)
		for i, k := range []int{3, 1, 4, 0, 5, 9, 2, 6, 8, 7} {
			post(t, ys[k].PostSend(b.at(0, 8)))
			if i%2 == 1 {
				post(t, xs[k].PostSend(a.at(0, 8))) // its peer has no receive: but it has left
			}
			c, err := cq.Wait(ctx)
			if err == nil && !c.Receive {
				c, err = cq.Wait(ctx)
			}
			if err != nil || c.VI != xs[k] || !c.Receive {
				t.Fatalf("%+v, %v", c, err)
			}
			if d, err := c.VI.ReceiveDone(); d == nil || err != nil {
				t.Fatalf("%v, %v", d, err)
			}
		}
		a.tolds(t, b)
		for _, x := range xs {
			want(t, "disconnect", x.Disconnect(), 0)
			for d, _ := x.SendDone(); d != nil; d, _ = x.SendDone() {
			}
			for d, _ := x.ReceiveDone(); d != nil; d, _ = x.ReceiveDone() {
			}
			want(t, "destroy", x.Destroy(), 0)
		}
		if c, err := cq.Done(); !errors.Is(err, via.ErrNotDone) {
			t.Errorf("%+v, %v: an entry of a VI that is destroyed", c, err)
		}
		want(t, "destroy", cq.Destroy(), 0)
		_, err = cq.Done()
		want(t, "poll", err, via.ErrInvalidParameter)
		_, err = cq.Wait(ctx)
		want(t, "wait", err, via.ErrInvalidParameter)
		want(t, "resize", cq.Resize(1), via.ErrInvalidParameter)
	})
}

// tolds waits until the VIs whose peers have no receives have failed, on both sides.
func (d *device) tolds(t *testing.T, other *device) {
	t.Helper()
	for n := 0; n < 5; {
		if e := <-d.errs; e.Code == via.ConnectionLost {
			n++
		}
	}
	for n := 0; n < 5; {
		if e := <-other.errs; e.Code == via.ConnectionLost {
			n++
		}
	}
}

func TestResizeKeepsEntries(t *testing.T) {
	a, _ := start(t, ways[0])
	cq, err := a.NewCompletionQueue(3)
	if err != nil {
		t.Fatal(err)
	}
	var vis []*via.VI
	for range 5 {
		vi, err := a.NewVI(a.attr(via.Unreliable), cq, nil)
		if err != nil {
			t.Fatal(err)
		}
		vis = append(vis, vi)
	}
	next := func(vi *via.VI) {
		t.Helper()
		if c, err := cq.Done(); err != nil || c.VI != vi || c.Receive {
			t.Fatalf("%+v, %v", c, err)
		}
	}
	post(t, vis[0].PostSend(a.at(0, 1))) // flushed: it is idle
	next(vis[0])
	for _, vi := range vis[1:4] {
		post(t, vi.PostSend(a.at(0, 1)))
	}
	want(t, "too small", cq.Resize(2), via.ErrResource)
	want(t, "larger", cq.Resize(4), 0)
	post(t, vis[4].PostSend(a.at(0, 1)))
	a.silent(t)
	post(t, vis[0].PostSend(a.at(0, 1)))
	if e := a.told(t, via.Catastrophic); e.CQ != cq || e.VI != vis[0] {
		t.Errorf("%+v", e)
	}
	for _, vi := range vis[1:] {
		next(vi)
	}
	flushed(t, vis[0].SendDone, 2)
}

// Calls that wait return when what they wait for is closed.
func TestCloseEndsWaits(t *testing.T) {
	a, b, x, y := joined(t, ways[0], via.ReliableDelivery)
	ctx := within(t)
	l := a.listen(t, "other")
	cq, err := a.NewCompletionQueue(3)
	if err != nil {
		t.Fatal(err)
	}
	post(t, x.PostReceive(a.at(0, 8)))
	z := b.vi(t, via.ReliableDelivery)
	z2, z3 := a.vi(t, via.ReliableDelivery), b.vi(t, via.ReliableDelivery)
	l3 := b.listen(t, "third")
	var wg sync.WaitGroup
	begun := make(chan struct{}, 8)
	waits := func(what string, codes []via.Code, f func() error) {
		wg.Go(func() {
			begun <- struct{}{}
			err := f()
			for _, c := range codes {
				if errors.Is(err, c) {
					return
				}
			}
			t.Errorf("%s: %v", what, err)
		})
		<-begun
	}
	closed := []via.Code{via.ErrInvalidParameter}
	waits("completion queue", closed, func() error { _, err := cq.Wait(ctx); return err })
	waits("listener", append(closed, 0), func() error {
		for {
			if _, err := l.Wait(ctx); err != nil {
				return err
			}
		}
	})
	waits("receive", []via.Code{via.ErrDescriptor, via.ErrInvalidParameter}, func() error {
		_, err := x.ReceiveWait(ctx)
		return err
	})
	waits("remote request", []via.Code{via.ErrNotReachable, via.ErrNoMatch}, func() error {
		_, err := z.Connect(ctx, via.Address{}, l.Address())
		return err
	})
	waits("own request", []via.Code{via.ErrNotReachable, via.ErrInvalidParameter}, func() error {
		_, err := z2.Connect(ctx, via.Address{}, l3.Address())
		return err
	})
	eventually(t, "the requests arrive", func() bool { return z.State() == via.ConnectPending && a.Links() > 0 })
	want(t, "close", a.Close(), 0)
	wg.Wait()
	_, _ = y, z3
	b.told(t, via.ConnectionLost)
}

// In a steady state descriptors cost no memory.
func TestAllocations(t *testing.T) {
	if race {
		t.Skip("the race detector allocates")
	}
	for _, level := range levels {
		a, b, x, y := joined(t, ways[0], level)
		s, r := b.at(0, 64), a.at(0, 64)
		ctx := within(t)
		// once is one message, which the receiver waits for.
		once := func() {
			if x.PostReceive(r) != nil || y.PostSend(s) != nil {
				t.Fatal("post")
			}
			if _, err := x.ReceiveWait(ctx); err != nil {
				t.Fatal(err)
			}
			if _, err := y.SendWait(ctx); err != nil {
				t.Fatal(err)
			}
		}
		for range 2000 {
			once()
		}
		if n := testing.AllocsPerRun(2000, once); n > 0 {
			t.Errorf("%v allocations for a message", n)
		}
	}
}

// An idle VI that is connected takes at most 32 KiB of this process's memory.
func TestIdleVI(t *testing.T) {
	const n = 500 // and as many at the other ends, in this process too
	a, b := start(t, ways[0])
	couple(t, a, b, via.ReliableDelivery) // the link is there
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	before := heap()
	for range n {
		couple(t, a, b, via.ReliableDelivery)
	}
	after := heap()
	each := (int64(after) - int64(before)) / (2 * n)
	t.Logf("%d bytes", each)
	if each > 32<<10 {
		t.Errorf("an idle VI takes %d bytes", each)
	}
	runtime.KeepAlive(a)
	runtime.KeepAlive(b)
}
