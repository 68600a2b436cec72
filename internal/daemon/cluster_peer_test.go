//go:build linux

package daemon_test

import (
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/nodeproto"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
	"github.com/vmmc-go/vmmc/proto/vmmc/node/v1/nodev1connect"
)

// bridge leads to a node. Once it is broken, the connections that are there end at
// the next thing that is said on them, as those to a machine that was started again.
type bridge struct {
	at   string
	past *atomic.Bool // of the connections that are there
	mu   sync.Mutex
}

func newBridge(t *testing.T, to string) *bridge {
	t.Helper()
	l, err := net.Listen("tcp", freePort(t))
	if err != nil {
		t.Fatal(err)
	}
	b := &bridge{at: l.Addr().String(), past: new(atomic.Bool)}
	var all sync.WaitGroup
	t.Cleanup(func() { l.Close(); all.Wait() })
	all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			b.mu.Lock()
			past := b.past
			b.mu.Unlock()
			all.Go(func() {
				defer near.Close()
				_, _ = io.Copy(struct{ io.Writer }{near}, far) // without the pipes that splice(2) would keep
			})
			all.Go(func() {
				defer far.Close()
				buf := make([]byte, 1<<16)
				for {
					n, err := near.Read(buf)
					if err != nil || past.Load() {
						return
					}
					if _, err := far.Write(buf[:n]); err != nil {
						return
					}
				}
			})
		}
	})
	return b
}

func (b *bridge) breaks() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.past.Store(true)
	b.past = new(atomic.Bool)
}

// A node that was started again is there, whatever became of the connection that
// was kept from before.
func TestKeptConnectionIsOver(t *testing.T) {
	ids, ann := userIdentity(t)
	c := clusterOf(t, ids)
	b := newBridge(t, c.b.Addr())
	hs := append(slices.Clone(c.hosts), c.hosts[0])
	hs[2].Name, hs[2].Control = "c", freePort(t)
	hs[2].Data = hs[2].Control
	hs[1].Control = b.at
	n := c.start(t, "c", hs)
	look := func() *nodev1.Host {
		r, err := asUser(t, n.Addr(), ann.ClientTLS("c")).Nodes(t.Context(),
			connect.NewRequest(&nodev1.NodesRequest{Look: nodev1.Look_LOOK_PING}))
		if err != nil {
			t.Fatal(err)
		}
		return r.Msg.GetHosts()[1]
	}
	p := newRaw(t, n, 1, nil)
	relay := func(path string) (nodeproto.ControlAnswer, error) {
		r := nodeproto.ControlRequest{
			Node: "b", Path: path, Headers: map[string]string{
				"Content-Type": "application/proto", "Connect-Protocol-Version": "1",
			},
		}
		a, _, err := nodeproto.Ask[nodeproto.ControlAnswer](t.Context(), p.Conn, nodeproto.Control, r,
			nil)
		return a, err
	}
	for round := range 3 {
		if h := look(); !h.GetReachable() {
			t.Fatalf("round %d: b is there, c says %v", round, h)
		}
		b.breaks()
	}
	if a, err := relay(nodev1connect.ClusterServiceNodesProcedure); err != nil ||
		a.Status != http.StatusOK {
		t.Errorf("what can be asked twice is answered with %d, %v", a.Status, err)
	}
}
