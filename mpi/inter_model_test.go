package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc/mpi"
)

// halves are the groups of an intercommunicator of n ranks: the first ones, and the others. Both are
// upwards, so that values of a group's ranks are combined in the order of all ranks.
type halves struct{ first, n int }

// of are the ranks of a group, from lo up to hi, and those of the other one.
func (h halves) of(second bool) (lo, hi, otherLo, otherHi int) {
	if second {
		return h.first, h.n, 0, h.first
	}
	return 0, h.first, h.first, h.n
}

const interKinds = 13

// call is prepare for an intercommunicator. Ranks of a step are those of both groups.
func (h halves) call(c *mpi.Comm, s step, second bool) call {
	lo, hi, from, end := h.of(second)
	n, others, k := hi-lo, end-from, s.k
	me := lo + c.Rank()
	own := func(rank int) int { return rank + s.salt }
	mine := values(own(me), k)
	theirs := joined(func(i int) int { return own(from + i) }, slices.Repeat([]int{k}, others))
	// root is the argument. At the root's group all but the root take no part.
	root, isRoot, none := s.root-from, s.root == me, s.root != me && s.root >= lo && s.root < hi
	switch {
	case isRoot:
		root = mpi.Root
	case none:
		root = mpi.ProcNull
	}
	op := mpi.OpOf(compose, false)
	aff, folded := affines(own(me), k), make([]affine, k)
	eq := func(what string, got, want []int64) func() error {
		return func() error { return differs(what, got, want) }
	}
	atRoot := func(v []int64) []int64 {
		if isRoot {
			return v
		}
		return nil
	}
	fromRoot := func(v []int64) []int64 { // what those of the other group than the root's get
		if isRoot || none {
			return empty(len(v))
		}
		return v
	}
	toRoot := func(i int) int { return s.counts[from+i][s.root] }
	switch s.kind {
	case 0:
		buf := empty(k)
		if isRoot {
			copy(buf, mine)
		}
		want := fromRoot(values(own(s.root), k))
		if isRoot {
			want = mine
		}
		return call{
			func(ctx context.Context) error { return mpi.Bcast(ctx, c, buf, root) },
			func() (*mpi.Request, error) { return mpi.Ibcast(c, buf, root) },
			func() (*mpi.Persistent, error) { return mpi.BcastInit(c, buf, root) },
			eq("bcast", buf, want),
		}
	case 1:
		return call{
			func(ctx context.Context) error { return mpi.Reduce(ctx, c, aff, folded, op, root) },
			func() (*mpi.Request, error) { return mpi.Ireduce(c, aff, folded, op, root) },
			func() (*mpi.Persistent, error) { return mpi.ReduceInit(c, aff, folded, op, root) },
			func() error {
				if !isRoot {
					return differs("reduce", folded, make([]affine, k))
				}
				return differs("reduce", folded, fold(own(from), own(end-1), k))
			},
		}
	case 2:
		return call{
			func(ctx context.Context) error { return mpi.Allreduce(ctx, c, aff, folded, op) },
			func() (*mpi.Request, error) { return mpi.Iallreduce(c, aff, folded, op) },
			func() (*mpi.Persistent, error) { return mpi.AllreduceInit(c, aff, folded, op) },
			func() error { return differs("allreduce", folded, fold(own(from), own(end-1), k)) },
		}
	case 3:
		part := k * others // of each rank: the sum over a group is the same in both
		long, got := affines(own(me), part*n), make([]affine, part)
		want := fold(own(from), own(end-1), part*n)[c.Rank()*part:][:part]
		return call{
			func(ctx context.Context) error { return mpi.ReduceScatterBlock(ctx, c, long, got, op) },
			func() (*mpi.Request, error) { return mpi.IreduceScatterBlock(c, long, got, op) },
			func() (*mpi.Persistent, error) { return mpi.ReduceScatterBlockInit(c, long, got, op) },
			func() error { return differs("reduce scatter", got, want) },
		}
	case 4:
		counts := cut(k+s.root, n)
		long, got := affines(own(me), k+s.root), make([]affine, counts[c.Rank()])
		want := fold(own(from), own(end-1), k+s.root)[sum(counts[:c.Rank()]):][:counts[c.Rank()]]
		return call{
			func(ctx context.Context) error { return mpi.ReduceScatter(ctx, c, long, got, counts, op) },
			func() (*mpi.Request, error) { return mpi.IreduceScatter(c, long, got, counts, op) },
			func() (*mpi.Persistent, error) { return mpi.ReduceScatterInit(c, long, got, counts, op) },
			func() error { return differs("reduce scatter of counts", got, want) },
		}
	case 5:
		recv := atRoot(empty(others * k))
		return call{
			func(ctx context.Context) error { return mpi.Gather(ctx, c, mine, recv, root) },
			func() (*mpi.Request, error) { return mpi.Igather(c, mine, recv, root) },
			func() (*mpi.Persistent, error) { return mpi.GatherInit(c, mine, recv, root) },
			eq("gather", recv, atRoot(theirs)),
		}
	case 6:
		recv := empty(k)
		want := fromRoot(values(own(me), k))
		return call{
			func(ctx context.Context) error { return mpi.Scatter(ctx, c, atRoot(theirs), recv, root) },
			func() (*mpi.Request, error) { return mpi.Iscatter(c, atRoot(theirs), recv, root) },
			func() (*mpi.Persistent, error) { return mpi.ScatterInit(c, atRoot(theirs), recv, root) },
			eq("scatter", recv, want),
		}
	case 7:
		counts := make([]int, others)
		for i := range counts {
			counts[i] = toRoot(i)
		}
		p, send := gapped(counts), values(own(me), s.counts[me][s.root])
		want := atRoot(lay(joined(func(i int) int { return own(from + i) }, counts), p))
		recv := atRoot(empty(len(want)))
		return call{
			func(ctx context.Context) error { return mpi.Gatherv(ctx, c, send, recv, p, root) },
			func() (*mpi.Request, error) { return mpi.Igatherv(c, send, recv, p, root) },
			func() (*mpi.Persistent, error) { return mpi.GathervInit(c, send, recv, p, root) },
			eq("gatherv", recv, want),
		}
	case 8:
		counts := s.counts[s.root][from:end]
		p, recv := gapped(counts), empty(s.counts[s.root][me])
		send := atRoot(lay(joined(func(i int) int { return own(from + i) }, counts), p))
		return call{
			func(ctx context.Context) error { return mpi.Scatterv(ctx, c, send, p, recv, root) },
			func() (*mpi.Request, error) { return mpi.Iscatterv(c, send, p, recv, root) },
			func() (*mpi.Persistent, error) { return mpi.ScattervInit(c, send, p, recv, root) },
			eq("scatterv", recv, fromRoot(values(own(me), len(recv)))),
		}
	case 9: // the second group gives two values more for each rank
		give, get := k, k+2
		if second {
			give, get = get, give
		}
		send, recv := values(own(me), give), empty(get*others)
		want := joined(func(i int) int { return own(from + i) }, slices.Repeat([]int{get}, others))
		return call{
			func(ctx context.Context) error { return mpi.Allgather(ctx, c, send, recv) },
			func() (*mpi.Request, error) { return mpi.Iallgather(c, send, recv) },
			func() (*mpi.Persistent, error) { return mpi.AllgatherInit(c, send, recv) },
			eq("allgather", recv, want),
		}
	case 10:
		counts := make([]int, others)
		for i := range counts {
			counts[i] = toRoot(i)
		}
		p, send := gapped(counts), values(own(me), s.counts[me][s.root])
		want := lay(joined(func(i int) int { return own(from + i) }, counts), p)
		recv := empty(len(want))
		return call{
			func(ctx context.Context) error { return mpi.Allgatherv(ctx, c, send, recv, p) },
			func() (*mpi.Request, error) { return mpi.Iallgatherv(c, send, recv, p) },
			func() (*mpi.Persistent, error) { return mpi.AllgathervInit(c, send, recv, p) },
			eq("allgatherv", recv, want),
		}
	}
	pair := func(a, b int) int { return a*10 + b + s.salt }
	to, in := slices.Clone(s.counts[me][from:end]), make([]int, others)
	for i := range in {
		in[i] = s.counts[from+i][me]
	}
	if s.kind == 11 {
		give, get := k, k+1
		if second {
			give, get = get, give
		}
		to, in = slices.Repeat([]int{give}, others), slices.Repeat([]int{get}, others)
	}
	out := joined(func(i int) int { return pair(me, from+i) }, to)
	want := joined(func(i int) int { return pair(from+i, me) }, in)
	if s.kind == 11 {
		recv := empty(len(want))
		return call{
			func(ctx context.Context) error { return mpi.Alltoall(ctx, c, out, recv) },
			func() (*mpi.Request, error) { return mpi.Ialltoall(c, out, recv) },
			func() (*mpi.Persistent, error) { return mpi.AlltoallInit(c, out, recv) },
			eq("alltoall", recv, want),
		}
	}
	tp, ip := gapped(to), gapped(in)
	send := lay(out, tp)
	want = lay(want, ip)
	recv := empty(len(want))
	return call{
		func(ctx context.Context) error { return mpi.Alltoallv(ctx, c, send, tp, recv, ip) },
		func() (*mpi.Request, error) { return mpi.Ialltoallv(c, send, tp, recv, ip) },
		func() (*mpi.Persistent, error) { return mpi.AlltoallvInit(c, send, tp, recv, ip) },
		eq("alltoallv", recv, want),
	}
}

// Programs of collectives between groups of all sizes, in all their forms, against what each is defined
// as.
func TestIntercommModel(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			const size = 5
			world := job(t, w, size)
			inters := make([][]*mpi.Comm, size) // by the size of the first group
			for first := 1; first < size; first++ {
				inters[first] = make([]*mpi.Comm, size)
				each(t, world, func(ctx context.Context, c *mpi.Comm) error {
					color, remote := 0, first
					if c.Rank() >= first {
						color, remote = 1, 0
					}
					half, err := c.Split(ctx, color, 0)
					if err == nil {
						inters[first][c.Rank()], err = half.Intercomm(ctx, 0, c, remote, 5)
					}
					return err
				})
			}
			rapid.Check(t, func(rt *rapid.T) {
				h := halves{rapid.IntRange(1, size-1).Draw(rt, "first group"), size}
				runProgram(rt, inters[h.first], drawProgram(rt, size, interKinds), func(c *mpi.Comm, s step) call {
					return h.call(c, s, slices.Index(inters[h.first], c) >= h.first)
				})
			})
		})
	}
}

// Collectives whose send buffer is, or is a part of, the receive buffer give what others do.
func TestCollectivesInPlace(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			const n = 5
			each(t, job(t, w, n), func(ctx context.Context, c *mpi.Comm) error {
				for _, k := range []int{0, 1, 3, 5000} {
					if err := inPlace(ctx, c, k); err != nil {
						return fmt.Errorf("%d values: %w", k, err)
					}
				}
				return nil
			})
		})
	}
}

func inPlace(ctx context.Context, c *mpi.Comm, k int) error {
	n, me := c.Size(), c.Rank()
	rank := func(i int) int { return i }
	equal := slices.Repeat([]int{k}, n)
	all := joined(rank, equal)
	part := func(buf []int64) []int64 { return buf[me*k:][:k] }
	own := func() []int64 {
		buf := empty(n * k)
		copy(part(buf), values(me, k))
		return buf
	}
	op := mpi.OpOf(compose, false)

	allgather, allgatherv := own(), own()
	gather, gatherv := own(), own()
	alltoall := joined(func(i int) int { return me*n + i }, equal)
	alltoallv := slices.Clone(alltoall)
	wantAlltoall := joined(func(i int) int { return i*n + me }, equal)
	allreduce, reduce, scan, exscan := affines(me, k), affines(me, k), affines(me, k), affines(me, k)
	scatter, scattered := empty(n*k), empty(k)
	if me == 1 {
		scatter = slices.Clone(all)
		scattered = part(scatter)
	}
	block := affines(me, n*k)
	reverse := mpi.Parts{Counts: equal, Displs: make([]int, n)} // of what comes
	for i := range n {
		reverse.Displs[i] = (n - 1 - i) * k
	}
	wantReverse := lay(wantAlltoall, reverse)[:n*k]
	if err := errors.Join(
		mpi.Allgather(ctx, c, part(allgather), allgather),
		mpi.Allgatherv(ctx, c, part(allgatherv), allgatherv, mpi.Parts{Counts: equal}),
		mpi.Gather(ctx, c, part(gather), gather, 1),
		mpi.Gatherv(ctx, c, part(gatherv), gatherv, mpi.Parts{Counts: equal}, 1),
		mpi.Alltoall(ctx, c, alltoall, alltoall),
		mpi.Alltoallv(ctx, c, alltoallv, mpi.Parts{Counts: equal}, alltoallv, reverse),
		mpi.Allreduce(ctx, c, allreduce, allreduce, op),
		mpi.Reduce(ctx, c, reduce, reduce, op, 1),
		mpi.Scan(ctx, c, scan, scan, op),
		mpi.Exscan(ctx, c, exscan, exscan, op),
		mpi.Scatter(ctx, c, scatter, scattered, 1),
		mpi.ReduceScatterBlock(ctx, c, block, block[:k], op),
	); err != nil {
		return err
	}
	gathered, reduced, before := own(), affines(me, k), affines(me, k)
	if me == 1 {
		gathered, reduced = all, fold(0, n-1, k)
	}
	if me > 0 {
		before = fold(0, me-1, k)
	}
	return errors.Join(
		differs("allgather", allgather, all), differs("allgatherv", allgatherv, all),
		differs("gather", gather, gathered), differs("gatherv", gatherv, gathered),
		differs("alltoall", alltoall, wantAlltoall), differs("alltoallv", alltoallv, wantReverse),
		differs("allreduce", allreduce, fold(0, n-1, k)), differs("reduce", reduce, reduced),
		differs("scan", scan, fold(0, me, k)), differs("exscan", exscan, before),
		differs("scatter", scattered, values(me, k)),
		differs("reduce scatter", block[:k], fold(0, n-1, n*k)[me*k:][:k]),
	)
}
