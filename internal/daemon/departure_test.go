package daemon

import (
	"path/filepath"
	"testing"

	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// A process whose connection is lost while its last announcement is taken has come back: it is not
// awaited a second time.
func TestLostBehindTheLastAnnouncement(t *testing.T) {
	cfg := Config{Name: "one", Socket: filepath.Join(t.TempDir(), "s")}
	dial := func() *nodeproto.Conn {
		s, err := nodeproto.Dial(t.Context(), cfg.Socket)
		if err != nil {
			t.Fatal(err)
		}
		c := nodeproto.NewConn(s, nil)
		t.Cleanup(func() {
			c.Close()
			<-c.Done()
		})
		return c
	}
	n, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w, _, err := nodeproto.Ask[nodeproto.Welcome](t.Context(), dial(), nodeproto.Register,
		nodeproto.Hello{Version: nodeproto.Version, Incarnation: 5}, nil)
	n.Close()
	if err != nil {
		t.Fatal(err)
	}

	if n, err = Start(cfg); err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	r := nodeproto.RejoinRequest{Version: nodeproto.Version, Process: w.Process, Pass: w.Pass}
	if _, err := dial().Call(t.Context(), nodeproto.Rejoin, r, nil, nil); err != nil {
		t.Fatal(err)
	}
	n.registry.mu.Lock()
	p := n.registry.processes[w.Process.PID]
	n.registry.mu.Unlock()
	p.lost()
	if _, err := p.takeBelongings(nodeproto.AgainRequest{Last: true}); err != nil {
		t.Error(err)
	}
	if n.registry.journal.IsAbsent(w.Process.PID) {
		t.Error("it is awaited")
	}
}
