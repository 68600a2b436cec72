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
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func init() { testutil.RegisterRole("names", namesRole) }

// namesRole becomes another user, publishes "x" and says what it finds of the names x, open and
// none of a user: socket, user.
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
	e, err := p.Publish(ctx, "x", make([]byte, 8))
	fmt.Println("publish:", err)
	for n, err := range p.Names(ctx, "*") {
		fmt.Println("listed:", n.Name, n.Size, err)
	}
	im, err := p.ImportName(ctx, "x")
	fmt.Println("own:", err == nil && im.ID() == e.ID() && im.Exporter() == p.ID())
	for _, name := range []string{"x", "none", "open"} {
		im, err := p.ImportName(ctx, name, vmmc.OwnedBy(a[1], ""))
		fmt.Println("his:", name, err == nil && im.Size() == 4, errors.Is(err, vmmc.ErrNoRights),
			strings.ReplaceAll(fmt.Sprint(err), `"`+name+`"`, "NAME"))
	}
	return 0
}

// Another user neither sees a user's names nor can take them, and gets only what is permitted to
// it.
func TestNamesOfAnotherUser(t *testing.T) {
	testutil.Require(t, os.Getuid() == 0, "becoming another user needs root; run the tests as root")
	dir, err := os.MkdirTemp("", "vmmc-user") // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	n := startNode(t, daemon.Config{Name: "one", Socket: filepath.Join(dir, "node.sock")})
	p := open(t, n)
	x, err := p.Publish(t.Context(), "x", make([]byte, 4))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Publish(t.Context(), "open", make([]byte, 4), vmmc.Permit(vmmc.Permission{
		Users: []string{fmt.Sprint(otherUser)},
	})); err != nil {
		t.Fatal(err)
	}
	out, err := testutil.Command(t, "names", n.Socket(), me.Username).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 6 {
		t.Fatalf("the other user says %q", lines)
	}
	refusal := strings.TrimPrefix(lines[3], "his: x false true ")
	want := []string{
		"publish: <nil>", "listed: x 8 <nil>", "own: true", "his: x false true " + refusal,
		"his: none false true " + refusal, "his: open true false <nil>",
	}
	for i := range want {
		if lines[i] != want[i] {
			t.Errorf("the other user says %q, want %q", lines[i], want[i])
		}
	}
	if im, err := p.ImportName(t.Context(), "x"); err != nil || im.ID() != x.ID() ||
		im.Exporter() != p.ID() {
		t.Errorf("the name that the other user has, too: %v", err)
	}
}
