//go:build linux

package mpiabi

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/group"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/mpi"
	"github.com/vmmc-go/vmmc/vmmctest"
)

func TestMain(m *testing.M) { vmmctest.Main(m) }

// bound is a guard against hanging.
const bound = time.Minute

// rank is a rank of a test's job: an environment, and memory of its program.
type rank struct {
	*Env
	*cMemory
	stderr *bytes.Buffer // Read it when no call is under way.
	status *int          // the status of the program's end, or -1
	begin  func(ctx context.Context) (*mpi.Comm, error)
}

// newRank makes an environment that ends in variables.
func newRank(t testing.TB) *rank {
	t.Helper()
	r := &rank{cMemory: newMemory(t), stderr: &bytes.Buffer{}, status: new(int)}
	*r.status = -1
	r.begin = func(ctx context.Context) (*mpi.Comm, error) { return mpi.Init(ctx) }
	r.Env = New(Config{
		Init:   func(ctx context.Context, _ func(int, error)) (*mpi.Comm, error) { return r.begin(ctx) },
		Exit:   func(status int) { *r.status = status },
		Stderr: r.stderr,
	})
	return r
}

// call calls by name.
func (r *rank) call(name string, args ...uint64) int32 {
	ctx, stop := context.WithCancel(r.Context())
	defer stop() // No call keeps its context.
	return r.Call(ctx, Number(name), args)
}

// must fails the test unless the call succeeds.
func (r *rank) must(name string, args ...uint64) {
	r.t.Helper()
	if code := r.call(name, args...); code != errSuccess {
		r.t.Errorf("%s: code %d, want 0: %s", name, code, r.stderr)
	}
}

// job makes the ranks of a job on a node, and initializes them. They are finalized with the test. Errors of
// MPI_COMM_WORLD are returned.
func job(t testing.TB, size int) []*rank {
	t.Helper()
	return jobOn(t, vmmctest.Nodes(t, 1)[0], size)
}

// jobOn is job on a node that other jobs use, too.
func jobOn(t testing.TB, node *vmmctest.Node, size int) []*rank {
	t.Helper()
	rs := ranksOn(t, node, size, func(r *rank) { r.must("MPI_Finalize") })
	each(rs, func(_ int, r *rank) {
		r.must("MPI_Init", 0, 0)
		r.world.handler.Store(uint64(errorsReturn))
	})
	if t.Failed() {
		t.FailNow()
	}
	return rs
}

// ranksOn makes the ranks of a job that have not begun MPI. end ends it.
func ranksOn(t testing.TB, node *vmmctest.Node, size int, end func(r *rank)) []*rank {
	t.Helper()
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	t.Setenv(nodeproto.GroupEnv, fmt.Sprintf("1:%s:%s*%d", hex.EncodeToString(id), node.Name(), size))
	t.Setenv(nodeproto.SizeEnv, strconv.Itoa(size))
	rs, ps, gs := make([]*rank, size), make([]*vmmc.Process, size), make([]*group.Group, size)
	ctx, stop := context.WithTimeout(context.Background(), bound)
	t.Cleanup(stop)
	for i := range rs {
		t.Setenv(nodeproto.RankEnv, strconv.Itoa(i))
		ps[i] = node.Open(t)
		var err error
		if gs[i], err = group.Join(ctx, ps[i]); err != nil {
			t.Fatal(err)
		}
		rs[i] = newRank(t)
		rs[i].begin = func(ctx context.Context) (*mpi.Comm, error) {
			return mpi.Init(ctx, mpi.WithGroup(ps[i], gs[i]))
		}
	}
	t.Cleanup(func() {
		if t.Failed() { // Others may wait for ever.
			return
		}
		each(rs, func(_ int, r *rank) { end(r) })
		for _, g := range gs {
			if err := g.Leave(ctx); err != nil {
				t.Error(err)
			}
		}
	})
	return rs
}

// each runs f for all ranks at the same time.
func each(rs []*rank, f func(i int, r *rank)) {
	var wg sync.WaitGroup
	for i, r := range rs {
		wg.Go(func() { f(i, r) })
	}
	wg.Wait()
}
