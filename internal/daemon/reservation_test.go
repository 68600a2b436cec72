package daemon

import (
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/names"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// However often a process that a name is kept for begins to come back and goes, the daemon awaits
// its end once.
func TestReservationOfOneThatComesAndGoes(t *testing.T) {
	cfg := Config{Name: "one", Socket: filepath.Join(t.TempDir(), "s")}
	n, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	dial := func() *nodeproto.Conn {
		s, err := nodeproto.Dial(t.Context(), cfg.Socket)
		if err != nil {
			t.Fatal(err)
		}
		return nodeproto.NewConn(s, nil)
	}
	first := dial()
	defer first.Close()
	w, _, err := nodeproto.Ask[nodeproto.Welcome](t.Context(), first, nodeproto.Register,
		nodeproto.Hello{Version: nodeproto.Version, Incarnation: 5}, nil)
	n.Close()
	if err != nil {
		t.Fatal(err)
	}
	if n, err = Start(cfg); err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	pid := w.Process.PID
	k := names.Key{Scope: names.Scope{User: "u"}, Name: "member"}
	if err := n.names.Reserve(k, nodeproto.ProcessID{Node: "one", PID: pid}); err != nil {
		t.Fatal(err)
	}
	eventually := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("never: ", what)
			}
		}
	}
	waits := func() int {
		b := make([]byte, 16<<20)
		return strings.Count(string(b[:runtime.Stack(b, true)]), ".(*Node).awaitEnd(")
	}
	comeBack := func() *nodeproto.Conn {
		c := dial()
		eventually("it comes back", func() bool {
			_, err := c.Call(t.Context(), nodeproto.Rejoin,
				nodeproto.RejoinRequest{Version: nodeproto.Version, Process: w.Process, Pass: w.Pass}, nil, nil)
			if err != nil && !errors.Is(err, code.InProgress) {
				t.Fatal(err)
			}
			return err == nil
		})
		return c
	}
	for range 20 {
		c := comeBack()
		c.Close()
		<-c.Done()
		eventually("it has gone", func() bool {
			n.registry.mu.Lock()
			defer n.registry.mu.Unlock()
			return n.registry.processes[pid] == nil
		})
	}
	eventually("its end is awaited once", func() bool { return waits() == 1 })
	c := comeBack()
	defer c.Close()
	if _, err := c.Call(t.Context(), nodeproto.Again, nodeproto.AgainRequest{Last: true}, nil, nil); err != nil {
		t.Fatal(err)
	}
	eventually("nothing is awaited", func() bool { return waits() == 0 })
	if !n.names.IsReserved(pid) {
		t.Error("it is there, and its name is not kept for it")
	}
}
