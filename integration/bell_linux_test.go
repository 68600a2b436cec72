package integration

import (
	"os"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// A daemon that starts wakes the processes that wait for it. A process that cannot use the bell
// polls, and comes back as well.
func TestDaemonRings(t *testing.T) {
	cl := up(t, 1, nil, nil)
	back := make(chan struct{}, 16)
	p := join(t, cl, 0, vmmc.WithEvents(func(e vmmc.Event) {
		if e.Kind == vmmc.NodeBack {
			back <- struct{}{}
		}
	}))
	if _, err := p.Export(1, make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	bell := nodeproto.BellPath(cl.socket(0))
	for _, c := range []struct {
		what  string
		spoil func() error
	}{
		{"heard", func() error { return nil }},
		{"removed", func() error { return os.Remove(bell) }},
		{"cut short", func() error { return os.Truncate(bell, 0) }},
		{"for nobody", func() error { return os.Chmod(bell, 0) }},
		{"heard again", func() error { return nil }},
	} {
		kill(t, cl.nodes[0])
		if err := c.spoil(); err != nil {
			t.Fatal(err)
		}
		b, deaf := unix.HearBell(bell, uint32(os.Geteuid()))
		cl.start(t, 0, nil)
		if deaf == nil {
			if rung, err := b.Wait(time.Minute); !rung || err != nil {
				t.Errorf("%s: %v, %v", c.what, rung, err)
			}
			b.Close()
		}
		select {
		case <-back:
		case <-time.After(time.Minute):
			t.Fatalf("the bell %s: the process does not come back", c.what)
		}
		q := join(t, cl, 0)
		im := import1(t, q, 0, p.PID(), 1)
		if err := im.Close(); err != nil {
			t.Error(err)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
	// A process that waits for a daemon can be closed.
	kill(t, cl.nodes[0])
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
