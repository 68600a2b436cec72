package via_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/via"
	"github.com/vmmc-go/vmmc/vmmctest"
)

func (d *device) addr(discriminator string) via.Address {
	return via.Address{Host: d.Attributes().Address, Discriminator: discriminator}
}

// peered waits until two VIs with opposite requests are connected, and checks what both know.
func peered(t testing.TB, x, y *via.VI, local, remote via.Address) {
	t.Helper()
	for i, vi := range []*via.VI{x, y} {
		attr, err := vi.ConnectPeerWait(within(t))
		if err != nil {
			t.Fatalf("side %d: %v", i, err)
		}
		st, err := vi.Query()
		if err != nil || st.State != via.Connected {
			t.Fatalf("side %d: %+v, %v", i, st, err)
		}
		if attr.Level != st.Attributes.Level || attr.MaxTransferSize != st.Attributes.MaxTransferSize {
			t.Errorf("side %d: the other one's attributes are %+v", i, attr)
		}
		if st.Local != local || st.Remote != remote {
			t.Errorf("side %d: addresses %v and %v", i, st.Local, st.Remote)
		}
		local, remote = remote, local
		_, err = vi.ConnectPeerDone()
		want(t, "an outcome that was taken", err, via.ErrInvalidState)
	}
}

// exchange sends a message each way.
func exchange(t testing.TB, a, b *device, x, y *via.VI) {
	t.Helper()
	post(t, x.PostReceive(a.at(0, 64)))
	post(t, y.PostReceive(b.at(0, 64)))
	post(t, x.PostSend(a.at(64, 8)))
	post(t, y.PostSend(b.at(64, 8)))
	for _, vi := range []*via.VI{x, y} {
		sent(t, vi, 0)
		received(t, vi, 0)
	}
}

// Either side is the first, or both request at once; the addresses have either order, or are equal.
func TestPeers(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		a, b := start(t, w)
		for i, discs := range [][2]string{{"p1", "p2"}, {"q2", "q1"}, {"same", "same"}} {
			la, lb := a.addr(discs[0]), b.addr(discs[1])
			for first := range 3 {
				t.Run(fmt.Sprint(i, "/", first), func(t *testing.T) {
					x, y := a.vi(t, levels[first]), b.vi(t, levels[first])
					ctx := within(t)
					request := func(vi *via.VI, local, remote via.Address) {
						want(t, "request", vi.ConnectPeer(ctx, local, remote), 0)
						if s := vi.State(); s != via.ConnectPending && s != via.Connected {
							t.Errorf("state %v", s)
						}
					}
					switch first {
					case 0:
						request(x, la, lb)
						_, err := x.ConnectPeerDone()
						want(t, "alone", err, via.ErrNotDone)
						want(t, "disconnect meanwhile", x.Disconnect(), via.ErrInvalidState)
						want(t, "a second request", x.ConnectPeer(ctx, la, lb), via.ErrInvalidState)
						soon, stop := context.WithTimeout(ctx, 20*time.Millisecond)
						_, err = x.ConnectPeerWait(soon)
						stop()
						want(t, "a wait that is given up", err, via.ErrTimeout)
						request(y, lb, la)
					case 1:
						request(y, lb, la)
						time.Sleep(20 * time.Millisecond)
						request(x, la, lb)
					default:
						done := make(chan struct{})
						go func() {
							defer close(done)
							request(y, lb, la)
						}()
						request(x, la, lb)
						<-done
					}
					peered(t, x, y, la, lb)
					exchange(t, a, b, x, y)
					want(t, "disconnect", x.Disconnect(), 0)
					b.told(t, via.ConnectionLost)
					want(t, "disconnect", y.Disconnect(), 0)
				})
			}
		}
		a.silent(t)
	})
}

// Many requests cross, in one program with requests to a listener.
func TestPeersCrossing(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		const n = 24
		a, b := start(t, w)
		l := a.listen(t, "c1")
		x, y := a.vi(t, via.ReliableDelivery), b.vi(t, via.ReliableDelivery)
		ctx := within(t)
		var xs, ys [n]*via.VI
		for i := range n {
			xs[i], ys[i] = a.vi(t, via.ReliableDelivery), b.vi(t, via.ReliableDelivery)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range n { // each side has one address for all others, as ranks do
				want(t, "request", ys[n-1-i].ConnectPeer(ctx, b.addr("rank"), a.addr(fmt.Sprint("c", n-1-i))), 0)
			}
		}()
		for i := range n {
			want(t, "request", xs[i].ConnectPeer(ctx, a.addr(fmt.Sprint("c", i)), b.addr("rank")), 0)
		}
		<-done
		connect(t, l, x, y)
		for i := range n {
			peered(t, xs[i], ys[i], a.addr(fmt.Sprint("c", i)), b.addr("rank"))
		}
		exchange(t, a, b, x, y)
		for i := range n {
			exchange(t, a, b, xs[i], ys[i])
		}
	})
}

// Two VIs of one process, and of one NIC.
func TestPeersOfOneProcess(t *testing.T) {
	p := vmmctest.Nodes(t, 1)[0].Open(t)
	a, b := openIn(t, p, ways[0]), openIn(t, p, ways[0])
	for _, other := range []*device{a, b} {
		for _, discs := range [][2]string{{"one", "two"}, {"same", "same"}} {
			x, y := a.vi(t, via.ReliableReception), other.vi(t, via.ReliableReception)
			la, lb := a.addr(discs[0]), other.addr(discs[1])
			want(t, "request", x.ConnectPeer(within(t), la, lb), 0)
			want(t, "request", y.ConnectPeer(within(t), lb, la), 0)
			peered(t, x, y, la, lb)
			exchange(t, a, other, x, y)
		}
	}
}

// Two sides whose attributes differ are both told how, and may try again.
func TestPeersDiffer(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		a, b := start(t, w)
		la, lb := a.addr("a"), b.addr("b")
		x, y := a.vi(t, via.ReliableDelivery), b.vi(t, via.ReliableDelivery)
		good := b.attr(via.ReliableDelivery)
		level, mtu := good, good
		level.Level, mtu.MaxTransferSize = via.Unreliable, 4096
		for _, c := range []struct {
			attr via.VIAttributes
			code via.Code
		}{{level, via.ErrInvalidLevel}, {mtu, via.ErrInvalidMTU}} {
			want(t, "set", y.SetAttributes(c.attr), 0)
			want(t, "request", x.ConnectPeer(within(t), la, lb), 0)
			want(t, "request", y.ConnectPeer(within(t), lb, la), 0)
			for i, vi := range []*via.VI{x, y} {
				_, err := vi.ConnectPeerWait(within(t))
				want(t, fmt.Sprint("side ", i), err, c.code)
				if s := vi.State(); s != via.Idle {
					t.Errorf("side %d: state %v", i, s)
				}
			}
		}
		want(t, "set", y.SetAttributes(good), 0)
		want(t, "request", x.ConnectPeer(within(t), la, lb), 0)
		want(t, "request", y.ConnectPeer(within(t), lb, la), 0)
		peered(t, x, y, la, lb)
		exchange(t, a, b, x, y)
	})
}

// Of several VIs that request the same, a peer's request gets one that has its attributes.
func TestPeersOfSeveralLevels(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		asks, waits := start(t, w) // the lesser address asks
		own, remote := asks.addr("a"), waits.addr("b")
		if lessHost(remote.Host, own.Host) {
			asks, waits, own, remote = waits, asks, remote, own
		}
		var xs []*via.VI
		for _, level := range levels {
			x := waits.vi(t, level)
			want(t, "request", x.ConnectPeer(within(t), remote, own), 0)
			xs = append(xs, x)
		}
		for i := len(levels) - 1; i >= 0; i-- {
			y := asks.vi(t, levels[i])
			want(t, "request", y.ConnectPeer(within(t), own, remote), 0)
			peered(t, xs[i], y, remote, own)
			exchange(t, waits, asks, xs[i], y)
		}
	})
}

// A request that nothing answers ends with its context, and leaves no name.
func TestPeerTimeout(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		a, b := start(t, w)
		for _, discs := range [][2]string{{"a", "b"}, {"b", "a"}, {"same", "same"}} {
			x := a.vi(t, via.Unreliable)
			ctx, stop := context.WithTimeout(within(t), 30*time.Millisecond)
			want(t, "request", x.ConnectPeer(ctx, a.addr(discs[0]), b.addr(discs[1])), 0)
			_, err := x.ConnectPeerWait(within(t))
			want(t, "nothing answers", err, via.ErrTimeout)
			stop()
			if s := x.State(); s != via.Idle {
				t.Errorf("state %v", s)
			}
			want(t, "destroy", x.Destroy(), 0)
			_, err = x.ConnectPeerDone()
			want(t, "of a destroyed VI", err, via.ErrInvalidParameter)
		}
		eventually(t, "the names are gone", func() bool {
			for _, err := range a.p.Names(within(t), ".viap-*") {
				if err != nil {
					t.Fatal(err)
				}
				return false
			}
			return true
		})
	})
}

// Requests that cannot be.
func TestPeerArguments(t *testing.T) {
	a, b := start(t, ways[0])
	x := a.vi(t, via.Unreliable)
	ctx := within(t)
	la, lb := a.addr("a"), b.addr("b")
	_, err := x.ConnectPeerDone()
	want(t, "no request", err, via.ErrInvalidState)
	_, err = x.ConnectPeerWait(ctx)
	want(t, "no request", err, via.ErrInvalidState)
	want(t, "no context", x.ConnectPeer(nil, la, lb), via.ErrInvalidParameter) //nolint:staticcheck // on purpose
	_, err = x.ConnectPeerWait(nil)                                            //nolint:staticcheck // on purpose
	want(t, "no context", err, via.ErrInvalidParameter)
	want(t, "a long discriminator", x.ConnectPeer(ctx, la, a.addr(fmt.Sprintf("%33d", 0))), via.ErrInvalidParameter)
	want(t, "another node's address", x.ConnectPeer(ctx, via.Address{Discriminator: "a"}, lb), via.ErrInvalidParameter)
	ended, stop := context.WithCancel(ctx)
	stop()
	want(t, "an ended context", x.ConnectPeer(ended, la, lb), via.ErrTimeout)
	want(t, "request", x.ConnectPeer(ctx, la, via.Address{Discriminator: "z"}), 0)
	_, err = x.ConnectPeerWait(ctx)
	want(t, "no such node", err, via.ErrNotReachable)
	if s := x.State(); s != via.Idle {
		t.Errorf("state %v", s)
	}
	// A NIC that is closed ends requests.
	want(t, "request", x.ConnectPeer(ctx, la, lb), 0)
	ends := make(chan error, 1)
	go func() {
		_, err := x.ConnectPeerWait(ctx)
		ends <- err
	}()
	want(t, "close", a.Close(), 0)
	want(t, "a NIC that is closed", <-ends, via.ErrInvalidParameter)
}

// peer is a child: step, how often, its own discriminator and the one of node n1.
func peer(ctx context.Context, p *vmmc.Process, args ...string) error {
	n, _, vi, err := child(p, args)
	if err != nil {
		return err
	}
	host, err := n.HostByName("n1", 0)
	if err != nil {
		return err
	}
	local := via.Address{Host: n.Attributes().Address, Discriminator: args[2]}
	if err := vi.ConnectPeer(ctx, local, via.Address{Host: host, Discriminator: args[3]}); err != nil {
		return err
	}
	if _, err := vi.ConnectPeerWait(ctx); err != nil {
		return err
	}
	fmt.Println("connected")
	<-ctx.Done() // never: the test kills it
	return nil
}

// A peer that is killed at a step of its request leaves a VI that the next one is connected with: by
// the same request, or after it was told that the connection is lost.
func TestPeerKilled(t *testing.T) {
	for _, w := range deathWays {
		nodes := vmmctest.Nodes(t, w.nodes)
		a := openOn(t, nodes[0], w)
		for _, c := range []struct{ own, step string }{
			{"a", "dial.exported"},
			{"a", "dial.requested"},
			{"a", "dial.answered"},
			{"a", "connect.requested"},
			{"a", "connected"},
			{"z", "peer.published"},
			{"z", "accept.imported"},
			{"z", "accept.exported"},
			{"z", "peer.connected"},
			{"z", "connected"},
		} {
			// The child's address is the lesser one, or the greater one, also between nodes.
			if w.nodes > 1 && lessHost(hostOf(t, a, "n2"), hostOf(t, a, "n1")) != (c.own == "a") {
				continue
			}
			t.Run(w.name+"/"+c.own+"/"+c.step, func(t *testing.T) {
				x := a.vi(t, via.ReliableReception)
				remote := via.Address{Host: hostOf(t, a, fmt.Sprint("n", w.nodes)), Discriminator: c.own}
				request := func() { want(t, "request", x.ConnectPeer(within(t), a.addr("m"), remote), 0) }
				request()
				k := vmmctest.Child(t, nodes[w.nodes-1], "peer", c.step, "1", c.own, "m")
				if got := k.Line(); got != c.step {
					t.Fatalf("%q", got)
				}
				k.Kill()
				k = vmmctest.Child(t, nodes[w.nodes-1], "peer", "", "1", c.own, "m")
				if _, err := x.ConnectPeerWait(within(t)); err != nil {
					t.Fatal(err)
				}
				// The VI may have been connected with the first one.
				lost := time.After(bound)
				connected := make(chan string, 1)
				go func() { connected <- k.Line() }()
				for again := true; again; {
					select {
					case e := <-a.errs:
						if e.Code != via.ConnectionLost {
							t.Fatalf("asynchronous error %v", e.Code)
						}
						want(t, "disconnect", x.Disconnect(), 0)
						request()
						if _, err := x.ConnectPeerWait(within(t)); err != nil {
							t.Fatal(err)
						}
					case got := <-connected:
						if got != "connected" {
							t.Fatalf("%q", got)
						}
						again = false
					case <-lost:
						t.Fatal("the second peer is not connected")
					}
				}
				k.Kill()
				a.told(t, via.ConnectionLost)
				want(t, "disconnect", errorsOf(x.Disconnect(), x.Destroy()), 0)
			})
		}
	}
}

func hostOf(t testing.TB, a *device, name string) via.HostAddress {
	t.Helper()
	host, err := a.HostByName(name, 0)
	if err != nil {
		t.Fatal(err)
	}
	return host
}

func lessHost(a, b via.HostAddress) bool { return string(a[:]) < string(b[:]) }

// A process that requests in the name of another node, with other attributes, does not end the request
// for that node's VI.
func TestPeerOfAnotherNode(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	a, b := openOn(t, nodes[0], ways[0]), openOn(t, nodes[1], ways[0])
	liar := openOn(t, nodes[0], ways[0])
	ha, hb := a.addr("").Host, b.addr("").Host
	if bytes.Compare(ha[:], hb[:]) < 0 { // b is to ask
		a, b = b, a
		liar = openOn(t, nodes[1], ways[0])
	}
	la, lb := a.addr("a"), b.addr("b")
	x, y, z := a.vi(t, via.ReliableDelivery), b.vi(t, via.ReliableDelivery), liar.vi(t, via.Unreliable)
	liar.Pretend(lb.Host)
	want(t, "request", x.ConnectPeer(within(t), la, lb), 0)
	ctx, stop := context.WithCancel(within(t))
	want(t, "false request", z.ConnectPeer(ctx, lb, la), 0)
	eventually(t, "the false peer has a link", func() bool { return a.Links() > 0 })
	time.Sleep(100 * time.Millisecond) // some requests
	if _, err := x.ConnectPeerDone(); !errors.Is(err, via.ErrNotDone) {
		t.Fatalf("the request has ended: %v", err)
	}
	stop()
	_, err := z.ConnectPeerWait(within(t))
	want(t, "false request", err, via.ErrTimeout)
	want(t, "request", y.ConnectPeer(within(t), lb, la), 0)
	peered(t, x, y, la, lb)
	exchange(t, a, b, x, y)
}
