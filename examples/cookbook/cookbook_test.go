package cookbook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/queue"
	"github.com/vmmc-go/vmmc/view"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// TestMain checks that the tests leave no goroutine and no descriptor behind.
func TestMain(m *testing.M) { vmmctest.Main(m) }

func number(s string) int {
	n, err := strconv.Atoi(s)
	check(err)
	return n
}

// stay keeps a process until the test ends it.
func stay(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// lines fails the test unless these are the next lines of a process.
func lines(t *testing.T, p *vmmctest.Proc, want ...string) {
	t.Helper()
	for _, w := range want {
		if got := p.Line(); got != w {
			t.Fatalf("it printed %q, want %q", got, w)
		}
	}
}

// text is a long value, of which every part shows that it belongs to another one.
func text(n int) string { return strings.Repeat(fmt.Sprintf("%08d", n), 500) }

func init() {
	vmmctest.Role("cache", func(ctx context.Context, p *vmmc.Process, _ ...string) error {
		c := NewCache(ctx, p, "cache", 16)
		c.Put(ctx, 3, "pear")
		c.Put(ctx, 20, "plum")
		fmt.Println("ready")
		// Until the test ends it. Between nodes two gets take longer than two puts.
		for n := 0; ; n++ {
			c.Put(ctx, 7, text(n))
			if n%100 == 99 {
				time.Sleep(5 * time.Millisecond)
			}
		}
	})
	vmmctest.Role("readers", func(ctx context.Context, p *vmmc.Process, args ...string) error {
		c := entries(ctx, p, args[0])
		for _, key := range []uint64{3, 20, 4} {
			fmt.Println(Lookup(ctx, c, key))
		}
		for last, changes := "", 0; changes < 100; { // beside the puts
			v, ok := Lookup(ctx, c, 7)
			if ok && v != text(number(v[:8])) {
				return fmt.Errorf("torn: %.20q", v)
			}
			if v != last {
				last, changes = v, changes+1
			}
		}
		fmt.Println("all whole")
		return nil
	})
}

// Keys that are not there, and one whose place another key has taken, are not found.
func TestCache(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	lines(t, vmmctest.Child(t, nodes[0], "cache"), "ready")
	for i, name := range []string{"cache", nodes[0].Name() + "/cache"} {
		reader := vmmctest.Child(t, nodes[i], "readers", name)
		lines(t, reader, "pear true", "plum true", " false", "all whole")
		if err := reader.Wait(); err != nil {
			t.Error(err)
		}
	}
}

func init() {
	vmmctest.Role("replica", func(ctx context.Context, p *vmmc.Process, _ ...string) error {
		Replica(ctx, p, "log")
		return nil
	})
}

func TestReplicatedLog(t *testing.T) {
	ctx := t.Context()
	nodes := vmmctest.Nodes(t, 3)
	p := nodes[0].Open(t)
	var procs []*vmmctest.Proc
	var replicas []*view.Remote[Record]
	for _, n := range nodes {
		proc := vmmctest.Child(t, n, "replica")
		lines(t, proc, "ready")
		im, err := p.ImportName(ctx, n.Name()+"/log")
		check(err)
		r, err := view.RemoteOf[Record](im)
		check(err)
		procs, replicas = append(procs, proc), append(replicas, r)
	}
	if err := Append(ctx, replicas, 1, "first"); err != nil {
		t.Fatal(err)
	}
	for _, proc := range procs {
		lines(t, proc, "1: first")
	}
	procs[2].Kill()
	if err := Append(ctx, replicas, 2, "second"); err != nil {
		t.Fatal(err)
	}
	for _, proc := range procs[:2] {
		lines(t, proc, "2: second")
	}
	procs[1].Kill()
	if err := Append(ctx, replicas, 3, "third"); err == nil {
		t.Fatal("a record at one of three replicas counts as kept")
	}
}

func init() {
	vmmctest.Role("worker", func(ctx context.Context, p *vmmc.Process, _ ...string) error {
		Work(ctx, p)
		return nil
	})
	vmmctest.Role("lazy worker", func(ctx context.Context, p *vmmc.Process, _ ...string) error {
		jobs, err := queue.Listen[Job](ctx, p, "jobs")
		check(err)
		fmt.Println("ready")
		job, err := jobs.Get(ctx)
		check(err)
		fmt.Println(job.Number)
		return stay(ctx)
	})
	vmmctest.Role("producer", func(ctx context.Context, p *vmmc.Process, args ...string) error {
		var jobs []Job
		for n := range number(args[0]) {
			jobs = append(jobs, Job{uint64(n), 7})
		}
		Submit(ctx, p, jobs)
		fmt.Println("done")
		return nil
	})
}

func TestWorkQueue(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	worker := vmmctest.Child(t, nodes[0], "worker")
	lines(t, worker, "ready")
	producer := vmmctest.Child(t, nodes[1], "producer", "3")
	lines(t, worker, "job 0 of size 7", "job 1 of size 7", "job 2 of size 7")
	lines(t, producer, "done")

	// A worker takes one job and is killed. The producer is not told so of one job at once: the next
	// worker gets this one, too.
	worker.Kill()
	worker = vmmctest.Child(t, nodes[0], "lazy worker")
	lines(t, worker, "ready")
	const n = 20_000 // more than the queue has room for
	producer = vmmctest.Child(t, nodes[1], "producer", strconv.Itoa(n))
	lines(t, worker, "0")
	worker.Kill()
	worker = vmmctest.Child(t, nodes[0], "worker")
	lines(t, worker, "ready")
	seen := map[string]int{}
	for range n {
		seen[worker.Line()]++
	}
	lines(t, producer, "done")
	for i := range n {
		if line := fmt.Sprintf("job %d of size 7", i); seen[line] != 1 {
			t.Fatalf("%q: %d times", line, seen[line])
		}
	}
}

func init() {
	vmmctest.Role("echo", func(_ context.Context, p *vmmc.Process, _ ...string) error {
		ServeEcho(p)
		return nil
	})
	vmmctest.Role("caller", func(ctx context.Context, p *vmmc.Process, args ...string) error {
		fmt.Println(Echo(ctx, p, args[0]))
		return nil
	})
}

func TestRPC(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	vmmctest.Child(t, nodes[0], "echo")
	for _, n := range nodes {
		lines(t, vmmctest.Child(t, n, "caller", "hello"), "hello")
	}
}

func init() {
	vmmctest.Role("gather", func(ctx context.Context, p *vmmc.Process, args ...string) error {
		fmt.Println(Gather(ctx, p, number(args[0]), number(args[1])))
		return nil
	})
	vmmctest.Role("give", func(ctx context.Context, p *vmmc.Process, args ...string) error {
		part := make([]float64, number(args[1]))
		for i := range part {
			part[i] = float64(number(args[0]) + 1)
		}
		Give(ctx, p, number(args[0])*len(part), part)
		return nil
	})
}

func TestSharedSlice(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	sum := vmmctest.Child(t, nodes[0], "gather", "3", "10000")
	for i := range 3 {
		vmmctest.Child(t, nodes[i%2], "give", strconv.Itoa(i), "10000")
	}
	lines(t, sum, "60000")
}

func init() {
	vmmctest.Role("heat", func(ctx context.Context, p *vmmc.Process, args ...string) error {
		for i, name := range []string{"VMMC_GROUP", "VMMC_SIZE", "VMMC_RANK"} { // as vmmc run does
			check(os.Setenv(name, args[i]))
		}
		fmt.Println(Heat(ctx, p, number(args[3]), number(args[4])))
		return nil
	})
}

// A rod of one piece and one of four, on two nodes, get equally warm.
func TestStencil(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	const cells, steps = 8, 50
	alone := Heat(t.Context(), nodes[0].Open(t), 4*cells, steps)
	id := fmt.Sprintf("1:00112233445566778899aabbccddeeff:%s*2,%s*2", nodes[0].Name(), nodes[1].Name())
	var members []*vmmctest.Proc
	for rank := range 4 {
		members = append(members, vmmctest.Child(
			t, nodes[rank/2], "heat",
			id, "4", strconv.Itoa(rank), strconv.Itoa(cells), strconv.Itoa(steps),
		))
	}
	for i, m := range members {
		lines(t, m, fmt.Sprint(alone[i*cells:(i+1)*cells]))
	}
	colder := func(a, b float64) int { return cmp.Compare(b, a) }
	if !slices.IsSortedFunc(alone, colder) || alone[0] < 50 {
		t.Errorf("the rod is not warm at the left: %v", alone)
	}
}

func init() {
	vmmctest.Role("count", func(ctx context.Context, p *vmmc.Process, _ ...string) error {
		mem, err := p.Alloc(8)
		check(err)
		_, err = p.Publish(ctx, "visits", mem.Bytes())
		check(err)
		fmt.Println("ready")
		return stay(ctx)
	})
}

func TestRestart(t *testing.T) {
	ctx := t.Context()
	nodes := vmmctest.Nodes(t, 2)
	server := vmmctest.Child(t, nodes[0], "count")
	here := NewVisits(ctx, nodes[0].Open(t), "visits")
	there := NewVisits(ctx, nodes[1].Open(t), nodes[0].Name()+"/visits")
	got := []uint64{here.Add(ctx), there.Add(ctx)}
	server.Kill()
	vmmctest.Child(t, nodes[0], "count")
	got = append(got, there.Add(ctx), here.Add(ctx))
	if want := []uint64{0, 1, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func init() {
	vmmctest.Role("read", func(ctx context.Context, p *vmmc.Process, args ...string) error {
		im, err := p.ImportName(ctx, args[0])
		if err != nil {
			fmt.Println(errors.Is(err, vmmc.ErrNoRights))
			return nil
		}
		b := make([]byte, im.Size())
		check(im.Get(ctx, b, 0))
		fmt.Printf("%.5s %t\n", b, errors.Is(im.Send(ctx, b, 0), vmmc.ErrNoRights))
		return nil
	})
}

func TestRights(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	e := Notice(t.Context(), nodes[0].Open(t), nodes[1].Name(), "hello")
	lines(t, vmmctest.Child(t, nodes[1], "read", nodes[0].Name()+"/notice"), "hello true")
	lines(t, vmmctest.Child(t, nodes[0], "read", "notice"), "true")
	check(e.Close())
}
