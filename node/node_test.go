package node_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/node"
)

// TestEmbed: each process that embeds has a node of its own, unless the
// environment names one already.
func TestEmbed(t *testing.T) {
	t.Setenv(nodeproto.Env, "")
	a, err := vmmc.Open(t.Context(), node.Embed(node.WithName("here")))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := vmmc.Open(t.Context(), node.Embed())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if a.Node().String() != "here" || b.Node().String() != "local" {
		t.Errorf("nodes %v and %v, want here and local", a.Node(), b.Node())
	}
	name, socket, _ := strings.Cut(a.Environ()[0], "=")
	t.Setenv(name, socket)
	c, err := vmmc.Open(t.Context(), node.Embed(node.WithName("elsewhere")))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Node() != a.Node() || c.PID() == a.PID() {
		t.Errorf("with %s set, %v joined beside %v, want the same node", name, c.ID(), a.ID())
	}
}

// TestEmbedThatFails: the error says what failed, with one prefix.
func TestEmbedThatFails(t *testing.T) {
	t.Setenv(nodeproto.Env, "")
	p, err := vmmc.Open(t.Context(), node.Embed(nil))
	if err == nil {
		_ = p.Close()
		t.Fatal("a node starts with an option that is nil")
	}
	if s := err.Error(); !strings.HasPrefix(s, "vmmc: open: start a node: ") || strings.Count(s, "vmmc: ") != 1 {
		t.Error(s)
	}
}

// TestStartTwice: one socket has one node.
func TestStartTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.sock")
	n, err := node.Start(node.WithSocket(path))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if again, err := node.Start(node.WithSocket(path)); err == nil {
		again.Close()
		t.Error("two nodes serve one socket")
	} else if !strings.Contains(err.Error(), path+".lock") {
		t.Errorf("%v: does not say what the other holds", err)
	}
	n.Close()
	next, err := node.Start(node.WithSocket(path))
	if err != nil {
		t.Fatal(err)
	}
	next.Close()
	next.Close() // more than once is fine
}
