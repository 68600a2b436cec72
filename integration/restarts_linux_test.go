package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

// ledger adds to a word of another process's buffer and notifies it, and knows how often both were
// done.
type ledger struct {
	im       *vmmc.Import
	at       int // of the word
	added    uint64
	notified uint64
}

// run goes on until stop is closed: each addition finds all that were made before, and no more.
func (l *ledger) run(ctx context.Context, stop chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		n, err := l.im.FetchAdd64(ctx, l.at, 1)
		if err != nil {
			return fmt.Errorf("addition %d at %d: %w", l.added, l.at, err)
		}
		if n != l.added {
			return fmt.Errorf("%d additions were done at %d, want %d", n, l.at, l.added)
		}
		l.added++
		if l.added%8 == 0 {
			if err := l.im.SendNotify(ctx, []byte{1, 2, 3, 4}, l.at+8); err != nil {
				return fmt.Errorf("notification %d: %w", l.notified, err)
			}
			l.notified++
			time.Sleep(2 * time.Millisecond) // others are to be served as well
		}
	}
}

// party are processes on nodes, each with a buffer that is counted in.
type party struct {
	ps    []*vmmc.Process
	ran   []atomic.Uint64 // notifications of each
	gone  chan vmmc.Event // links that ended
	books []*ledger
}

func gather(t *testing.T, cl *cluster, n int, node func(i int) int, opts ...vmmc.Option) *party {
	t.Helper()
	c := &party{ran: make([]atomic.Uint64, n), gone: make(chan vmmc.Event, 1024)}
	opts = append(opts, vmmc.WithResume(time.Hour), vmmc.WithEvents(func(e vmmc.Event) {
		if e.Kind == vmmc.PeerGone {
			c.gone <- e
		}
	}))
	for i := range n {
		p := join(t, cl, node(i), opts...)
		m, err := p.Alloc(4096)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Export(1, m.Bytes(), vmmc.WithHandler(func(vmmc.Notification) { c.ran[i].Add(1) })); err != nil {
			t.Fatal(err)
		}
		c.ps = append(c.ps, p)
	}
	return c
}

// keeps has process i count in a word of process j.
func (c *party) keeps(t *testing.T, i, j, at int) {
	t.Helper()
	im, err := c.ps[i].Import(patience(t), c.ps[j].Node(), c.ps[j].PID(), 1)
	if err != nil {
		t.Fatal(err)
	}
	c.books = append(c.books, &ledger{im: im, at: at})
}

// start has all of them count; what it gives ends that, and checks the books.
func (c *party) start(t *testing.T) (end func()) {
	ctx, over := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(over)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for _, l := range c.books {
		wg.Go(func() {
			if err := l.run(ctx, stop); err != nil {
				t.Error(err)
			}
		})
	}
	return func() {
		t.Helper()
		close(stop)
		wg.Wait()
		want := map[vmmc.ProcessID]uint64{}
		var all uint64
		for _, l := range c.books {
			if err := l.im.Fence(ctx); err != nil {
				t.Error(err)
			}
			want[l.im.Exporter()] += l.notified
			all += l.added
			if l.added == 0 {
				t.Errorf("nothing was added at %d of %v", l.at, l.im.Exporter())
			}
		}
		for i, p := range c.ps {
			n := want[vmmc.ProcessID{Node: p.Node(), PID: p.PID()}]
			for end := time.Now().Add(20 * time.Second); c.ran[i].Load() < n && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			if got := c.ran[i].Load(); got != n {
				t.Errorf("%d notifications of process %d ran, want %d", got, p.PID(), n)
			}
		}
		t.Logf("%d additions", all)
		for range len(c.gone) {
			if e := <-c.gone; slices.ContainsFunc(c.ps, func(p *vmmc.Process) bool { return p.Node() == e.Peer.Node && p.PID() == e.Peer.PID }) {
				t.Errorf("a link between two that lived has ended: %v", e.Err)
			}
		}
	}
}

// served fails the test unless all of the party can be imported from, by one that was not there
// before.
func (c *party) served(t *testing.T, cl *cluster, node int) {
	t.Helper()
	q := join(t, cl, node)
	for _, p := range c.ps {
		im, err := q.Import(patience(t), p.Node(), p.PID(), 1)
		if err != nil {
			t.Errorf("process %d: %v", p.PID(), err)
			continue
		}
		if err := im.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

// install puts a vmmcd that is built by these flags in the place of the one that may be there.
func install(t *testing.T, path string, flags ...string) {
	t.Helper()
	args := append([]string{"build", "-buildvcs=false", "-o", path + ".new"}, flags...)
	c := exec.CommandContext(t.Context(), "go", append(args, "./cmd/vmmcd")...)
	c.Dir = ".."
	if b, err := c.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, b)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// daemon starts a node by the program vmmcd, and returns when it serves.
func (c *cluster) daemon(t *testing.T, i int, exe string, more ...string) {
	t.Helper()
	name := fmt.Sprintf("n%d", i)
	cmd := exec.Command(exe, append([]string{
		"--name", name, "--hosts", filepath.Join(c.dir, "vmmc-hosts.txt"), "--certs", filepath.Join(c.dir, name),
		"--socket", c.socket(i), "--state", filepath.Join(c.dir, name, "state"), "--log-level", "warn",
	}, more...)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	c.nodes[i] = cmd
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		p, err := vmmc.Open(t.Context(), vmmc.WithSocket(c.socket(i)))
		if err == nil {
			_ = p.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// The program of a daemon is replaced by another one, the daemon is killed, and the new program
// started: its processes come back, and their links have not noticed.
func TestUpgradedDaemonServesWhoWasThere(t *testing.T) {
	_, err := exec.LookPath("go")
	testutil.Require(t, err == nil, "needs the go command, to build two programs")
	cl := up(t, 2, nil, nil)
	exe := filepath.Join(cl.dir, "vmmcd")
	install(t, exe, "-ldflags=-s -w")
	old, err := os.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	kill(t, cl.nodes[0])
	cl.daemon(t, 0, exe)

	var disturbed atomic.Int32
	c := gather(t, cl, 6, func(i int) int { return i % 2 })
	watching := join(t, cl, 0, vmmc.WithEvents(func(e vmmc.Event) {
		if e.Kind == vmmc.LinkDown || e.Kind == vmmc.PeerGone {
			disturbed.Add(1)
		}
	}))
	for i := range c.ps {
		c.keeps(t, i, (i+1)%len(c.ps), 0)  // between nodes
		c.keeps(t, i, (i+2)%len(c.ps), 64) // on one
	}
	pid, _, _ := spawn(t, cl, 0, "lasting hold")
	far, _, _ := spawn(t, cl, 1, "lasting hold")
	c.books = append(c.books, &ledger{im: import1(t, watching, 0, pid, 1)}, &ledger{im: import1(t, watching, 1, far, 1)})
	end := c.start(t)

	install(t, exe, "-ldflags=-w")
	for _, l := range []string{"old", "new"} { // what runs is what was asked for
		ran, err := os.Stat(fmt.Sprintf("/proc/%d/exe", cl.nodes[0].Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		was, err := old.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if os.SameFile(ran, was) != (l == "old") {
			t.Errorf("the %s daemon is of the wrong program", l)
		}
		if l == "old" {
			kill(t, cl.nodes[0])
			cl.daemon(t, 0, exe)
		}
	}
	for i := range 2 {
		c.served(t, cl, i)
	}
	for id, who := range map[int]vmmc.PID{0: pid, 1: far} {
		q := join(t, cl, 1-id)
		import1(t, q, id, who, 2)
	}
	end()
	if n := disturbed.Load(); n != 0 {
		t.Errorf("%d links were disturbed", n)
	}
}

// A daemon that is restarted with fewer descriptors than its processes need takes some of them back
// and tells the others why not. All links go on, and the others come back when there is room.
func TestRestartWithFewDescriptors(t *testing.T) {
	cl := up(t, 2, nil, nil)
	const many, limit = 40, 48
	c := gather(t, cl, many, func(int) int { return 0 })
	far := gather(t, cl, 1, func(int) int { return 1 })
	for i := range 4 {
		c.keeps(t, i, many-1-i, 0)
		im, err := far.ps[0].Import(patience(t), c.ps[many-1-i].Node(), c.ps[many-1-i].PID(), 1)
		if err != nil {
			t.Fatal(err)
		}
		c.books = append(c.books, &ledger{im: im, at: 64})
	}
	end := c.start(t)
	kill(t, cl.nodes[0])
	sh, err := exec.LookPath("sh")
	testutil.Require(t, err == nil, "needs sh")
	cl.start(t, 0, func(_ int, cmd *exec.Cmd) *exec.Cmd {
		cmd.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$@"`, limit), "sh", cmd.Path}, cmd.Args[1:]...)
		cmd.Path = sh
		return cmd
	})
	reasons := []string{"no descriptors for more connections", "whom they were sent to is at its limit of open files", "too many open files"}
	// Each process asks its node for something, or hears why it is not served.
	ask := func() (back []bool) {
		back = make([]bool, many)
		var wg sync.WaitGroup
		for i, p := range c.ps {
			wg.Go(func() {
				e, err := p.Export(9, make([]byte, 64))
				switch {
				case err == nil:
					back[i] = true
					if err := e.Close(); err != nil {
						t.Error(err)
					}
				case errors.Is(err, vmmc.ErrClosed):
				case !errors.Is(err, vmmc.ErrNoDaemon) || !slices.ContainsFunc(reasons, func(r string) bool { return strings.Contains(err.Error(), r) }):
					t.Errorf("process %d is told: %v", p.PID(), err)
				}
			})
		}
		wg.Wait()
		return back
	}
	served := 0
	for _, b := range ask() {
		if b {
			served++
		}
	}
	t.Logf("of %d processes %d have come back to a daemon with %d descriptors", many, served, limit)
	if served == 0 || served == many {
		t.Errorf("%d processes have come back", served)
	}
	// Some of those that count nothing leave, and all others find room.
	left := c.ps[4 : many-4]
	for _, p := range left {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	for end := time.Now().Add(20 * time.Second); ; {
		missing := 0
		for i, b := range ask() {
			if !b && (i < 4 || i >= many-4) {
				missing++
			}
		}
		if missing == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d processes have not come back", missing)
		}
		time.Sleep(10 * time.Millisecond)
	}
	end()
}

// begin starts a node and does not wait for it.
func (c *cluster) begin(t *testing.T, i int) {
	t.Helper()
	cmd := testutil.Command(t, "node", c.dir, fmt.Sprintf("n%d", i))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.nodes[i] = cmd
}

// Daemons are killed again and again at any time, before they listen, while processes come back to
// them, and when all are there, and connections are cut meanwhile: nothing is lost or done twice,
// and every call that the daemons have a part in succeeds.
func TestRestartsAtAnyTime(t *testing.T) {
	seed, restarts := uint64(rand.Uint32()), 10
	for name, v := range map[string]func(n uint64){
		"VMMC_RESTARTS_SEED": func(n uint64) { seed = n },
		"VMMC_RESTARTS":      func(n uint64) { restarts = int(n) },
	} {
		if s := os.Getenv(name); s != "" {
			n, err := strconv.ParseUint(s, 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			v(n)
		}
	}
	t.Logf("VMMC_RESTARTS=%d VMMC_RESTARTS_SEED=%d", restarts, seed)
	rng := rand.New(rand.NewPCG(seed, 7))
	cl, ds := upLoose(t, 2)
	const many = 16
	c := gather(t, cl, many, func(i int) int { return i % 2 })
	for i := range many / 2 {
		c.keeps(t, i, (i+1)%many, 0)  // between nodes
		c.keeps(t, i, (i+2)%many, 64) // on one
	}
	end := c.start(t)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var calls atomic.Uint64
	for i := range 4 {
		p, r := c.ps[i], rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				o := c.ps[r.IntN(many)]
				var what io.Closer
				var err error
				if r.IntN(4) == 0 {
					what, err = p.Export(9, make([]byte, 64))
				} else {
					ctx := patience(t)
					for what, err = p.Import(ctx, o.Node(), o.PID(), 1); errors.Is(err, vmmc.ErrUnreachable) && ctx.Err() == nil; {
						time.Sleep(10 * time.Millisecond) // it was not there to begin with
						what, err = p.Import(ctx, o.Node(), o.PID(), 1)
					}
				}
				if err == nil {
					err = what.Close()
				}
				if err != nil {
					t.Errorf("process %d: %v", p.PID(), err)
				}
				calls.Add(1)
			}
		})
	}
	for range restarts {
		victims := []int{0, 1}
		if k := rng.IntN(3); k < 2 {
			victims = []int{k}
		}
		for _, i := range victims {
			kill(t, cl.nodes[i])
		}
		if rng.IntN(2) == 0 {
			ds[rng.IntN(len(ds))].cut()
		}
		for _, i := range victims {
			cl.begin(t, i)
		}
		time.Sleep(time.Duration(rng.Int64N(int64(300 * time.Millisecond)))) // any time is meant
	}
	for i := range 2 {
		kill(t, cl.nodes[i])
		cl.start(t, i, nil)
	}
	for i := range 2 {
		c.served(t, cl, i)
	}
	close(stop)
	wg.Wait()
	end()
	t.Logf("%d calls to daemons", calls.Load())
}

// Imports that are under way when the exporter's daemon dies, or is told to end, go on with the
// next one: those that wait for an export, and those of which a link is about to be made.
func TestImportUnderWayWhenTheExportersDaemonEnds(t *testing.T) {
	t.Run("killed", func(t *testing.T) { importUnderWay(t, (*cluster).kill) })
	t.Run("told to end", func(t *testing.T) { importUnderWay(t, (*cluster).end) })
}

func importUnderWay(t *testing.T, end func(c *cluster, t *testing.T, i int)) {
	cl := up(t, 2, nil, nil)
	p, q := join(t, cl, 0), join(t, cl, 1)
	const waiting = 3
	got := make(chan error, waiting)
	for i := range waiting {
		go func() {
			im, err := p.Import(patience(t), q.Node(), q.PID(), uint32(1+i))
			if err == nil {
				_, err = im.FetchAdd64(patience(t), 0, 1)
			}
			got <- err
		}()
	}
	time.Sleep(testutil.Slow * 100 * time.Millisecond) // they are at the exporter's node, or on their way to it
	for range 2 {
		end(cl, t, 1)
		select {
		case err := <-got:
			t.Fatalf("an import of what is not exported is over: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		cl.start(t, 1, nil)
	}
	for i := range waiting {
		if _, err := q.Export(uint32(1+i), make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
	}
	for range waiting {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
	// One that its context ends says so, and one of a node that was not there in the first place
	// fails at once.
	ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	go func() { _, err := p.Import(ctx, q.Node(), q.PID(), 9); got <- err }()
	time.Sleep(20 * time.Millisecond)
	end(cl, t, 1)
	if err := <-got; !errors.Is(err, vmmc.ErrTimeout) && !errors.Is(err, vmmc.ErrUnreachable) {
		t.Errorf("an import whose context ended: %v", err)
	}
	begun := time.Now()
	if _, err := p.Import(patience(t), q.Node(), q.PID(), 9); !errors.Is(err, vmmc.ErrUnreachable) || time.Since(begun) > 5*time.Second {
		t.Errorf("an import from a node that is not there, after %v: %v", time.Since(begun), err)
	}
}
