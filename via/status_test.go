package via_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// opener is a child with a NIC.
func opener(ctx context.Context, p *vmmc.Process, _ ...string) error {
	if _, err := via.Open(p, "nic0"); err != nil {
		return err
	}
	<-ctx.Done() // never: the test kills it
	return nil
}

// A NIC whose process is stopped is named in the error, and the others are listed. One whose process
// was killed is none.
func TestListBesideStopped(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	a, eye := openOn(t, node, ways[0]), node.Open(t)
	stopped, killed := vmmctest.Child(t, node, "nic"), vmmctest.Child(t, node, "nic")
	list := func() ([]via.NICStatus, error) { return via.ListNICs(within(t), eye, node.ID()) }
	eventually(t, "all NICs are listed", func() bool {
		all, err := list()
		return err == nil && len(all) == 3
	})
	stopped.Stop()
	killed.Kill()
	all, err := list()
	want(t, "list", err, via.ErrTimeout)
	if err != nil && (!strings.Contains(err.Error(), stopped.ID().String()) || strings.Contains(err.Error(), killed.ID().String())) {
		t.Errorf("the error names another one than the NIC of %v: %v", stopped.ID(), err)
	}
	if len(all) != 1 || all[0].Process != a.p.ID() {
		t.Errorf("listed are %+v", all)
	}
	stopped.Continue()
	all, err = list()
	want(t, "list again", err, 0)
	if len(all) != 2 {
		t.Errorf("then listed are %+v", all)
	}
}

// While a NIC changes what a slot says, readers see by its sequence that it is not whole.
func TestSlotSequence(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	a, eye := openOn(t, node, ways[0]), node.Open(t)
	a.nics(t, eye, 1)
	var im *vmmc.Import
	for info, err := range eye.Names(within(t), via.StatusName) {
		post(t, err)
		im, err = eye.Import(within(t), info.Process.Node, info.Process.PID, info.Buffer)
		post(t, err)
	}
	sequence := func() uint32 {
		var b [4]byte
		if err := im.Get(within(t), b[:], via.StatusHead); err != nil { // of the first slot
			t.Error(err)
		}
		return binary.NativeEndian.Uint32(b[:])
	}
	changes := 0
	steps.On(t, func(step string) {
		if step != "status.changed" {
			return
		}
		if changes++; sequence()&1 == 0 {
			t.Errorf("change %d: the sequence is even in the midst of it", changes)
		}
	})
	vi := a.vi(t, via.Unreliable)
	_, err := vi.Connect(within(t), via.Address{}, via.Address{})
	want(t, "connect", err, via.ErrNotReachable)
	post(t, vi.Destroy())
	steps.Off()
	if n := sequence(); n != uint32(2*changes) || changes != 4 {
		t.Errorf("the sequence is %d after %d changes", n, changes)
	}
	post(t, im.Close())
}

// watched is the addresses of a VI while it requests: VI number n has both of the same letter.
func watched(n int) via.Address {
	return via.Address{Discriminator: strings.Repeat(string(rune('a'+n%26)), 32)}
}

// watcher is a child: a file that ends it. It lists NICs, and prints how many rows it has seen and
// how many of them are torn.
func watcher(ctx context.Context, p *vmmc.Process, args ...string) error {
	rows, requests, torn := 0, 0, 0
	for {
		all, err := via.ListNICs(ctx, p, p.Node())
		if err != nil {
			return err
		}
		for _, s := range all {
			for _, v := range s.VIs {
				rows++
				want := via.VIReport{Number: v.Number, Level: via.Unreliable}
				if v.Number%2 == 0 {
					want.Level = via.ReliableDelivery
				}
				if v.State == via.ConnectPending {
					requests++
					want.State = v.State
					want.Local, want.Remote = watched(int(v.Number)), watched(int(v.Number))
				}
				if v != want {
					torn++
				}
			}
		}
		if _, err := os.Stat(args[0]); err == nil {
			fmt.Println(rows, requests, torn)
			return nil
		}
	}
}

// Another process never sees a row of which one part is older than another. VMMC_VIA is how long it
// looks, 2 s without it.
func TestTornRows(t *testing.T) {
	d := 2 * time.Second
	if s := os.Getenv("VMMC_VIA"); s != "" {
		var err error
		d, err = time.ParseDuration(s)
		post(t, err)
	}
	node := vmmctest.Nodes(t, 1)[0]
	a := openOn(t, node, ways[0])
	a.nics(t, node.Open(t), 1)
	stop := filepath.Join(t.TempDir(), "stop")
	child := vmmctest.Child(t, node, "watcher", stop)
	n := 0
	for start := time.Now(); time.Since(start) < d; {
		n++
		level := via.Unreliable
		if n%2 == 0 {
			level = via.ReliableDelivery
		}
		vi := a.vi(t, level)
		_, err := vi.Connect(context.Background(), watched(n), watched(n))
		want(t, "connect", err, via.ErrNotReachable)
		post(t, vi.Destroy())
	}
	post(t, os.WriteFile(stop, nil, 0o600))
	var rows, requests, torn int
	line := child.Line()
	if _, err := fmt.Sscan(line, &rows, &requests, &torn); err != nil {
		t.Fatalf("the watcher printed %q: %v", line, err)
	}
	post(t, child.Wait())
	if torn > 0 || requests == 0 {
		t.Errorf("of %d rows, %d of them of requests, %d are torn; %d VIs were made", rows, requests, torn, n)
	}
	t.Logf("%d VIs, %d rows, %d of them of requests", n, rows, requests)
}
