package integration

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/simnet"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func init() {
	testutil.RegisterRole("lasting hold", child(hold, vmmc.WithResume(time.Hour)))
}

// detour is where a node is reached by others: the test cuts the connections there.
type detour struct {
	l  net.Listener
	to string

	mu    sync.Mutex
	conns []*simnet.Conn
}

func newDetour(t *testing.T, to string) *detour {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &detour{l: l, to: to}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil { // the daemon is away
				_ = c.Close()
				continue
			}
			d.mu.Lock()
			d.conns = append(d.conns, simnet.Join(c.(*net.TCPConn), far.(*net.TCPConn), nil, nil))
			d.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
		for _, c := range d.conns {
			c.Close()
			<-c.Over()
		}
	})
	return d
}

func (d *detour) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.conns {
		c.Reset()
	}
}

// upLoose starts nodes whose connections can be cut.
func upLoose(t *testing.T, n int) (*cluster, []*detour) {
	t.Helper()
	var ds []*detour
	cl := upBy(t, n, nil, func(listen string) string {
		ds = append(ds, newDetour(t, listen))
		return ds[len(ds)-1].l.Addr().String()
	}, nil)
	return cl, ds
}

func patience(t *testing.T) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(stop)
	return ctx
}

func count(t *testing.T, im *vmmc.Import, want uint64) {
	t.Helper()
	n, err := im.FetchAdd64(patience(t), 8, 1)
	if err != nil {
		t.Fatal(err)
	}
	if n != want {
		t.Fatalf("%d additions were done, want %d", n, want)
	}
}

// Daemons die, with a link that breaks at the same time, and are started again: all goes on
// as if they had not.
func TestRestartedDaemonServesWhoWasThere(t *testing.T) {
	for name, victims := range map[string][]int{"the exporter's": {1}, "the importer's": {0}, "both": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			cl, ds := upLoose(t, 2)
			events := make(chan vmmc.Event, 1024)
			p := join(t, cl, 0, vmmc.WithResume(time.Hour), vmmc.WithEvents(func(e vmmc.Event) { events <- e }))
			own, err := p.Alloc(4096)
			if err != nil {
				t.Fatal(err)
			}
			for id := range uint32(3) {
				if _, err := p.Export(id, own.Bytes()[1024*id:1024*(id+1)]); err != nil {
					t.Fatal(err)
				}
			}
			pid, _, _ := spawn(t, cl, 1, "lasting hold")
			beside, _, _ := spawn(t, cl, 0, "lasting hold")
			far, near := import1(t, p, 1, pid, 1), import1(t, p, 0, beside, 1)
			count(t, far, 0)
			for round := range uint64(3) { // restarts of restarts, too
				for _, i := range victims {
					kill(t, cl.nodes[i])
				}
				for _, d := range ds {
					d.cut()
				}
				calls := make(chan error, 3)
				go func() { _, err := far.FetchAdd64(patience(t), 8, 1); calls <- err }()
				go func() {
					im, err := p.Import(patience(t), p.Node(), beside, 2)
					if err == nil {
						err = im.Close()
					}
					calls <- err
				}()
				go func() {
					e, err := p.Export(7, make([]byte, 64))
					if err == nil {
						err = e.Close()
					}
					calls <- err
				}()
				count(t, near, round)
				for _, i := range victims {
					cl.start(t, i, nil)
				}
				for range cap(calls) {
					if err := <-calls; err != nil {
						t.Error(err)
					}
				}
				count(t, far, 2*round+2)
				// Others find the exports of before, and import what was there already.
				q := join(t, cl, 0)
				count(t, import1(t, q, 0, p.PID(), 1), round)
				count(t, import1(t, q, 1, pid, 2), round)
				if err := q.Close(); err != nil {
					t.Fatal(err)
				}
				back := import1(t, p, 1, pid, 2)
				if err := back.Close(); err != nil {
					t.Fatal(err)
				}
			}
			for {
				select {
				case e := <-events:
					if e.Kind == vmmc.PeerGone && e.Peer.PID == pid {
						t.Errorf("a link between two that lived has ended: %v", e.Err)
					}
					continue
				default:
				}
				break
			}
		})
	}
}

// An export that ends while the daemon is away is not there with the next one, and its id is free.
func TestExportEndsWhileTheDaemonIsAway(t *testing.T) {
	cl := up(t, 1, nil, nil)
	p := join(t, cl, 0)
	e, err := p.Export(1, make([]byte, 64))
	if err != nil {
		t.Fatal(err)
	}
	kill(t, cl.nodes[0])
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	again := make(chan error, 1)
	go func() {
		_, err := p.Export(1, make([]byte, 128))
		again <- err
	}()
	cl.start(t, 0, nil)
	if err := <-again; err != nil {
		t.Fatal(err)
	}
	q := join(t, cl, 0)
	if im := import1(t, q, 0, p.PID(), 1); im.Size() != 128 {
		t.Errorf("%d bytes, which is the export that was closed", im.Size())
	}
}

// A process that dies together with its daemon is known to be dead by the next one, on both
// sides of its links.
func TestPeerAndDaemonDieTogether(t *testing.T) {
	for _, c := range []string{"exporter", "importer"} {
		t.Run(c, func(t *testing.T) {
			cl, ds := upLoose(t, 2)
			events := make(chan vmmc.Event, 64)
			p := join(t, cl, 0, vmmc.WithResume(time.Hour), vmmc.WithEvents(func(e vmmc.Event) { events <- e }))
			m, err := p.Alloc(4096)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Export(1, m.Bytes()); err != nil {
				t.Fatal(err)
			}
			var cmd *exec.Cmd
			if c == "exporter" {
				var pid vmmc.PID
				pid, cmd, _ = spawn(t, cl, 1, "lasting hold")
				count(t, import1(t, p, 1, pid, 1), 0)
			} else {
				_, g, r := spawn(t, cl, 1, "guest", "n0", number(p.PID()))
				says(t, r, "in")
				cmd = g
			}
			kill(t, cl.nodes[1])
			kill(t, cmd)
			ds[0].cut()
			next(t, events, vmmc.LinkDown, 10*time.Second)
			cl.start(t, 1, nil)
			begun := time.Now()
			e := next(t, events, vmmc.PeerGone, 10*time.Second)
			t.Logf("told after %v: %v", time.Since(begun).Round(time.Millisecond), e.Err)
		})
	}
}

// A death is told of by a daemon that was started after the process had joined.
func TestDeathAfterARestart(t *testing.T) {
	cl, _ := upLoose(t, 2)
	events := make(chan vmmc.Event, 64)
	p := join(t, cl, 0, vmmc.WithResume(time.Hour), vmmc.WithEvents(func(e vmmc.Event) { events <- e }))
	m, err := p.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Export(1, m.Bytes()); err != nil {
		t.Fatal(err)
	}
	_, cmd, r := spawn(t, cl, 1, "guest", "n0", number(p.PID()))
	says(t, r, "in")
	kill(t, cl.nodes[1])
	cl.start(t, 1, nil)
	kill(t, cmd)
	next(t, events, vmmc.LinkDown, 10*time.Second)
	next(t, events, vmmc.PeerGone, 10*time.Second)
}

// A process that is stopped while its daemon is restarted is waited for.
func TestStoppedWhileTheDaemonRestarts(t *testing.T) {
	cl, ds := upLoose(t, 2)
	p := join(t, cl, 0, vmmc.WithResume(time.Hour), vmmc.WithSilence(time.Hour))
	pid, cmd, _ := spawn(t, cl, 1, "lasting hold")
	im := import1(t, p, 1, pid, 1)
	count(t, im, 0)
	halt(t, cmd.Process.Pid)
	kill(t, cl.nodes[1])
	cl.start(t, 1, nil)
	ds[1].cut()
	calls := make(chan error, 2)
	go func() { _, err := im.FetchAdd64(patience(t), 8, 1); calls <- err }()
	go func() {
		n, _ := p.NameToNode("n1")
		_, err := p.Import(patience(t), n, pid, 2)
		calls <- err
	}()
	select {
	case err := <-calls:
		t.Errorf("a call on a process that is stopped ended: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	resume(t, cmd.Process.Pid)
	for range cap(calls) {
		if err := <-calls; err != nil {
			t.Error(err)
		}
	}
	count(t, im, 2)
}

// Calls wait for the daemon as long as their contexts let them.
func TestCallsWhileTheDaemonIsAway(t *testing.T) {
	cl := up(t, 1, nil, nil)
	p := join(t, cl, 0)
	kill(t, cl.nodes[0])
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	_, err := p.Import(ctx, p.Node(), p.PID(), 1)
	if !errors.Is(err, vmmc.ErrNoDaemon) || !errors.Is(err, vmmc.ErrTimeout) {
		t.Errorf("an import: %v", err)
	}
	ctx, stop = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := p.Spawn(ctx, p.Node(), "/bin/true"); !errors.Is(err, vmmc.ErrNoDaemon) || errors.Is(err, vmmc.ErrOutcomeUnknown) {
		t.Errorf("a spawn: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
