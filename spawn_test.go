package vmmc_test

import (
	"context"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/node"
)

func init() { testutil.RegisterRole("spawned", spawnedRole) }

// spawnedRole writes its pid into buffer 1 of its parent and waits there for its
// end.
func spawnedRole() int {
	ctx, stop := context.WithTimeout(context.Background(), 2*bound)
	defer stop()
	// It would embed a node of its own if its environment did not name one.
	p, err := vmmc.Open(ctx, node.Embed(node.WithName("wrong")))
	if err != nil {
		return 1
	}
	defer p.Close()
	parent, err := p.Parent()
	if err != nil {
		return 1
	}
	im, err := p.Import(ctx, parent.Node, parent.PID, 1)
	if err != nil {
		return 1
	}
	if err := im.Send(ctx, []byte{byte(p.PID()), byte(p.PID() >> 8), 0, 1}, 0); err != nil {
		return 1
	}
	<-ctx.Done()
	return 1
}

// A program with a node of its own spawns as any, and takes the children along
// when it closes.
func TestSpawnWithAnEmbeddedNode(t *testing.T) {
	t.Setenv("VMMC_SOCKET", "")
	p, err := vmmc.Open(t.Context(), node.Embed())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	m, err := p.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	e, err := p.Export(1, m.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	argv := testutil.Argv(t, "spawned")
	pid, err := p.Spawn(t.Context(), p.Node(), argv[0], argv[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	w, err := e.Word(0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), bound)
	defer stop()
	got, err := w.Wait(ctx, 0)
	if err != nil || got != uint32(pid)|1<<24 {
		t.Errorf("the child wrote %#x, want %#x (%v)", got, uint32(pid)|1<<24, err)
	}
	if err := p.Close(); err != nil { // hangs if the child does not end
		t.Error(err)
	}
}
