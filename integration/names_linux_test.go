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

// A name of the cluster stays where the cluster has grown meanwhile.
func TestClusterNameOutlivesAGrowingCluster(t *testing.T) {
	cl := up(t, 1, nil, nil)
	p, q := join(t, cl, 0), join(t, cl, 0)
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
	for _, name := range []string{"y", "/x"} { // with the first one the owner has come back
		finds(t, q, name, e, p)
	}
}

// Daemons are killed one after the other, each of which has names of the cluster registered with it:
// none is lost, none is taken, and what was claimed before is claimed no second time.
func TestClusterNamesOutliveTheDaemons(t *testing.T) {
	cl := up(t, 3, nil, nil)
	var ps []*vmmc.Process
	exports := map[string]*vmmc.Export{}
	owners := map[string]*vmmc.Process{}
	for i := range 3 {
		p := join(t, cl, i)
		ps = append(ps, p)
		for j := range 4 {
			name := fmt.Sprintf("/q%d.%d", i, j)
			e, err := p.Publish(patience(t), name, make([]byte, 4))
			if err != nil {
				t.Fatal(err)
			}
			exports[name], owners[name] = e, p
		}
	}
	late := make(chan error, 3)
	for _, p := range ps { // look-ups that wait while directory nodes come and go
		go func() {
			im, err := p.ImportName(patience(t), "/late")
			for errors.Is(err, vmmc.ErrUnreachable) { // its own daemon was away
				im, err = p.ImportName(patience(t), "/late")
			}
			if err == nil {
				err = im.Close()
			}
			late <- err
		}()
	}
	for i := range 3 {
		kill(t, cl.nodes[i])
		if i == 1 { // while it is away
			for name, e := range exports {
				if owners[name] != ps[1] {
					finds(t, ps[2], name, e, owners[name])
				}
			}
			if _, err := ps[0].Publish(patience(t), "/meanwhile", make([]byte, 4)); err != nil {
				t.Errorf("a claim while the daemon of another node is away: %v", err)
			}
		}
		cl.start(t, i, nil)
		for name, e := range exports {
			for _, p := range ps {
				finds(t, p, name, e, owners[name])
				if _, err := p.Publish(patience(t), name, make([]byte, 4)); !errors.Is(err, vmmc.ErrNameTaken) {
					t.Errorf("%s after a restart of node %d: %v", name, i, err)
				}
			}
		}
	}
	if _, err := ps[2].Publish(patience(t), "/late", make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	for range ps {
		if err := <-late; err != nil {
			t.Error(err)
		}
	}
}

// The name of a process that is killed is gone on all nodes as soon as it is, and its successor has
// it at once, wherever that is.
func TestClusterNameOfAKilledProcess(t *testing.T) {
	cl := up(t, 3, nil, nil)
	p, q := join(t, cl, 0), join(t, cl, 2)
	for range 5 {
		_, cmd, out := spawn(t, cl, 1, "publisher", "/server")
		says(t, out, "published")
		first, err := q.ImportName(patience(t), "/server")
		if err != nil {
			t.Fatal(err)
		}
		kill(t, cmd)
		if n := published(t, q, "/*"); n != 0 {
			t.Errorf("%d names after their process was killed", n)
		}
		next := make(chan error)
		go func() {
			im, err := q.ImportName(patience(t), "/server")
			if err == nil && im.Exporter() != p.ID() {
				err = fmt.Errorf("imported from %v", im.Exporter())
			}
			next <- err
		}()
		e, err := p.Publish(patience(t), "/server", make([]byte, 4096))
		if err != nil {
			t.Fatalf("the name of a process that was killed: %v", err)
		}
		if err := <-next; err != nil {
			t.Error(err)
		}
		<-first.Done()
		if again, err := first.Rejoin(patience(t)); err != nil || again.Exporter() != p.ID() {
			t.Errorf("Rejoin: %v", err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
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
