//go:build linux

package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/hosts"
)

// A node is taken out of the others' hosts files, a name of its process is given to another one,
// and the node comes back. One of the two loses the name and is told by an event that names the
// owner. All nodes find that owner, and so does the error of another claim.
func TestNameOfANodeThatComesBack(t *testing.T) {
	for n := 2; n <= 4; n++ {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) { nameOfANodeThatComesBack(t, n) })
	}
}

func nameOfANodeThatComesBack(t *testing.T, n int) {
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	names := []string{"a", "b", "c", "d"}[:n]
	ids, err := cert.Ephemeral("test", names...)
	if err != nil {
		t.Fatal(err)
	}
	var all []hosts.Host
	for _, name := range names {
		addr := freePort(t)
		all = append(all, hosts.Host{Name: name, Control: addr, Data: addr})
	}
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	list := func(name string, hs []hosts.Host) {
		t.Helper()
		if err := os.WriteFile(file(name), []byte(hosts.Format(hs)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	nodes := make([]*daemon.Node, n)
	ps := make([]*vmmc.Process, n)
	lost := make(chan vmmc.Event, 100)
	for i, h := range all {
		list(h.Name, all)
		nodes[i] = startNode(t, daemon.Config{
			Name: h.Name, Socket: anonymous(), Hosts: all, HostsFile: file(h.Name), Identity: ids[h.Name],
		})
		ps[i] = open(t, nodes[i])
		defer ps[i].Subscribe(func(ev vmmc.Event) {
			if ev.Kind == vmmc.NameLost {
				lost <- ev
			}
		})()
	}
	away := n - 1
	const count = 8 // each node is a directory node of some
	claim := func(by int) {
		t.Helper()
		for i := range count {
			if _, err := ps[by].Publish(ctx, fmt.Sprint("/q", i), make([]byte, 4)); err != nil {
				t.Fatalf("process of node %s: %v", names[by], err)
			}
		}
	}
	claim(away)
	for i := range away {
		list(names[i], all[:away])
		nodes[i].Reload()
	}
	claim(0)
	for i := range away {
		list(names[i], all)
		nodes[i].Reload()
	}
	owner := map[string]vmmc.ProcessID{}
	for len(owner) < count {
		select {
		case ev := <-lost:
			if _, again := owner[ev.Name]; again || ev.Export == nil || !errors.Is(ev.Err, vmmc.ErrNameTaken) {
				t.Errorf("the event is %+v", ev)
			}
			owner[ev.Name] = ev.Peer
		case <-ctx.Done():
			t.Fatalf("of %d names with two owners %d were lost: %v", count, len(owner), owner)
		}
	}
	for name, id := range owner {
		if id != ps[0].ID() && id != ps[away].ID() {
			t.Errorf("%s is lost to %v", name, id)
		}
		for i, p := range ps {
			im, err := p.ImportName(ctx, name)
			if err != nil || im.Exporter() != id {
				t.Fatalf("node %s finds %s at %v, want %v: %v", names[i], name, im, id, err)
			}
			if p.ID() == id {
				continue
			}
			var f *vmmc.Error
			if _, err := p.Publish(ctx, name, make([]byte, 4)); !errors.As(err, &f) || f.Peer != id.String() {
				t.Errorf("a claim on node %s of %s, which %v has: %v", names[i], name, id, err)
			}
		}
	}
	if len(lost) > 0 {
		t.Errorf("a name is lost twice: %+v", <-lost)
	}
}
