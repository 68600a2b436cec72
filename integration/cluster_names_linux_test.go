package integration

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// finds imports a name and reports whether it is an export of a process.
func finds(t *testing.T, p *vmmc.Process, name string, e *vmmc.Export, owner *vmmc.Process) {
	t.Helper()
	im, err := p.ImportName(patience(t), name)
	if err != nil {
		t.Fatalf("%q from %v: %v", name, p.ID(), err)
	}
	if im.Exporter() != owner.ID() || im.ID() != e.ID() || im.Name() != name {
		t.Errorf("%q from %v is buffer %d of %v", name, p.ID(), im.ID(), im.Exporter())
	}
	if err := im.Close(); err != nil {
		t.Error(err)
	}
}

// namesOf lists names and the nodes of their owners.
func namesOf(t *testing.T, p *vmmc.Process, pattern string) (all []string) {
	t.Helper()
	for n, err := range p.Names(patience(t), pattern) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s %d", n.Name, n.Process.PID))
	}
	return all
}

// A name of the cluster is found, taken and listed on every node, and nowhere else.
func TestClusterNames(t *testing.T) {
	for n := 1; n <= 5; n++ {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) { clusterNames(t, n) })
	}
}

// Lists on two nodes at once do not wait for each other.
func TestClusterListsAtOnce(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	ps := []*vmmc.Process{nodes[0].Open(t), nodes[1].Open(t)}
	if _, err := ps[0].Publish(patience(t), "/queue", make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	want := []string{fmt.Sprintf("/queue %d", ps[0].ID().PID)}
	var all sync.WaitGroup
	for _, p := range ps {
		all.Go(func() {
			for range 100 {
				var got []string
				for n, err := range p.Names(patience(t), "/*") {
					if err != nil {
						t.Error(err)
						return
					}
					got = append(got, fmt.Sprintf("%s %d", n.Name, n.Process.PID))
				}
				if !slices.Equal(got, want) {
					t.Errorf("%q", got)
					return
				}
			}
		})
	}
	all.Wait()
}

func clusterNames(t *testing.T, n int) {
	nodes := vmmctest.Nodes(t, n)
	var ps []*vmmc.Process
	for _, node := range nodes {
		ps = append(ps, node.Open(t))
	}
	other := nodes[0].Open(t, vmmc.WithSession("other"))
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ps[n-1].Publish(patience(t), "/open", make([]byte, 4), vmmc.Permit(vmmc.Permission{
		Sessions: []string{"other"},
	})); err != nil {
		t.Fatal(err)
	}
	open, err := other.ImportName(patience(t), "/open", vmmc.OwnedBy(me.Username, ""))
	if err != nil || open.Exporter() != ps[n-1].ID() {
		t.Errorf("a name that another session permits: %v", err)
	}
	var want []string
	for i, owner := range ps {
		name := fmt.Sprint("/queue", i)
		want = append(want, fmt.Sprintf("%s %d", name, owner.ID().PID))
		waiting := make(chan *vmmc.Import)
		far := ps[(i+1)%n]
		go func() {
			im, err := far.ImportName(patience(t), name)
			if err != nil {
				t.Errorf("an import that waits: %v", err)
			}
			waiting <- im
		}()
		e, err := owner.Publish(patience(t), name, make([]byte, 64))
		if err != nil {
			t.Fatalf("publish %s on node %d: %v", name, i, err)
		}
		if im := <-waiting; im != nil && im.Exporter() != owner.ID() {
			t.Errorf("an import that waited: of %v", im.Exporter())
		}
		for _, p := range ps {
			finds(t, p, name, e, owner)
			if p == owner {
				continue
			}
			_, err := p.Publish(patience(t), name, make([]byte, 64))
			var f *vmmc.Error
			if !errors.Is(err, vmmc.ErrNameTaken) || !errors.As(err, &f) || f.Peer != owner.ID().String() {
				t.Errorf("a second claim of %s: %v", name, err)
			}
		}
		if _, err := other.Publish(patience(t), name, make([]byte, 64)); err != nil {
			t.Errorf("the name in another session: %v", err)
		}
		for _, theirs := range []string{name, "/none"} {
			if _, err := other.ImportName(patience(t), theirs, vmmc.OwnedBy(me.Username, "")); !errors.Is(err, vmmc.ErrNoRights) {
				t.Errorf("%s of another session: %v", theirs, err)
			}
		}
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if _, err := far.ImportName(ctx, strings.TrimPrefix(name, "/")); !errors.Is(err, vmmc.ErrTimeout) {
			t.Errorf("the name of the cluster as one of the node: %v", err)
		}
		stop()
	}
	for _, p := range ps {
		if got := namesOf(t, p, "/queue*"); !slices.Equal(got, want) {
			t.Errorf("%v lists %q, want %q", p.ID(), got, want)
		}
		if got := namesOf(t, p, "*"); len(got) > 0 {
			t.Errorf("%v lists %q as names of its node", p.ID(), got)
		}
	}
	// A name ends with its process, and is another one's at once.
	last := ps[n-1]
	name := fmt.Sprint("/queue", n-1)
	im, err := ps[0].ImportName(patience(t), name)
	if err != nil {
		t.Fatal(err)
	}
	if n > 1 {
		if err := last.Close(); err != nil {
			t.Fatal(err)
		}
		e, err := ps[0].Publish(patience(t), name, make([]byte, 64))
		if err != nil {
			t.Fatalf("a name whose owner has left: %v", err)
		}
		for _, p := range ps[:n-1] {
			finds(t, p, name, e, ps[0])
		}
		again, err := im.Rejoin(patience(t))
		if err != nil || again.Exporter() != ps[0].ID() {
			t.Errorf("Rejoin: %v", err)
		}
		if err := e.Unpublish(patience(t), name); err != nil {
			t.Error(err)
		}
		if got := namesOf(t, ps[0], name); len(got) > 0 {
			t.Errorf("%q is listed after Unpublish", got)
		}
	}
}

// The members of a set are imported in turn, from whatever node.
func TestClusterSet(t *testing.T) {
	nodes := vmmctest.Nodes(t, 3)
	var ps []*vmmc.Process
	owners := map[vmmc.ProcessID]int{}
	for _, node := range nodes {
		p := node.Open(t)
		m, err := p.Alloc(4096)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Export(7, m.Bytes(), vmmc.WithName("/set", vmmc.InSet())); err != nil {
			t.Fatal(err)
		}
		owners[p.ID()] = 0
		ps = append(ps, p)
	}
	if _, err := ps[0].Publish(patience(t), "/set", make([]byte, 4)); !errors.Is(err, vmmc.ErrNameTaken) {
		t.Errorf("a claim outside of the set: %v", err)
	}
	for i := range 9 {
		im, err := ps[i%3].ImportName(patience(t), "/set")
		if err != nil {
			t.Fatal(err)
		}
		owners[im.Exporter()]++
	}
	for id, n := range owners {
		if n != 3 {
			t.Errorf("%v had %d turns of 9", id, n)
		}
	}
	if err := ps[2].Close(); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		im, err := ps[i%2].ImportName(patience(t), "/set")
		if err != nil || im.Exporter() == ps[2].ID() {
			t.Errorf("a set whose member has left: %v", err)
		}
	}
}

// Two sessions of one user have names of the cluster of their own: neither sees those of the other
// one, nor takes them.
func TestClusterNamesOfSessions(t *testing.T) {
	nodes := vmmctest.Nodes(t, 3)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	one, two := nodes[0].Open(t, vmmc.WithSession("one")), nodes[1].Open(t, vmmc.WithSession("two"))
	outside := nodes[2].Open(t)
	ps := []*vmmc.Process{one, two, outside}
	exports := map[*vmmc.Process]*vmmc.Export{}
	for _, p := range ps {
		if exports[p], err = p.Publish(patience(t), "/queue", make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := one.Publish(patience(t), "/one", make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	for i, p := range ps {
		finds(t, p, "/queue", exports[p], p)
		want := []string{fmt.Sprintf("/queue %d", p.ID().PID)}
		if p == one {
			want = append([]string{fmt.Sprintf("/one %d", p.ID().PID)}, want...)
		}
		if got := namesOf(t, p, "/*"); !slices.Equal(got, want) {
			t.Errorf("%v lists %q, want %q", p.ID(), got, want)
		}
		other, session := ps[(i+1)%3], []string{"one", "two", ""}[(i+1)%3]
		_, taken := p.ImportName(patience(t), "/queue", vmmc.OwnedBy(me.Username, session))
		_, none := p.ImportName(patience(t), "/other", vmmc.OwnedBy(me.Username, session))
		if !errors.Is(taken, vmmc.ErrNoRights) || !errors.Is(none, vmmc.ErrNoRights) ||
			strings.ReplaceAll(taken.Error(), "/queue", "/other") != none.Error() {
			t.Errorf("a name of %v, and one that is not there: %v, and %v", other.ID(), taken, none)
		}
	}
}

// With one of a name's three directory nodes cut off names go on; with two no claim is made, and the
// error names the nodes.
func TestClusterNamesOfFewerNodes(t *testing.T) {
	nodes := vmmctest.Nodes(t, 3)
	a, b := nodes[0].Open(t), nodes[1].Open(t)
	c := nodes[2].Open(t)
	first, err := a.Publish(patience(t), "/first", make([]byte, 4)) // each node hears from the others
	if err != nil {
		t.Fatal(err)
	}
	finds(t, c, "/first", first, a)
	for i := range 16 { // so that each node was asked, and has heard from the others
		if _, err := a.Publish(patience(t), fmt.Sprint("/warm", i), make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
	}
	nodes[2].Cut()
	for i := range 4 {
		name := fmt.Sprint("/two", i)
		e, err := a.Publish(patience(t), name, make([]byte, 4))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		finds(t, b, name, e, a)
		finds(t, b, "/first", first, a)
	}
	_, err = c.Publish(patience(t), "/two0", make([]byte, 4))
	if !errors.Is(err, vmmc.ErrUnreachable) || !strings.Contains(err.Error(), `node "n1"`) ||
		!strings.Contains(err.Error(), `node "n2"`) {
		t.Errorf("a claim of a node that is cut off: %v", err)
	}
	nodes[2].Heal()
	for i := range 4 {
		name := fmt.Sprint("/two", i)
		if _, err := c.Publish(patience(t), name, make([]byte, 4)); !errors.Is(err, vmmc.ErrNameTaken) {
			t.Errorf("a second owner of %s: %v", name, err)
		}
		im, err := c.ImportName(patience(t), name)
		if err != nil || im.Exporter() != a.ID() {
			t.Errorf("%s of a node that was cut off: %v", name, err)
		}
	}
}
