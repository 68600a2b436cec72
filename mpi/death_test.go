package mpi_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/group"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/mpi"
	"github.com/vmmc-go/vmmc/vmmctest"
)

func init() {
	vmmctest.Role("rank", lastRank)
	vmmctest.Role("computing rank", computing)
}

// computing is a rank that takes part in one barrier, and then computes for ever.
func computing(ctx context.Context, _ *vmmc.Process, args ...string) error {
	opts := []mpi.Option{mpi.WithModule(args[0])}
	if len(args) > 1 {
		opts = append(opts, mpi.WithFailed(func(rank int, err error) { fmt.Println(rank, errors.Is(err, mpi.ErrProcFailed)) }))
	}
	c, err := mpi.Init(ctx, opts...)
	if err != nil {
		return err
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	fmt.Println("computes")
	select {}
}

// A rank is killed. The others end, though they call nothing: but those that have chosen otherwise.
func TestJobEnds(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	t.Setenv(nodeproto.GroupEnv, "1:"+hex.EncodeToString(id)+":n1*3,n2*1")
	t.Setenv(nodeproto.SizeEnv, "4")
	var ranks [4]*vmmctest.Proc
	for rank := range ranks {
		t.Setenv(nodeproto.RankEnv, strconv.Itoa(rank))
		args := []string{""}
		if rank == 1 {
			args = append(args, "goes on")
		}
		ranks[rank] = vmmctest.Child(t, nodes[rank/3], "computing rank", args...)
	}
	for rank, r := range ranks {
		if got := r.Line(); got != "computes" {
			t.Fatalf("rank %d: %s", rank, got)
		}
	}
	ranks[2].Kill()
	for _, rank := range []int{0, 3} {
		if err := ranks[rank].Wait(); err == nil {
			t.Errorf("rank %d has ended without an error", rank)
		}
	}
	lines := []string{ranks[1].Line(), ranks[1].Line(), ranks[1].Line()}
	slices.Sort(lines)
	if want := []string{"0 true", "2 true", "3 true"}; !slices.Equal(lines, want) {
		t.Errorf("the rank that goes on was told %q, want %q", lines, want)
	}
}

// lastRank is the last rank of a job. It takes part in one barrier, and then in nothing.
func lastRank(ctx context.Context, p *vmmc.Process, args ...string) error {
	g, err := group.Join(ctx, p)
	if err != nil {
		return err
	}
	c, err := mpi.Init(ctx, mpi.WithGroup(p, g), mpi.WithModule(args[0]))
	if err != nil {
		return err
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	_, err = mpi.Recv(ctx, c, []int{0}, 0, 99)
	return err
}

// All collectives fail at all ranks when one of theirs is killed, and others go on.
func TestKilledInCollective(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			const size = 6
			on := halved(vmmctest.Nodes(t, w.nodes), size)
			cs, children := jobWith(t, w.module, on, map[int]child{size - 1: {"rank", []string{w.module}}})
			child := children[size-1]
			each(t, cs, func(ctx context.Context, c *mpi.Comm) error { return c.Barrier(ctx) })
			calls := map[string]func(ctx context.Context, c *mpi.Comm) error{
				"non-blocking allgather": func(ctx context.Context, c *mpi.Comm) error {
					q, err := mpi.Iallgather(c, []int{1}, make([]int, size))
					if err != nil {
						return err
					}
					_, err = q.Wait(ctx)
					return err
				},
				"gatherv": func(ctx context.Context, c *mpi.Comm) error {
					return mpi.Gatherv(ctx, c, []int{1}, make([]int, size), mpi.Parts{Counts: slices.Repeat([]int{1}, size)}, 0)
				},
				"barrier": func(ctx context.Context, c *mpi.Comm) error { return c.Barrier(ctx) },
				"allreduce": func(ctx context.Context, c *mpi.Comm) error {
					v := make([]float64, 5000)
					return mpi.Allreduce(ctx, c, v, make([]float64, 5000), mpi.Sum[float64]())
				},
			}
			first := "allreduce" // it is under way when the rank is killed
			var under sync.WaitGroup
			for rank, c := range cs {
				under.Go(func() {
					if err := calls[first](within(t), c); !errors.Is(err, mpi.ErrProcFailed) {
						t.Errorf("rank %d, %s under way: %v", rank, first, err)
					}
				})
			}
			child.Kill()
			under.Wait()
			each(t, cs, func(ctx context.Context, c *mpi.Comm) error {
				for what, call := range calls {
					if err := call(ctx, c); !errors.Is(err, mpi.ErrProcFailed) {
						t.Errorf("rank %d, a later %s: %v", c.Rank(), what, err)
					}
				}
				next, prev := (c.Rank()+1)%(size-1), (c.Rank()+size-2)%(size-1)
				_, err := mpi.Sendrecv(ctx, c, []int{1}, next, 0, []int{0}, prev, 0)
				return err
			})
			each(t, cs, func(ctx context.Context, c *mpi.Comm) error {
				if err := c.Finalize(ctx); !errors.Is(err, mpi.ErrProcFailed) {
					t.Errorf("rank %d: Finalize: %v", c.Rank(), err)
				}
				return nil
			})
		})
	}
}
