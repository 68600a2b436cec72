package vmmctest_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// The program under test: a server that counts, and a client's call that adds.

func serve(p *vmmc.Process) (*vmmc.Export, error) {
	mem, err := p.Alloc(4096)
	if err != nil {
		return nil, err
	}
	return p.Export(1, mem.Bytes())
}

func add(ctx context.Context, im *vmmc.Import) (uint64, error) { return im.FetchAdd64(ctx, 0, 1) }

// A test over two nodes whose link fails and comes back.
func countOverACut(t *testing.T) {
	ctx := t.Context()
	nodes := vmmctest.Nodes(t, 2)
	client := nodes[0].Open(t, vmmc.WithResume(time.Minute))
	server := nodes[1].Open(t, vmmc.WithResume(time.Minute))
	if _, err := serve(server); err != nil {
		t.Fatal(err)
	}
	im, err := client.Import(ctx, server.Node(), server.PID(), 1)
	if err != nil {
		t.Fatal(err)
	}
	nodes[0].Cut()
	time.AfterFunc(10*time.Millisecond, func() { nodes[0].Heal() })
	if n, err := add(ctx, im); err != nil || n != 0 {
		t.Errorf("the counter was %d, %v", n, err)
	}
	nodes[0].Delay(time.Millisecond)
	if n, err := add(ctx, im); err != nil || n != 1 {
		t.Errorf("the counter was %d, %v", n, err)
	}
}

// A test whose server is killed.
func countWithoutServer(t *testing.T) {
	ctx := t.Context()
	node := vmmctest.Nodes(t, 1)[0]
	server := vmmctest.Child(t, node, "server")
	client := node.Open(t)
	im, err := client.Import(ctx, server.ID().Node, server.ID().PID, 1)
	if err != nil {
		t.Fatal(err)
	}
	server.Stop()
	server.Continue()
	if _, err := add(ctx, im); err != nil {
		t.Error(err)
	}
	server.Kill()
	<-im.Done()
	if _, err := add(ctx, im); !errors.Is(err, vmmc.ErrPeerGone) {
		t.Errorf("the server is gone: %v", err)
	}
}

// A child that has something to say, and ends by itself.
func greeted(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	p := vmmctest.Child(t, node, "greeter", "world")
	if s := p.Line(); s != "hello world on "+node.Name() {
		t.Errorf("it says %q", s)
	}
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
}

// Processes that the package does not start: the test's own vmmc.Open, and other programs.
func joinedOtherwise(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	p, err := vmmc.Open(t.Context(), vmmc.WithSocket(node.Socket()))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.Node() != node.ID() {
		t.Errorf("it has joined %s", p.Node())
	}
	program := exec.CommandContext(t.Context(), "env") // which would join it, too
	program.Env = node.Environ()
	if out, err := program.Output(); err != nil || !strings.Contains(string(out), node.Socket()) {
		t.Errorf("it has %q, %v", out, err)
	}
}

func TestMain(m *testing.M) {
	vmmctest.Role("server", func(ctx context.Context, p *vmmc.Process, _ ...string) error {
		if _, err := serve(p); err != nil {
			return err
		}
		<-ctx.Done() // never: the test kills it
		return nil
	})
	vmmctest.Role("greeter", func(_ context.Context, p *vmmc.Process, args ...string) error {
		_, err := fmt.Printf("hello %s on %s\n", args[0], p.Node())
		return err
	})
	vmmctest.Main(m)
}

func Example() {}
