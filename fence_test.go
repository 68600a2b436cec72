package vmmc_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc"
)

// A fence of a process covers all exporters, both ways, and messages of imports that were closed.
func TestProcessFence(t *testing.T) {
	near, far := nodes(t, "between nodes")
	a := join(t, near)
	if err := a.Fence(within(t)); err != nil { // nothing is imported
		t.Fatal(err)
	}
	type peer struct {
		p   *vmmc.Process
		mem []byte
		exp *vmmc.Export
		im  *vmmc.Import
	}
	var peers []peer
	for i, at := range []string{near, far, near, far} {
		x := peer{p: join(t, at)}
		x.mem = alloc(t, x.p, 1<<20)
		var opts []vmmc.ExportOption
		if i == 2 {
			opts = append(opts, vmmc.Unmapped())
		}
		var err error
		if x.exp, err = x.p.Export(1, x.mem, opts...); err != nil {
			t.Fatal(err)
		}
		if x.im, err = a.Import(within(t), x.p.Node(), x.p.PID(), 1); err != nil {
			t.Fatal(err)
		}
		peers = append(peers, x)
	}
	src := make([]byte, 1<<20)
	for round := byte(1); round <= 20; round++ {
		for i := range src {
			src[i] = round
		}
		for _, x := range peers {
			if _, err := x.im.SendAsync(within(t), src, 0); err != nil {
				t.Fatal(err)
			}
			if err := x.im.Send(within(t), []byte{round + 1, 0, 0, 0}, 4); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.Fence(within(t)); err != nil {
			t.Fatal(err)
		}
		for i, x := range peers {
			if x.mem[4] != round+1 || x.mem[0] != round || x.mem[1<<20-1] != round {
				t.Errorf("round %d, peer %d: %d, %d, %d after the fence", round, i, x.mem[0], x.mem[4], x.mem[1<<20-1])
			}
		}
	}
	for _, x := range peers { // messages of imports that are closed are fenced too
		im, err := a.Import(within(t), x.p.Node(), x.p.PID(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := im.Send(within(t), w32(77), 0); err != nil {
			t.Fatal(err)
		}
		if err := im.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Fence(within(t)); err != nil {
		t.Fatal(err)
	}
	for i, x := range peers {
		if x.mem[0] != 77 {
			t.Errorf("peer %d: %d after the fence", i, x.mem[0])
		}
	}
	// An export that ends meanwhile is told, and one that had ended is not.
	a2 := peers[3]
	if err := a2.exp.Close(); err != nil {
		t.Fatal(err)
	}
	<-a2.im.Done()
	if err := a.Fence(within(t)); err != nil {
		t.Errorf("an import that had ended: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := peers[1].im.SendAsync(within(t), src, 0); err != nil {
		t.Fatal(err)
	}
	if err := a.Fence(ctx); err != nil && !errors.Is(err, vmmc.ErrCanceled) {
		t.Errorf("a cancelled fence: %v", err)
	}
	if err := a.Fence(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Fence(within(t)); !errors.Is(err, vmmc.ErrClosed) {
		t.Errorf("a closed process: %v", err)
	}
}

// telling is a context that tells when it is first waited for.
type telling struct {
	context.Context
	once   sync.Once
	waited chan struct{}
}

func (c *telling) Done() <-chan struct{} {
	c.once.Do(func() { close(c.waited) })
	return c.Context.Done()
}

// A fence fails for an exporter that ends while its data is in flight, and fences the others.
func TestProcessFenceOfOneThatEnds(t *testing.T) {
	near, far := nodes(t, "between nodes")
	a, b, c := join(t, near), join(t, far), join(t, near)
	g := newGate(t, 0)
	vmmc.SetDialer(a, g.dial)
	ofB := imported(within(t), t, a, b, 64)
	ofC := imported(within(t), t, a, c, 64)
	g.shut.Store(true)
	for _, im := range []*vmmc.Import{ofB, ofC} {
		if err := im.Send(within(t), w32(1), 0); err != nil {
			t.Fatal(err)
		}
	}
	fenced := make(chan error, 1)
	ctx := &telling{Context: within(t), waited: make(chan struct{})}
	go func() { fenced <- a.Fence(ctx) }()
	<-ctx.waited // for b: nothing is under way to c
	vmmc.SeverLinks(a)
	if err := <-fenced; !errors.Is(err, vmmc.ErrPeerGone) {
		t.Errorf("the fence: %v", err)
	}
	g.open()
}
