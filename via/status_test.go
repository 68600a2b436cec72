package via_test

import (
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/via"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// nics lists the NICs of a device's node that its process has opened, as another process sees them,
// when there are n.
func (d *device) nics(t testing.TB, p *vmmc.Process, n int) (of []via.NICStatus) {
	t.Helper()
	eventually(t, "the NICs are listed", func() bool {
		all, err := via.ListNICs(within(t), p, d.p.Node())
		if err != nil {
			t.Fatal(err)
		}
		of = of[:0]
		for _, s := range all {
			if s.Process == d.p.ID() {
				of = append(of, s)
			}
		}
		return len(of) == n
	})
	return of
}

// Another process sees NICs, their VIs, the states, queues and what was sent.
func TestStatus(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		nodes := vmmctest.Nodes(t, w.nodes)
		a, b := openOn(t, nodes[0], w), openOn(t, nodes[w.nodes-1], w)
		eye := nodes[0].Open(t)
		if s := a.nics(t, eye, 1)[0]; s.Device != "nic0" || len(s.VIs) != 0 {
			t.Fatalf("a NIC without VIs: %+v", s)
		}
		idle := a.vi(t, via.Unreliable)
		x, y := couple(t, a, b, via.ReliableReception)
		for range 3 {
			post(t, x.PostReceive(a.at(0, 100)))
		}
		for _, n := range []int{100, 60} {
			post(t, y.PostSend(b.at(0, n)))
			sent(t, y, via.OpSend)
		}
		received(t, x, 0)
		vis := a.nics(t, eye, 1)[0].VIs
		if len(vis) != 2 || vis[0].State != via.Idle || vis[0].Level != via.Unreliable || vis[1].Number <= vis[0].Number {
			t.Fatalf("VIs: %+v", vis)
		}
		q, err := x.Query()
		post(t, err)
		got := vis[1]
		if got.PeerNode != nodes[w.nodes-1].Name() {
			t.Errorf("the peer's node is %q, want %q", got.PeerNode, nodes[w.nodes-1].Name())
		}
		got.PeerNode = ""
		if want := (via.VIReport{
			Number: got.Number, State: via.Connected, Level: via.ReliableReception, Local: q.Local, Remote: q.Remote,
			Peer: b.p.ID().PID, ReceivePending: 1, ReceiveCompleted: 1, Received: 2, ReceivedBytes: 160,
		}); got != want {
			t.Errorf("the receiver:\n%+v, want\n%+v", got, want)
		}
		if s := b.nics(t, eye, 1)[0].VIs[0]; s.Sent != 2 || s.SentBytes != 160 || s.SendPending+s.SendCompleted != 0 {
			t.Errorf("the sender: %+v", s)
		}

		post(t, y.Disconnect())
		eventually(t, "the receiver is in error", func() bool { return x.State() == via.Failed })
		flushed := a.nics(t, eye, 1)[0].VIs[1]
		if flushed.State != via.Failed || flushed.Errors != 1 || flushed.ReceiveCompleted != 2 || flushed.Peer != 0 {
			t.Errorf("after the end of the connection: %+v", flushed)
		}
		post(t, idle.Destroy())
		if vis := a.nics(t, eye, 1)[0].VIs; len(vis) != 1 || vis[0].Number != got.Number {
			t.Errorf("after a VI was destroyed: %+v", vis)
		}
		again := a.vi(t, via.Unreliable)
		if vis := a.nics(t, eye, 1)[0].VIs; len(vis) != 2 || vis[1].Number <= got.Number || vis[1].Errors != 0 {
			t.Errorf("a VI in the slot of another one: %+v", vis)
		}
		post(t, again.Destroy())
		post(t, a.Close())
		a.nics(t, eye, 0)
	})
}

// A table cannot be written by those that read it, and a buffer that is none is told as one.
func TestStatusOfNoNIC(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	a, eye := openOn(t, node, ways[0]), node.Open(t)
	a.nics(t, eye, 1)
	for info, err := range eye.Names(within(t), via.StatusName) {
		post(t, err)
		im, err := eye.Import(within(t), info.Process.Node, info.Process.PID, info.Buffer)
		post(t, err)
		if err := im.Send(within(t), make([]byte, 4), 0); err == nil {
			t.Error("another process writes a NIC's table")
		}
		post(t, im.Close())
	}
	mem, err := a.p.Alloc(4096)
	post(t, err)
	e, err := a.p.Export(7, mem.Bytes())
	post(t, err)
	_, err = via.ReadStatus(within(t), eye, a.p.ID(), e.ID())
	want(t, "a buffer that is no table", err, via.ErrNoMatch)
}
