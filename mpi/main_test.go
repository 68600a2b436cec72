package mpi_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/group"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/mpi"
	"github.com/vmmc-go/vmmc/vmmctest"
)

func TestMain(m *testing.M) {
	pair.Step = atSteps.At
	vmmctest.Main(m)
}

// bound is a guard against hanging.
const bound = 3 * time.Minute

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), bound)
	t.Cleanup(stop)
	return ctx
}

// way is how the ranks of a test reach each other.
type way struct {
	name   string
	module string
	nodes  int
}

// ways are each module alone, and several in one job.
var ways = []way{
	{"shm", "shm", 1},
	{"tcp", "tcp", 1},
	{"mixed over two nodes", "", 2},
	{"via", "via", 1},
	{"shm and via over two nodes", "shm,via", 2},
}

// job makes the ranks of a job, each a process of its own of this program. They are finalized with
// the test.
func job(t testing.TB, w way, size int) []*mpi.Comm {
	t.Helper()
	return jobOn(t, vmmctest.Nodes(t, w.nodes), w.module, size)
}

// jobOn is job on nodes that other jobs use, too.
func jobOn(t testing.TB, nodes []*vmmctest.Node, module string, size int) []*mpi.Comm {
	t.Helper()
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	var parts []string
	var at []*vmmctest.Node
	for i, n := range nodes {
		count := (size - i + len(nodes) - 1) / len(nodes)
		if count > 0 {
			parts = append(parts, fmt.Sprintf("%s*%d", n.Name(), count))
		}
		for range count {
			at = append(at, n)
		}
	}
	cs, gs, ps := make([]*mpi.Comm, size), make([]*group.Group, size), make([]*vmmc.Process, size)
	t.Setenv(nodeproto.GroupEnv, "1:"+hex.EncodeToString(id)+":"+strings.Join(parts, ","))
	t.Setenv(nodeproto.SizeEnv, strconv.Itoa(size))
	for rank := range size {
		t.Setenv(nodeproto.RankEnv, strconv.Itoa(rank))
		var err error
		ps[rank] = at[rank].Open(t)
		if gs[rank], err = group.Join(within(t), ps[rank]); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for rank, g := range gs {
		wg.Go(func() {
			var err error
			if cs[rank], err = mpi.Init(within(t), mpi.WithGroup(ps[rank], g), mpi.WithModule(module)); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() {
		if t.Failed() { // others may wait for ever
			return
		}
		each(t, cs, func(ctx context.Context, c *mpi.Comm) error { return c.Finalize(ctx) })
		for _, g := range gs {
			if err := g.Leave(within(t)); err != nil {
				t.Error(err)
			}
		}
	})
	return cs
}

// child is a rank that is a process of its own, so that it can be killed.
type child struct {
	role string
	args []string
}

// jobWith makes the ranks of a job on nodes, of which some are children. It returns the others, which are
// not finalized with the test.
func jobWith(t testing.TB, module string, on []*vmmctest.Node, children map[int]child) ([]*mpi.Comm, map[int]*vmmctest.Proc) {
	t.Helper()
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	var parts []string
	for first, i := 0, 1; i <= len(on); i++ {
		if i == len(on) || on[i] != on[first] {
			parts = append(parts, fmt.Sprintf("%s*%d", on[first].Name(), i-first))
			first = i
		}
	}
	t.Setenv(nodeproto.GroupEnv, "1:"+hex.EncodeToString(id)+":"+strings.Join(parts, ","))
	t.Setenv(nodeproto.SizeEnv, strconv.Itoa(len(on)))
	procs := map[int]*vmmctest.Proc{}
	var cs []*mpi.Comm
	var gs []*group.Group
	var ps []*vmmc.Process
	for rank, node := range on {
		t.Setenv(nodeproto.RankEnv, strconv.Itoa(rank))
		if c, ok := children[rank]; ok {
			procs[rank] = vmmctest.Child(t, node, c.role, c.args...)
			continue
		}
		p := node.Open(t)
		g, err := group.Join(within(t), p)
		if err != nil {
			t.Fatal(err)
		}
		ps, gs, cs = append(ps, p), append(gs, g), append(cs, nil)
	}
	var wg sync.WaitGroup
	for i, g := range gs {
		wg.Go(func() {
			var err error
			if cs[i], err = mpi.Init(within(t), mpi.WithGroup(ps[i], g), mpi.WithModule(module)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() {
		for _, g := range gs {
			_ = g.Leave(within(t))
		}
	})
	return cs, procs
}

// halved are the nodes of ranks, of which the first half are on the first node.
func halved(nodes []*vmmctest.Node, size int) []*vmmctest.Node {
	on := make([]*vmmctest.Node, size)
	for rank := range on {
		on[rank] = nodes[rank*len(nodes)/size]
	}
	return on
}

// each runs f for all ranks at the same time. Where it fails the contexts of the others end.
func each(t testing.TB, cs []*mpi.Comm, f func(ctx context.Context, c *mpi.Comm) error) {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), bound)
	defer stop()
	var wg sync.WaitGroup
	for _, c := range cs {
		wg.Go(func() {
			if err := f(ctx, c); err != nil {
				t.Errorf("rank %d: %v", c.Rank(), err)
				stop()
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// differs is an error unless two slices are the same.
func differs[T comparable](what string, got, want []T) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("%s: value %d is %v, want %v", what, i, got[i], want[i])
		}
	}
	return nil
}

var errWrong = errors.New("it is wrong")
