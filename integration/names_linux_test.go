package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func init() { testutil.RegisterRole("publisher", child(publisher)) }

// publisher publishes a buffer under a name, says so, and stays.
func publisher(ctx context.Context, p *vmmc.Process, args []string) error {
	m, err := p.Alloc(4096)
	if err != nil {
		return err
	}
	if _, err := p.Publish(ctx, args[0], m.Bytes()); err != nil {
		return err
	}
	fmt.Println("published")
	return p.WaitUntil(ctx, func() bool { return false })
}

func published(t *testing.T, p *vmmc.Process, pattern string) (n int) {
	t.Helper()
	for _, err := range p.Names(patience(t), pattern) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// The names of a process that is killed are gone as soon as it is. Its successor has them at once,
// and an importer or a claimer that waits finds that.
func TestNameOfAKilledProcess(t *testing.T) {
	cl := up(t, 1, nil, nil)
	p := join(t, cl, 0)
	m, err := p.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"server", "/server"} {
		for range 10 {
			_, cmd, out := spawn(t, cl, 0, "publisher", name)
			says(t, out, "published")
			first, err := p.ImportName(patience(t), name)
			if err != nil {
				t.Fatal(err)
			}
			kill(t, cmd)
			if n := published(t, p, "*") + published(t, p, "/*"); n != 0 {
				t.Errorf("%d names after their process was killed", n)
			}
			rejoined := make(chan *vmmc.Import)
			for range 2 {
				go func() {
					im, err := p.ImportName(patience(t), name)
					if err != nil {
						t.Error(err)
					}
					rejoined <- im
				}()
			}
			e, err := p.Publish(patience(t), name, m.Bytes())
			if err != nil {
				t.Fatalf("the name of a process that was killed: %v", err)
			}
			for range 2 {
				if im := <-rejoined; im != nil && (im.Exporter() != p.ID() || im.ID() != e.ID()) {
					t.Errorf("buffer %d of %v was imported", im.ID(), im.Exporter())
				}
			}
			<-first.Done()
			again, err := first.Rejoin(patience(t))
			if err != nil || again.Exporter() != p.ID() {
				t.Errorf("Rejoin: %v", err)
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Daemons are killed while processes have names, wait for names and want others' names: none is
// lost, none is taken, and each wait ends as if nothing had been.
func TestNamesOutliveTheDaemon(t *testing.T) {
	cl := up(t, 2, nil, nil)
	p, q, rival, far := join(t, cl, 0), join(t, cl, 0), join(t, cl, 0), join(t, cl, 1)
	m, err := p.Alloc(4 * 200)
	if err != nil {
		t.Fatal(err)
	}
	const names = 32 * 6 // four batches
	var exports []*vmmc.Export
	for i := range names / 6 {
		e, err := p.Export(uint32(i), m.Bytes()[4*i:4*i+4], vmmc.WithName(fmt.Sprint("n", i)))
		if err != nil {
			t.Fatal(err)
		}
		for j := range 5 {
			if err := e.PublishAs(patience(t), fmt.Sprint("n", i, ".", j)); err != nil {
				t.Fatal(err)
			}
		}
		exports = append(exports, e)
	}
	late, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		mem := make([]byte, 4)
		for i := 0; late.Err() == nil; i++ {
			e, err := rival.Publish(late, fmt.Sprint("n", i%(names/6)), mem)
			if err == nil {
				t.Errorf("a rival got the name n%d", i%(names/6))
				_ = e.Close()
			} else if !errors.Is(err, vmmc.ErrNameTaken) && late.Err() == nil && !errors.Is(err, vmmc.ErrNoDaemon) &&
				!errors.Is(err, vmmc.ErrTimeout) { // an owner may be late to come back
				t.Errorf("a rival's claim: %v", err)
			}
		}
	})
	const waits = 100
	imports := make(chan error, waits)
	for i := range waits {
		go func() {
			who, name := q, fmt.Sprint("late", i%3)
			if i%4 == 0 {
				who, name = far, "n0/"+name
			}
			im, err := who.ImportName(late, name)
			for errors.Is(err, vmmc.ErrUnreachable) { // first asked while the node's daemon was away
				time.Sleep(10 * time.Millisecond)
				im, err = who.ImportName(late, name)
			}
			if err == nil {
				err = im.Close()
			}
			imports <- err
		}()
	}
	for range 3 {
		kill(t, cl.nodes[0])
		cl.start(t, 0, nil)
		if n := published(t, q, "*"); n != names {
			// The owner may not be back yet.
			ctx := patience(t)
			for n != names && ctx.Err() == nil {
				n = published(t, q, "*")
			}
			if n != names {
				t.Fatalf("%d names after a restart, want %d", n, names)
			}
		}
		for who, name := range map[*vmmc.Process]string{q: "n31.4", far: "n0/n31.4"} {
			im, err := who.ImportName(patience(t), name)
			if err != nil || im.ID() != 31 {
				t.Fatalf("%q after a restart: %v", name, err)
			}
		}
	}
	for i := range 3 {
		if err := exports[i].PublishAs(patience(t), fmt.Sprint("late", i)); err != nil {
			t.Fatal(err)
		}
	}
	for range waits {
		if err := <-imports; err != nil {
			t.Error(err)
		}
	}
	stop()
	all.Wait()
}

// A name of a cluster that has grown meanwhile is lost, and its process is told.
func TestNameIsLostWithARestart(t *testing.T) {
	cl := up(t, 1, nil, nil)
	events := make(chan vmmc.Event, 9)
	p, q := join(t, cl, 0, vmmc.WithEvents(func(e vmmc.Event) { events <- e })), join(t, cl, 0)
	e, err := p.Export(7, make([]byte, 4), vmmc.WithName("/x"), vmmc.WithName("y"))
	if err != nil {
		t.Fatal(err)
	}
	kill(t, cl.nodes[0])
	list := filepath.Join(cl.dir, "vmmc-hosts.txt")
	hs, err := hosts.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	addr := freePort(t)
	hs = append(hs, hosts.Host{Name: "n1", Control: addr, Data: addr})
	if err := os.WriteFile(list, []byte(hosts.Format(hs)), 0o600); err != nil {
		t.Fatal(err)
	}
	cl.start(t, 0, nil)
	for _, want := range []vmmc.EventKind{vmmc.NodeGone, vmmc.NameLost, vmmc.NodeBack} {
		select {
		case got := <-events:
			if got.Kind != want || want == vmmc.NameLost &&
				(got.Name != "/x" || got.Export != e || !errors.Is(got.Err, vmmc.ErrNotImplemented)) {
				t.Errorf("%v: %v %q", want, got, got.Name)
			}
		case <-patience(t).Done():
			t.Fatalf("no event %v", want)
		}
	}
	im, err := q.ImportName(patience(t), "y")
	if err != nil || im.ID() != e.ID() {
		t.Errorf("a name that is not lost: %v", err)
	}
	if err := e.PublishAs(patience(t), "/x"); !errors.Is(err, vmmc.ErrNotImplemented) {
		t.Errorf("the name that is lost: %v", err)
	}
}

// After a restart a process that is stopped may have any name of its session: a claim waits for it.
func TestClaimWhileAMemberIsStopped(t *testing.T) {
	cl := up(t, 1, nil, nil)
	p, other := join(t, cl, 0), join(t, cl, 0, vmmc.WithSession("other"))
	_, cmd, out := spawn(t, cl, 0, "publisher", "server")
	says(t, out, "published")
	halt(t, cmd.Process.Pid)
	kill(t, cl.nodes[0])
	cl.start(t, 0, nil)
	m, err := p.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"server", "free"} {
		ctx, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if _, err := p.Publish(ctx, name, m.Bytes()); !errors.Is(err, vmmc.ErrTimeout) {
			t.Errorf("%q while a process is stopped: %v", name, err)
		}
		stop()
	}
	if _, err := other.Publish(patience(t), "server", make([]byte, 4)); err != nil {
		t.Errorf("a name of another session: %v", err)
	}
	var claims sync.WaitGroup
	for _, name := range []string{"server", "free"} {
		claims.Go(func() {
			_, err := p.Publish(patience(t), name, make([]byte, 4))
			if name == "server" && !errors.Is(err, vmmc.ErrNameTaken) || name == "free" && err != nil {
				t.Errorf("%q after that: %v", name, err)
			}
		})
	}
	resume(t, cmd.Process.Pid)
	claims.Wait()
	kill(t, cmd)
	if _, err := p.Publish(patience(t), "server", m.Bytes()); err != nil {
		t.Error(err)
	}
}

// A process that has had no name and was closed while no daemon was there keeps none from a claim:
// its program goes on, and it never comes back.
func TestClaimAfterAMemberWasClosed(t *testing.T) {
	cl := up(t, 1, nil, nil)
	p, closed := join(t, cl, 0), join(t, cl, 0)
	kill(t, cl.nodes[0])
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	cl.start(t, 0, nil)
	if _, err := p.Publish(patience(t), "server", make([]byte, 4)); err != nil {
		t.Error(err)
	}
}
