package mpi

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/group"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/vmmctest"
)

func TestMain(m *testing.M) { vmmctest.Main(m) }

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
	{"tcp over two nodes", "tcp", 2},
	{"mixed over two nodes", "", 2},
	{"via", "via", 1},
	{"via over two nodes", "via", 2},
	{"shm and via over two nodes", "shm,via", 2},
	{"via and tcp over two nodes", "via,tcp", 2},
}

// alone are the ways with one module and one node.
var alone = []way{ways[0], ways[1], ways[4]}

// rings are the ways whose modules are rings.
var rings = ways[:4]

// overWays runs a test for each way.
func overWays(t *testing.T, f func(t *testing.T, w way)) { eachWay(t, ways, f) }

// eachWay runs a test for some ways.
func eachWay(t *testing.T, ways []way, f func(t *testing.T, w way)) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) { f(t, w) })
	}
}

// job starts the ranks of a job, each a process of its own of this program. They are finished with
// the test.
func job(t testing.TB, w way, size int) []*Engine {
	t.Helper()
	nodes := vmmctest.Nodes(t, w.nodes)
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
	es := make([]*Engine, size)
	gs := make([]*group.Group, size)
	ps := make([]*vmmc.Process, size)
	for rank := range size {
		t.Setenv(nodeproto.GroupEnv, "1:"+hex.EncodeToString(id)+":"+strings.Join(parts, ","))
		t.Setenv(nodeproto.RankEnv, strconv.Itoa(rank))
		t.Setenv(nodeproto.SizeEnv, strconv.Itoa(size))
		var err error
		ps[rank] = at[rank].Open(t)
		if gs[rank], err = group.Join(within(t), ps[rank]); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		each(t, es, func(ctx context.Context, e *Engine) error {
			if t.Failed() { // others may wait for ever
				return e.release()
			}
			if e.closed { // the test has finished it
				return nil
			}
			return e.Finish(ctx, nil)
		})
		for _, g := range gs {
			if err := g.Leave(within(t)); err != nil {
				t.Error(err)
			}
		}
	})
	var wg sync.WaitGroup
	for rank, g := range gs {
		wg.Go(func() {
			var err error
			if es[rank], err = Start(within(t), ps[rank], g, Options{Module: w.module}); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return es
}

// meet has all ranks connect to all others, by module via as far as a receive has them connect.
func meet(t testing.TB, es []*Engine) {
	t.Helper()
	ctx := within(t)
	for _, e := range es {
		e.mu.Lock()
		for _, pr := range e.peers {
			pr.want()
		}
		e.mu.Unlock()
	}
	for _, e := range es {
		for met := false; !met; time.Sleep(time.Millisecond) {
			if ctx.Err() != nil {
				t.Fatalf("rank %d does not connect to all others", e.rank)
			}
			e.mu.Lock()
			met = true
			for _, pr := range e.peers {
				switch p := pr.port.(type) {
				case *ring:
					met = met && p.state == ringConnected
				case *viaPort:
					met = met && p.im != nil
				}
			}
			e.mu.Unlock()
		}
	}
}

// block has a port take no packets, until unblock is called.
func block(port Port) (unblock func()) {
	if r, ok := port.(*ring); ok {
		stalled := r.stalled
		r.stalled = true
		return func() { r.stalled = stalled }
	}
	p := port.(*viaPort)
	sent := p.sent
	p.sent = p.acked + prepost
	return func() { p.sent = sent }
}

// each runs f for all ranks at the same time. Where it fails the contexts of the others end.
func each(t testing.TB, es []*Engine, f func(ctx context.Context, e *Engine) error) {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), bound)
	defer stop()
	var wg sync.WaitGroup
	for rank, e := range es {
		if e == nil {
			continue
		}
		wg.Go(func() {
			if err := f(ctx, e); err != nil {
				t.Errorf("rank %d: %v", rank, err)
				stop()
			}
		})
	}
	wg.Wait()
}

// all are the ranks of a job, as a communicator has them.
func (e *Engine) all() []int {
	group := make([]int, e.size)
	for i := range group {
		group[i] = i
	}
	return group
}

func (e *Engine) to(rank, tag int) *Target {
	return &Target{Rank: rank, Source: e.rank, Tag: tag, Group: e.all()}
}

func (e *Engine) from(rank, tag int) *Source {
	return &Source{Rank: rank, Source: rank, Tag: tag, Group: e.all()}
}
