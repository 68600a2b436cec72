package integration

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/ask"
)

// hold exports a mapped buffer 1 and a heap slice as buffer 2, and stays.
func hold(ctx context.Context, p *vmmc.Process, _ []string) error {
	m, err := p.Alloc(1 << 20)
	if err != nil {
		return err
	}
	if _, err := p.Export(1, m.Bytes(), vmmc.WithHandler(func(vmmc.Notification) {})); err != nil {
		return err
	}
	heap := make([]byte, 1<<20)
	if _, err := p.Export(2, heap); err != nil {
		return err
	}
	return p.WaitUntil(ctx, func() bool { return false })
}

// goneWithin polls until a call says that the peer is gone.
func goneWithin(t *testing.T, limit time.Duration, call func() error) {
	t.Helper()
	start := time.Now()
	for {
		err := call()
		if err != nil {
			if !errors.Is(err, vmmc.ErrPeerGone) || !errors.Is(err, vmmc.ErrBadIbufState) {
				t.Errorf("error %v is not ErrPeerGone", err)
			}
			t.Logf("told after %v: %v", time.Since(start).Round(time.Microsecond), err)
			return
		}
		if time.Since(start) > limit {
			t.Errorf("no error %v after the peer was killed", limit)
			return
		}
	}
}

func TestKilledPeerIsNoticed(t *testing.T) {
	for _, c := range []struct {
		name   string
		node   int
		id     uint32
		daemon bool // the daemon is killed before
		secret bool // links between nodes are encrypted
	}{
		{"mapped", 0, 1, false, false},
		{"mapped, daemon dead", 0, 1, true, false},
		{"heap slice on one node", 0, 2, false, false},
		{"between nodes", 1, 1, false, false},
		{"between nodes, daemon dead", 1, 1, true, false},
		{"encrypted", 1, 1, false, true},
		{"encrypted, daemon dead", 1, 1, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := up(t, 2, nil, nil)
			var opts []vmmc.Option
			if c.daemon { // no daemon says that the process has ended, and not only its connection
				opts = append(opts, vmmc.WithResume(300*time.Millisecond))
			}
			if c.secret {
				opts = append(opts, vmmc.WithEncryption())
			}
			p := join(t, cl, 0, opts...)
			pid, peer, _ := spawn(t, cl, c.node, "hold")
			import1(t, p, c.node, pid, 2) // its last export: it needs its daemon no more
			im := import1(t, p, c.node, pid, c.id)
			b := make([]byte, 64)
			if err := im.Send(t.Context(), b, 0); err != nil {
				t.Fatal(err)
			}
			secrecy(t, cl, 0, c.secret)
			if c.daemon {
				for _, n := range cl.nodes {
					kill(t, n)
				}
				if err := im.Send(t.Context(), b, 0); err != nil {
					t.Fatalf("the daemon's death disturbed a link: %v", err)
				}
			}
			kill(t, peer)
			goneWithin(t, time.Second, func() error { return im.Send(t.Context(), b, 0) })
			goneWithin(t, time.Second, func() error { return im.Get(t.Context(), b, 0) })
			goneWithin(t, time.Second, func() error { return im.SendNotify(t.Context(), b, 0) })
		})
	}
}

// A get that waits for its answer, and a send that waits for room, end too.
func TestKilledPeerEndsWhatWaits(t *testing.T) {
	t.Run("in clear", func(t *testing.T) { killedPeerEndsWhatWaits(t) })
	t.Run("encrypted", func(t *testing.T) { killedPeerEndsWhatWaits(t, vmmc.WithEncryption()) })
}

func killedPeerEndsWhatWaits(t *testing.T, more ...vmmc.Option) {
	cl := up(t, 2, nil, nil)
	p := join(t, cl, 0, more...)
	pid, peer, _ := spawn(t, cl, 1, "hold")
	im := import1(t, p, 1, pid, 1)
	errs := make(chan error, 2)
	big := make([]byte, 1<<20)
	go func() {
		for {
			if err := im.Send(context.Background(), big, 0); err != nil {
				errs <- err
				return
			}
		}
	}()
	small := make([]byte, 1<<19)
	go func() {
		for {
			if err := im.Get(context.Background(), small, 0); err != nil {
				errs <- err
				return
			}
		}
	}()
	if err := im.Fence(t.Context()); err != nil {
		t.Fatal(err)
	}
	kill(t, peer)
	for range 2 {
		select {
		case err := <-errs:
			if !errors.Is(err, vmmc.ErrPeerGone) {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("a call hangs on a dead peer")
		}
	}
}

func kill(t *testing.T, c *exec.Cmd) {
	t.Helper()
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
}

// secrecy fails the test unless all links of a node with others are encrypted, or none is, and
// there are some.
func secrecy(t *testing.T, cl *cluster, node int, want bool) {
	t.Helper()
	a, err := (&ask.Flags{Socket: cl.socket(node), Nodes: []string{fmt.Sprintf("n%d", node)}}).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	links, errs := a.Links(t.Context())
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if l.Secret != want {
			t.Errorf("link %+v: encrypted %v, want %v", l, l.Secret, want)
		}
	}
	if len(links) == 0 {
		t.Error("there is no link")
	}
}
