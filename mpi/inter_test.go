package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc/mpi"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// between makes an intercommunicator of the first ranks of a communicator, upwards, and of the others,
// downwards. The leaders are the last ones of each group.
func between(ctx context.Context, world *mpi.Comm, first int) (half, inter *mpi.Comm, err error) {
	color, key := 0, world.Rank()
	if world.Rank() >= first {
		color, key = 1, -world.Rank()
	}
	if half, err = world.Split(ctx, color, key); err != nil {
		return nil, nil, err
	}
	remote := first // the last one of the second group
	if color == 1 {
		remote = first - 1
	}
	inter, err = half.Intercomm(ctx, half.Size()-1, world, remote, 17)
	return half, inter, err
}

// All calls of intercommunicators, with groups of all sizes.
func TestIntercomm(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			const size = 5
			world := job(t, w, size)
			for first := 1; first < size; first++ {
				each(t, world, func(ctx context.Context, c *mpi.Comm) error { return intercomm(ctx, c, first) })
			}
		})
	}
}

func intercomm(ctx context.Context, world *mpi.Comm, first int) error {
	half, inter, err := between(ctx, world, first)
	if err != nil {
		return err
	}
	if half.Inter() || half.RemoteSize() != 0 || !inter.Inter() {
		return fmt.Errorf("which one is an intercommunicator: %w", errWrong)
	}
	mine, others := ranksOfHalf(world.Size(), first, world.Rank() >= first)
	if err := talkBetween(ctx, world, inter, mine, others); err != nil {
		return err
	}
	dup, err := inter.Dup(ctx)
	if err != nil {
		return err
	}
	if err := talkBetween(ctx, world, dup, mine, others); err != nil {
		return fmt.Errorf("the dup: %w", err)
	}
	// The even ranks of each group in the order of the world downwards; the others in none, or alone.
	color := world.Rank() % 2
	part, err := inter.Split(ctx, color, -world.Rank())
	if err != nil {
		return err
	}
	here, there := slices.Clone(mine), slices.Clone(others)
	for _, list := range []*[]int{&here, &there} {
		*list = slices.DeleteFunc(*list, func(rank int) bool { return rank%2 != color })
		slices.Sort(*list)
		slices.Reverse(*list)
	}
	if (part == nil) != (len(there) == 0) {
		return fmt.Errorf("a part with the ranks %v and %v: %v: %w", here, there, part, errWrong)
	}
	if part != nil {
		if err := talkBetween(ctx, world, part, here, there); err != nil {
			return fmt.Errorf("the split: %w", err)
		}
	}
	if none, err := inter.Split(ctx, mpi.Undefined, 0); none != nil || err != nil {
		return fmt.Errorf("no color: %w", errors.Join(err, errWrong))
	}
	return mergeBoth(ctx, world, inter, mine, others, first)
}

// ranksOfHalf lists the ranks of one's own group of between, and of the other one.
func ranksOfHalf(size, first int, second bool) (mine, others []int) {
	for rank := range first {
		mine = append(mine, rank)
	}
	for rank := size - 1; rank >= first; rank-- {
		others = append(others, rank)
	}
	if second {
		mine, others = others, mine
	}
	return mine, others
}

// talkBetween checks the groups of an intercommunicator, and all its calls that send.
func talkBetween(ctx context.Context, world, inter *mpi.Comm, mine, others []int) error {
	for _, one := range []struct {
		g    mpi.Group
		want []int
	}{{inter.Group(), mine}, {inter.RemoteGroup(), others}} {
		got, err := ranksOf(one.g, world.Group())
		if err != nil {
			return err
		}
		if err := differs("a group", got, one.want); err != nil {
			return err
		}
	}
	if inter.Size() != len(mine) || inter.RemoteSize() != len(others) || mine[inter.Rank()] != world.Rank() {
		return fmt.Errorf("rank %d of %d and %d: %w", inter.Rank(), inter.Size(), inter.RemoteSize(), errWrong)
	}
	// Each rank sends to each other one, by all modes of naming the source.
	for rank := range others {
		if err := mpi.Send(ctx, inter, []int{world.Rank()}, rank, inter.Rank()); err != nil {
			return err
		}
	}
	for rank, want := range others {
		in := []int{0}
		source := rank
		if rank%2 == 1 {
			source = mpi.AnySource
		}
		st, err := mpi.Recv(ctx, inter, in, source, rank)
		if err != nil {
			return err
		}
		if in[0] != want || st.Source != rank {
			return fmt.Errorf("rank %d of the world, %+v, want %d: %w", in[0], st, want, errWrong)
		}
	}
	if err := inter.Barrier(ctx); err != nil {
		return err
	}
	if err := bcastBetween(ctx, world, inter, mine, others); err != nil {
		return err
	}
	// The groups give another number of values each.
	low := slices.Min(mine) < slices.Min(others)
	count := func(first bool) int {
		if first {
			return 3
		}
		return 2000
	}
	out := slices.Repeat([]int{world.Rank()}, count(low))
	in := make([]int, count(!low)*len(others))
	if err := mpi.Allgather(ctx, inter, out, in); err != nil {
		return err
	}
	want := make([]int, 0, len(in))
	for _, rank := range others {
		want = append(want, slices.Repeat([]int{rank}, count(!low))...)
	}
	if err := differs("allgather", in, want); err != nil {
		return err
	}
	sum := []int{0}
	if err := mpi.Allreduce(ctx, inter, []int{1 << world.Rank()}, sum, mpi.Sum[int]()); err != nil {
		return err
	}
	wantSum := 0
	for _, rank := range others {
		wantSum += 1 << rank
	}
	if sum[0] != wantSum {
		return fmt.Errorf("allreduce: %#x, want %#x: %w", sum[0], wantSum, errWrong)
	}
	// Without waiting for each:
	sum[0] = 0
	a, err := mpi.Iallreduce(inter, []int{1 << world.Rank()}, sum, mpi.Sum[int]())
	if err != nil {
		return err
	}
	b, err := inter.Ibarrier()
	if err != nil {
		return err
	}
	if _, err := mpi.Waitall(ctx, a, b); err != nil {
		return err
	}
	if sum[0] != wantSum {
		return fmt.Errorf("non-blocking allreduce: %#x, want %#x: %w", sum[0], wantSum, errWrong)
	}
	return nil
}

// bcastBetween has each rank be the root once.
func bcastBetween(ctx context.Context, world, inter *mpi.Comm, mine, others []int) error {
	all := slices.Concat(mine, others)
	slices.Sort(all)
	for _, root := range all {
		buf := []int{-1, -1}
		at := slices.Index(others, root)
		switch {
		case root == world.Rank():
			at, buf = mpi.Root, []int{root, 7}
		case at < 0:
			at = mpi.ProcNull
		}
		if err := mpi.Bcast(ctx, inter, buf, at); err != nil {
			return err
		}
		want := []int{root, 7}
		if at == mpi.ProcNull {
			want = []int{-1, -1}
		}
		if err := differs(fmt.Sprint("bcast of ", root), buf, want); err != nil {
			return err
		}
	}
	return nil
}

// mergeBoth merges in all orders.
func mergeBoth(ctx context.Context, world, inter *mpi.Comm, mine, others []int, first int) error {
	second := world.Rank() >= first
	for _, high := range [][2]bool{{false, true}, {true, false}, {false, false}, {true, true}} {
		h, o := high[0], high[1] // of this group, of the other one
		if second {
			h, o = o, h
		}
		both, err := inter.Merge(ctx, h)
		if err != nil {
			return err
		}
		got, err := ranksOf(both.Group(), world.Group())
		if err != nil {
			return err
		}
		want := slices.Concat(mine, others)
		if h && !o || h == o && got[0] != want[0] { // either, if they are the same
			want = slices.Concat(others, mine)
		}
		if err := differs("merged ranks", got, want); err != nil {
			return err
		}
		all := make([]int, len(want))
		if err := mpi.Allgather(ctx, both, []int{world.Rank()}, all); err != nil {
			return err
		}
		if err := differs("merged ranks, by what they say", all, want); err != nil {
			return err
		}
	}
	if inter.Size() > 1 {
		if _, err := inter.Merge(ctx, inter.Rank() == 1); !errors.Is(err, mpi.ErrArg) {
			return fmt.Errorf("ranks of a group do not agree: %w", err)
		}
	} else if _, err := inter.Merge(ctx, false); inter.RemoteSize() > 1 && !errors.Is(err, mpi.ErrArg) {
		return fmt.Errorf("ranks of the other group do not agree: %w", err)
	}
	return nil
}

// What intercommunicators do not have, and what none can be made of, are errors at all ranks.
func TestIntercommArguments(t *testing.T) {
	each(t, job(t, ways[0], 4), func(ctx context.Context, world *mpi.Comm) error {
		half, inter, err := between(ctx, world, 2)
		if err != nil {
			return err
		}
		errs := map[string]error{"scan": mpi.Scan(ctx, inter, []int{1}, []int{1}, mpi.Sum[int]())}
		errs["exscan"] = mpi.Exscan(ctx, inter, []int{1}, []int{1}, mpi.Sum[int]())
		_, errs["create"] = inter.Create(ctx, inter.Group())
		_, errs["create_group"] = inter.CreateGroup(ctx, inter.Group(), 0)
		_, errs["agree"] = inter.Agree(ctx, 0)
		_, errs["shrink"] = inter.Shrink(ctx)
		_, errs["window"] = mpi.WinAllocate[int](ctx, inter, 1)
		_, errs["cart"] = inter.Cart(ctx, []int{2}, []bool{true}, false)
		_, errs["graph"] = inter.Graph(ctx, nil, nil, false)
		_, errs["intercomm"] = inter.Intercomm(ctx, 0, world, 0, 0)
		_, errs["merge"] = half.Merge(ctx, false)
		_, errs["no peer"] = half.Intercomm(ctx, 0, nil, 0, 0)
		// Both groups are the world's.
		_, errs["overlap"] = world.Intercomm(ctx, 0, world, 0, 3)
		for what, err := range errs {
			if !errors.Is(err, mpi.ErrComm) {
				return fmt.Errorf("%s: %w", what, err)
			}
		}
		if _, err := half.Intercomm(ctx, 2, world, 0, 0); !errors.Is(err, mpi.ErrRank) {
			return fmt.Errorf("a leader that is not there: %w", err)
		}
		want := mpi.ErrComm // what the leader's error causes
		if half.Rank() == 0 {
			want = mpi.ErrRank
		}
		if _, err := half.Intercomm(ctx, 0, world, 4, 0); !errors.Is(err, want) {
			return fmt.Errorf("a remote leader that is not there: %w", err)
		}
		one, two, three := []int{1}, []int{1, 2}, []int{1, 2, 3}
		apart, short, over := mpi.Parts{Counts: []int{1, 1}}, mpi.Parts{Counts: []int{1}}, mpi.Parts{Counts: []int{2, 2}}
		add := mpi.Sum[int]()
		for what, err := range map[string]error{
			"bcast":    mpi.Bcast(ctx, inter, one, 2),
			"reduce":   mpi.Reduce(ctx, inter, one, one, add, -1),
			"gather":   mpi.Gather(ctx, inter, one, two, 2),
			"gatherv":  mpi.Gatherv(ctx, inter, one, two, apart, -2),
			"scatter":  mpi.Scatter(ctx, inter, two, one, 2),
			"scatterv": mpi.Scatterv(ctx, inter, two, apart, one, 5),
		} {
			if !errors.Is(err, mpi.ErrRoot) {
				return fmt.Errorf("%s: a root that is not there: %w", what, err)
			}
		}
		for what, err := range map[string]error{
			"gather":               mpi.Gather(ctx, inter, one, three, mpi.Root),
			"gatherv":              mpi.Gatherv(ctx, inter, one, two, short, mpi.Root),
			"scatter":              mpi.Scatter(ctx, inter, three, one, mpi.Root),
			"scatterv":             mpi.Scatterv(ctx, inter, two, over, one, mpi.Root),
			"allgather":            mpi.Allgather(ctx, inter, one, three),
			"allgatherv":           mpi.Allgatherv(ctx, inter, one, two, over),
			"alltoall":             mpi.Alltoall(ctx, inter, three, two),
			"alltoall, recv":       mpi.Alltoall(ctx, inter, two, three),
			"alltoallv":            mpi.Alltoallv(ctx, inter, two, short, two, apart),
			"alltoallv, recv":      mpi.Alltoallv(ctx, inter, two, apart, two, over),
			"reduce_scatter_block": mpi.ReduceScatterBlock(ctx, inter, three, one, add),
			"reduce_scatter":       mpi.ReduceScatter(ctx, inter, three, one, []int{1, 1}, add),
			"reduce_scatter, recv": mpi.ReduceScatter(ctx, inter, three, three, []int{1, 2}, add),
		} {
			if !errors.Is(err, mpi.ErrCount) {
				return fmt.Errorf("%s: a wrong count: %w", what, err)
			}
		}
		if err := mpi.Reduce(ctx, inter, one, one, mpi.Op[int]{}, mpi.Root); !errors.Is(err, mpi.ErrOp) {
			return fmt.Errorf("no operation: %w", err)
		}
		if err := mpi.Gather(ctx, inter, []*int{nil}, nil, 0); !errors.Is(err, mpi.ErrType) {
			return fmt.Errorf("pointers: %w", err)
		}
		if err := mpi.Send(ctx, inter, []int{1}, 2, 0); !errors.Is(err, mpi.ErrRank) {
			return fmt.Errorf("a rank that is not there: %w", err)
		}
		if err := mpi.Allgather(ctx, inter, []int{1}, []int{1}); !errors.Is(err, mpi.ErrCount) {
			return fmt.Errorf("half a value for each: %w", err)
		}
		return inter.Barrier(ctx)
	})
}

// A rank of one group is killed in a collective: it fails at all ranks of both groups. One revokes
// the intercommunicator: calls within the groups end too.
func TestIntercommFails(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			stops := []stopped{{4, "intercomm", "intercomm", 1}}
			cs, procs := faultJob(t, w, vmmctest.Nodes(t, w.nodes), 5, stops)
			inters, revoked := make([]*mpi.Comm, 4), make([]*mpi.Comm, 4)
			each(t, cs, func(ctx context.Context, c *mpi.Comm) (err error) {
				if _, inters[c.Rank()], err = between(ctx, c, 2); err == nil {
					revoked[c.Rank()], err = inters[c.Rank()].Dup(ctx)
				}
				return err
			})
			each(t, cs, func(ctx context.Context, c *mpi.Comm) error {
				in := revoked[c.Rank()]
				if c.Rank() == 3 {
					if err := in.Revoke(); err != nil {
						return err
					}
				}
				// Rank 3 takes no part: rank 2 waits for it within its group, the others for rank 2.
				if err := in.Barrier(ctx); !errors.Is(err, mpi.ErrRevoked) {
					return fmt.Errorf("a barrier that waits: %w", err)
				}
				return nil
			})
			var wg sync.WaitGroup
			wg.Go(func() { kill(t, stops, procs) })
			each(t, cs, func(ctx context.Context, c *mpi.Comm) error {
				if err := inters[c.Rank()].Barrier(ctx); !errors.Is(err, mpi.ErrProcFailed) {
					return fmt.Errorf("rank %d: a barrier without a rank: %w", c.Rank(), err)
				}
				in := inters[c.Rank()]
				root := 0
				switch c.Rank() {
				case 0:
					root = mpi.Root
				case 1:
					root = mpi.ProcNull
				}
				one, some := []int{1}, make([]int, in.RemoteSize())
				apart := mpi.Parts{Counts: slices.Repeat([]int{1}, in.RemoteSize())}
				add := mpi.Sum[int]()
				rooted := map[string]error{
					"gather":   mpi.Gather(ctx, in, one, some, root),
					"gatherv":  mpi.Gatherv(ctx, in, one, some, apart, root),
					"scatter":  mpi.Scatter(ctx, in, some, one, root),
					"scatterv": mpi.Scatterv(ctx, in, some, apart, one, root),
					"reduce":   mpi.Reduce(ctx, in, one, []int{0}, add, root),
				}
				for what, err := range rooted {
					if root == mpi.ProcNull && err != nil || root != mpi.ProcNull && !errors.Is(err, mpi.ErrProcFailed) {
						return fmt.Errorf("rank %d: %s without a rank: %w", c.Rank(), what, err)
					}
				}
				six, own := make([]int, 6), make([]int, 6/in.Size())
				for what, err := range map[string]error{
					"allgather":            mpi.Allgather(ctx, in, one, some),
					"allgatherv":           mpi.Allgatherv(ctx, in, one, some, apart),
					"alltoall":             mpi.Alltoall(ctx, in, some, slices.Clone(some)),
					"alltoallv":            mpi.Alltoallv(ctx, in, some, apart, slices.Clone(some), apart),
					"reduce_scatter_block": mpi.ReduceScatterBlock(ctx, in, six, own, add),
				} {
					if !errors.Is(err, mpi.ErrProcFailed) {
						return fmt.Errorf("rank %d: %s without a rank: %w", c.Rank(), what, err)
					}
				}
				if in.GetFailed().Size() != 1 {
					return fmt.Errorf("no rank of either group is gone: %w", errWrong)
				}
				return nil
			})
			wg.Wait()
			endAll(t, cs)
		})
	}
}
