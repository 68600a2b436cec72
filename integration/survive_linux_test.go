package integration

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func init() {
	testutil.RegisterRole("guest", child(guest, vmmc.WithResume(time.Hour)))
	watching := []vmmc.Option{vmmc.WithSilence(time.Second), vmmc.WithResume(time.Hour), vmmc.WithEvents(func(e vmmc.Event) { fmt.Println(e.Kind) })}
	testutil.RegisterRole("watching host", child(hold, watching...))
	testutil.RegisterRole("watching guest", child(guest, watching...))
	testutil.RegisterRole("secret watching guest", child(guest, append(watching, vmmc.WithEncryption())...))
}

// guest imports buffer 1 of a process, given by node and pid, adds one to its first word, and
// stays.
func guest(ctx context.Context, p *vmmc.Process, args []string) error {
	node, pid, err := target(p, args[0], args[1])
	if err != nil {
		return err
	}
	im, err := p.Import(ctx, node, pid, 1)
	if err != nil {
		return err
	}
	if _, err := im.FetchAdd64(ctx, 0, 1); err != nil {
		return err
	}
	fmt.Println("in")
	return p.WaitUntil(ctx, func() bool { return false })
}

// next waits for an event.
func next(t *testing.T, events chan vmmc.Event, kind vmmc.EventKind, within time.Duration) vmmc.Event {
	t.Helper()
	select {
	case e := <-events:
		if e.Kind != kind {
			t.Fatalf("%v: %v, want %v", e.Kind, e.Err, kind)
		}
		return e
	case <-time.After(within):
		t.Fatalf("no event %q within %v", kind, within)
	}
	return vmmc.Event{}
}

// An exporter hears that its importer on another node was killed, and does not wait until
// the importer would have had to resume its link.
func TestKilledImporterIsNotAwaited(t *testing.T) {
	t.Run("in clear", func(t *testing.T) { killedImporterIsNotAwaited(t) })
	t.Run("encrypted", func(t *testing.T) { killedImporterIsNotAwaited(t, vmmc.WithEncryption()) })
}

func killedImporterIsNotAwaited(t *testing.T, more ...vmmc.Option) {
	cl := up(t, 2, nil, nil)
	events := make(chan vmmc.Event, 16)
	p := join(t, cl, 0, append(more, vmmc.WithResume(time.Hour), vmmc.WithEvents(func(e vmmc.Event) { events <- e }))...)
	m, err := p.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Export(1, m.Bytes()); err != nil {
		t.Fatal(err)
	}
	_, cmd, r := spawn(t, cl, 1, "guest", "n0", number(p.PID()))
	says(t, r, "in")
	secrecy(t, cl, 0, len(more) > 0)
	kill(t, cmd)
	begun := time.Now()
	next(t, events, vmmc.LinkDown, 10*time.Second)
	e := next(t, events, vmmc.PeerGone, 10*time.Second)
	t.Logf("told after %v: %v", time.Since(begun).Round(time.Millisecond), e.Err)
	if !strings.Contains(e.Err.Error(), "the importing process has ended") {
		t.Error(e.Err)
	}
}

// A stopped exporter is not waited for longer than was said, and a link goes on if it
// goes on before.
func TestStoppedExporter(t *testing.T) {
	const silence = 300 * time.Millisecond
	secret := []vmmc.Option{vmmc.WithEncryption()}
	for _, c := range []struct {
		name  string
		limit time.Duration
		err   error
		text  string
		more  []vmmc.Option
	}{
		{"not resumed", 200 * time.Millisecond, vmmc.ErrPeerGone, "not resumed within 200ms", nil},
		{"without resuming", 0, vmmc.ErrPeerGone, "the process is stopped", nil},
		{"resumed", time.Hour, nil, "", nil},
		{"encrypted, not resumed", 200 * time.Millisecond, vmmc.ErrPeerGone, "not resumed within 200ms", secret},
		{"encrypted, without resuming", 0, vmmc.ErrPeerGone, "the process is stopped", secret},
		{"encrypted, resumed", time.Hour, nil, "", secret}, // handshakes with a stopped process end, too
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := up(t, 2, nil, nil)
			events := make(chan vmmc.Event, 64)
			p := join(t, cl, 0, append(c.more, vmmc.WithSilence(silence), vmmc.WithResume(c.limit), vmmc.WithEvents(func(e vmmc.Event) { events <- e }))...)
			pid, cmd, _ := spawn(t, cl, 1, "hold")
			im := import1(t, p, 1, pid, 2)
			b := make([]byte, 64)
			if err := im.Get(t.Context(), b, 0); err != nil {
				t.Fatal(err)
			}
			secrecy(t, cl, 0, len(c.more) > 0)
			halt(t, cmd.Process.Pid)
			done := make(chan error, 1)
			go func() { done <- im.Get(context.Background(), b, 0) }()
			begun := time.Now()
			if c.limit > 0 {
				e := next(t, events, vmmc.LinkDown, 20*time.Second)
				if d := time.Since(begun); d < silence/2 || !strings.Contains(e.Err.Error(), "nothing was heard for 300ms") {
					t.Errorf("after %v: %v", d, e.Err)
				}
			}
			if c.err == nil {
				resume(t, cmd.Process.Pid)
			}
			select {
			case err := <-done:
				t.Logf("after %v: %v", time.Since(begun).Round(time.Millisecond), err)
				if c.err == nil && err != nil || !errors.Is(err, c.err) || err != nil && !strings.Contains(err.Error(), c.text) {
					t.Error(err)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("a get hangs on a process that is stopped")
			}
			if c.err == nil {
				next(t, events, vmmc.LinkResumed, 20*time.Second)
			} else {
				resume(t, cmd.Process.Pid)
			}
		})
	}
}

// A node that is cut off without anybody saying so is noticed on both sides of a link
// over which nothing goes, and the link goes on when the node is back.
func TestCutOffNodeIsNoticed(t *testing.T) {
	t.Run("in clear", func(t *testing.T) { cutOffNodeIsNoticed(t, "watching guest") })
	t.Run("encrypted", func(t *testing.T) { cutOffNodeIsNoticed(t, "secret watching guest") })
}

func cutOffNodeIsNoticed(t *testing.T, role string) {
	net := testutil.NewNet(t, 2)
	cl := up(t, 2, []string{net[0].Addr, net[1].Addr}, func(i int, c *exec.Cmd) *exec.Cmd { return net[i].Enter(c) })
	pid, _, host := launch(t, net[0].Enter(testutil.Command(t, "watching host")), cl.socket(0))
	_, _, guest := launch(t, net[1].Enter(testutil.Command(t, role, "n0", number(pid))), cl.socket(1))
	says(t, guest, "in")
	secrecy(t, cl, 0, role != "watching guest")
	for range 2 {
		begun := time.Now()
		wire(t, net[1], "down")
		says(t, guest, "link down")
		says(t, host, "link down")
		t.Logf("told after %v", time.Since(begun).Round(time.Millisecond))
		wire(t, net[1], "up")
		says(t, guest, "link resumed")
		says(t, host, "link resumed")
	}
}

// wire takes a node's network down, or up.
func wire(t *testing.T, ns *testutil.NS, state string) {
	t.Helper()
	if out, err := ns.Command("ip", "link", "set", "eth0", state).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
