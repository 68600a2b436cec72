//go:build linux

package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func init() { testutil.RegisterRole("names", namesRole) }

// namesRole becomes another user, publishes "x" and says what it finds of the names x, none, away
// and open of a user: socket, user, what the names begin with.
func namesRole() int {
	a := testutil.Args()
	ctx := context.Background()
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(otherUser),
		syscall.Setuid(otherUser)); err != nil {
		fmt.Println("setuid:", err)
		return 1
	}
	p, err := vmmc.Open(ctx, vmmc.WithSocket(a[0]))
	if err != nil {
		fmt.Println("open:", err)
		return 1
	}
	defer p.Close()
	e, err := p.Publish(ctx, a[2]+"x", make([]byte, 8))
	fmt.Println("publish:", err)
	for n, err := range p.Names(ctx, a[2]+"*") {
		fmt.Println("listed:", n.Name, n.Size, err)
	}
	im, err := p.ImportName(ctx, a[2]+"x")
	fmt.Println("own:", err == nil && im.ID() == e.ID() && im.Exporter() == p.ID())
	for _, name := range []string{"x", "none", "away", "open"} {
		im, err := p.ImportName(ctx, a[2]+name, vmmc.OwnedBy(a[1], ""))
		fmt.Println("his:", name, err == nil && im.Size() == 4, errors.Is(err, vmmc.ErrNoRights),
			strings.ReplaceAll(fmt.Sprint(err), `"`+a[2]+name+`"`, "NAME"))
	}
	return 0
}

// Another user neither sees a user's names nor can take them, and gets only what is permitted to
// it.
func TestNamesOfAnotherUser(t *testing.T) {
	dir := userDir(t)
	n := startNode(t, daemon.Config{Name: "one", Socket: filepath.Join(dir, "node.sock")})
	namesOfAnotherUser(t, open(t, n), n, "")
}

// The same of names of the cluster, whose owner is on another node than the other user. That a name
// is there is not told by its owner's being away either.
func TestClusterNamesOfAnotherUser(t *testing.T) {
	dir := userDir(t)
	ids, err := cert.Ephemeral("test", "a", "b", "c")
	if err != nil {
		t.Fatal(err)
	}
	var hs []hosts.Host
	for _, name := range []string{"a", "b", "c"} {
		addr := freePort(t)
		hs = append(hs, hosts.Host{Name: name, Control: addr, Data: addr})
	}
	nodes := map[string]*daemon.Node{}
	ps := map[string]*vmmc.Process{}
	for _, h := range hs {
		nodes[h.Name] = startNode(t, daemon.Config{
			Name: h.Name, Socket: filepath.Join(dir, h.Name), Hosts: hs, Identity: ids[h.Name],
		})
		ps[h.Name] = open(t, nodes[h.Name])
	}
	for i := range 20 { // so that each node knows what is registered with it
		for node, p := range ps {
			if _, err := p.Publish(t.Context(), fmt.Sprint("/", node, i), make([]byte, 4)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := ps["c"].Publish(t.Context(), "/away", make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	nodes["c"].Close()
	namesOfAnotherUser(t, ps["a"], nodes["b"], "/")
}

// userDir is a directory that other users may use; t.TempDir is closed to them.
func userDir(t *testing.T) string {
	t.Helper()
	testutil.Require(t, os.Getuid() == 0, "becoming another user needs root; run the tests as root")
	dir, err := os.MkdirTemp("", "vmmc-user")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// namesOfAnotherUser has p publish names, and another user look for them on a node.
func namesOfAnotherUser(t *testing.T, p *vmmc.Process, n *daemon.Node, prefix string) {
	t.Helper()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	x, err := p.Publish(t.Context(), prefix+"x", make([]byte, 4))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Publish(t.Context(), prefix+"open", make([]byte, 4), vmmc.Permit(vmmc.Permission{
		Users: []string{fmt.Sprint(otherUser)},
	})); err != nil {
		t.Fatal(err)
	}
	out, err := testutil.Command(t, "names", n.Socket(), me.Username, prefix).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var lines []string
	for line := range strings.Lines(string(out)) {
		if !strings.HasSuffix(line, "do not answer\n") { // a list of the cluster names the node
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	if len(lines) != 7 {
		t.Fatalf("the other user says %q", lines)
	}
	refusal := strings.TrimPrefix(lines[3], "his: x false true ")
	want := []string{
		"publish: <nil>", "listed: " + prefix + "x 8 <nil>", "own: true",
		"his: x false true " + refusal, "his: none false true " + refusal,
		"his: away false true " + refusal, "his: open true false <nil>",
	}
	for i := range want {
		if lines[i] != want[i] {
			t.Errorf("the other user says %q, want %q", lines[i], want[i])
		}
	}
	if im, err := p.ImportName(t.Context(), prefix+"x"); err != nil || im.ID() != x.ID() ||
		im.Exporter() != p.ID() {
		t.Errorf("the name that the other user has, too: %v", err)
	}
}
