//go:build linux

package daemon

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
)

// Of exporters that have ended nothing is kept with a process that imported from them and goes on.
func TestNothingIsKeptOfExportersThatHaveEnded(t *testing.T) {
	n, err := Start(Config{Name: "a", Socket: "@vmmc-test-" + rand.Text()})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	open := func() *vmmc.Process {
		t.Helper()
		p, err := vmmc.Open(t.Context(), vmmc.WithSocket(n.Socket()))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := open()
	defer p.Close()
	kept := func() int {
		q, err := n.registry.lookup(uint32(p.PID()))
		if err != nil {
			t.Fatal(err)
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.grantors)
	}
	for range 3 {
		e := open()
		if _, err := e.Export(1, make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Import(t.Context(), e.Node(), e.PID(), 1); err != nil {
			t.Fatal(err)
		}
		if kept() == 0 {
			t.Error("the exporter that admitted a process is not known")
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(20 * time.Second); kept() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d exporters that have ended are kept", kept())
		}
	}
}
