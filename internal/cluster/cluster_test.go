package cluster

import (
	"path/filepath"
	"testing"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/hosts"
)

func TestPrepare(t *testing.T) {
	l, err := Prepare(t.TempDir(), 3)
	if err != nil {
		t.Fatal(err)
	}
	hs, err := hosts.ReadFile(filepath.Join(l.Dir, HostsFile))
	if err != nil || len(hs) != 3 {
		t.Fatalf("%v, %v", hs, err)
	}
	seen := map[string]bool{}
	for i, n := range l.Nodes {
		id, err := cert.Load(n.Certs)
		if err != nil {
			t.Fatal(err)
		}
		if id.Name != n.Name || hs[i].Name != n.Name {
			t.Errorf("node %d is %q, its certificate %q, its line %q", i, n.Name, id.Name, hs[i].Name)
		}
		if seen[hs[i].Control] {
			t.Errorf("two nodes at %s", hs[i].Control)
		}
		seen[hs[i].Control] = true
	}
	l.Unlisted()
	if l.Nodes[0].Socket == l.Nodes[1].Socket {
		t.Error("two nodes with one socket")
	}
}

// A caller that asks for one address after another may listen only when it has all.
func TestAddressesDifferFromThoseBefore(t *testing.T) {
	seen := map[string]bool{}
	for range 2000 {
		as, err := FreeAddresses(1)
		if err != nil {
			t.Fatal(err)
		}
		if seen[as[0]] {
			t.Fatalf("%s twice", as[0])
		}
		seen[as[0]] = true
	}
}
