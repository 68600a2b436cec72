package via_test

import (
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/via"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// lateRequest is how late a dead client's request arrives: its listener is closed by then.
const lateRequest = 50 * time.Millisecond

var deathWays = []way{ways[0], ways[2]}

// A client that is killed at any step of its requests, SENDs and disconnect leaves a VI that can be
// used again, with each receive completed once, as done or flushed.
func TestClientKilled(t *testing.T) {
	for _, w := range deathWays {
		nodes := vmmctest.Nodes(t, w.nodes)
		a := openOn(t, nodes[0], w)
		for _, s := range []struct{ step, nth string }{
			{"dial.exported", "1"},
			{"dial.requested", "1"},
			{"dial.answered", "1"},
			{"connect.requested", "1"},
			{"send.sent", "1"},
			{"send.sent", "20"},
			{"sleep", "2"},
			{"disconnect.told", "1"},
		} {
			t.Run(w.name+"/"+s.step+"/"+s.nth, func(t *testing.T) {
				l := a.listen(t, "test")
				x := a.vi(t, via.ReliableReception)
				const n = 64
				for i := range n {
					post(t, x.PostReceive(a.at(i*(48<<10), 48<<10)))
				}
				answered := make(chan struct{})
				go func() { // until the listener is closed: a request may come or not
					defer close(answered)
					for {
						r, err := l.Wait(within(t))
						if err != nil || r.Accept(x) == nil {
							return
						}
					}
				}()
				c := vmmctest.Child(t, nodes[w.nodes-1], "client", s.step, s.nth)
				if got := c.Line(); got != s.step {
					t.Fatalf("%q", got)
				}
				if s.step == "connect.requested" && w.nodes > 1 {
					nodes[0].Delay(lateRequest, nodes[1])
					defer nodes[0].Heal(nodes[1])
				}
				c.Kill()
				want(t, "close", l.Close(), 0)
				<-answered
				if x.State() != via.Idle {
					a.told(t, via.ConnectionLost)
				}
				want(t, "disconnect", x.Disconnect(), 0)
				done := 0
				for range n {
					d, err := x.ReceiveDone()
					switch {
					case d == nil:
						t.Fatalf("%d receives, %v", done, err)
					case d.Err() == nil && d.Length != 48<<10:
						t.Errorf("%d bytes", d.Length)
					case d.Err() != nil && d.Status&via.ErrorMask != via.Flushed:
						t.Errorf("status %#x", d.Status)
					}
					done++
				}
				flushed(t, x.ReceiveDone, 0)
				b := openOn(t, nodes[w.nodes-1], w)
				l = a.listen(t, "again") // a late request of the dead client asks for "test"
				y := b.vi(t, via.ReliableReception)
				connect(t, l, x, y)
				want(t, "close", l.Close(), 0)
				post(t, x.PostReceive(a.at(0, 8)))
				post(t, y.PostSend(b.at(0, 8)))
				sent(t, y, 0)
				received(t, x, 0)
				want(t, "disconnect", x.Disconnect(), 0)
				a.silent(t)
			})
		}
	}
}

// A server that is killed at any step: requests and SENDs end, and the VI can be used again.
func TestServerKilled(t *testing.T) {
	for _, w := range deathWays {
		nodes := vmmctest.Nodes(t, w.nodes)
		b := openOn(t, nodes[w.nodes-1], w)
		host, err := b.HostByName("n1", 0)
		if err != nil {
			t.Fatal(err)
		}
		remote := via.Address{Host: host, Discriminator: "test"}
		for _, s := range []struct{ step, nth string }{
			{"accept.imported", "1"},
			{"accept.exported", "1"},
			{"accept.answered", "1"},
			{"accept.connected", "1"},
			{"link.take", "3"},
			{"receive.copied", "1"},
			{"receive.copied", "7"},
		} {
			t.Run(w.name+"/"+s.step+"/"+s.nth, func(t *testing.T) {
				c := vmmctest.Child(t, nodes[0], "server", s.step, s.nth)
				if got := c.Line(); got != "listens" {
					t.Fatalf("%q", got)
				}
				y := b.vi(t, via.ReliableReception)
				connected := make(chan error, 1)
				go func() {
					_, err := y.Connect(within(t), via.Address{}, remote)
					for range 10 {
						if err == nil {
							err = y.PostSend(b.at(0, 60<<10))
						}
					}
					connected <- err
				}()
				if got := c.Line(); got != s.step {
					t.Fatalf("%q", got)
				}
				c.Kill()
				if err := <-connected; err != nil {
					if y.State() != via.Idle {
						t.Errorf("%v, state %v", err, y.State())
					}
				} else {
					b.told(t, via.ConnectionLost)
					want(t, "disconnect", y.Disconnect(), 0)
				}
				for d, err := y.SendDone(); d != nil; d, err = y.SendDone() {
					if err != nil && d.Status&via.ErrorMask != via.Flushed {
						t.Errorf("status %#x", d.Status)
					}
				}
				_, err := y.Connect(within(t), via.Address{}, remote)
				want(t, "the dead server", err, via.ErrNoMatch)
				b.silent(t)
			})
		}
	}
}

// A request outlasts a server that is stopped for a while: it ends with its context only.
func TestServerStopped(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	b := openOn(t, node, ways[0])
	c := vmmctest.Child(t, node, "server", "", "1")
	if got := c.Line(); got != "listens" {
		t.Fatalf("%q", got)
	}
	c.Stop()
	unanswered := make(chan struct{}, 64)
	steps.On(t, func(step string) {
		if step == "connect.stale" {
			unanswered <- struct{}{}
		}
	})
	y := b.vi(t, via.ReliableReception)
	connected := make(chan error, 1)
	go func() {
		_, err := y.Connect(within(t), via.Address{}, via.Address{Host: b.Attributes().Address, Discriminator: "test"})
		connected <- err
	}()
	select {
	case <-unanswered:
	case err := <-connected:
		t.Fatalf("connect to a server that is stopped: %v", err)
	}
	c.Continue()
	want(t, "connect to a server that goes on", <-connected, 0)
	c.Kill()
	b.told(t, via.ConnectionLost)
}
