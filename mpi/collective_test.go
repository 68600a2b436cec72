package mpi_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/vmmc-go/vmmc/mpi"
)

// value is what a rank contributes at an index.
func value(rank, i int) int64 { return int64(rank+1)*1_000_003 ^ int64(i)*7919 }

func values(rank, n int) []int64 {
	v := make([]int64, n)
	for i := range v {
		v[i] = value(rank, i)
	}
	return v
}

// affine is x -> A*x+B modulo 2^64: their composition is associative, and does not commute.
type affine struct{ A, B uint64 }

func compose(in, inout []affine) {
	for i, f := range in {
		g := inout[i]
		inout[i] = affine{f.A * g.A, f.A*g.B + f.B}
	}
}

func affines(rank, n int) []affine {
	v := make([]affine, n)
	for i := range v {
		v[i] = affine{uint64(2*value(rank, i) + 1), uint64(value(rank, i+1))}
	}
	return v
}

// fold is the combination of ranks from..to in their order.
func fold(from, to, n int) []affine {
	acc := affines(to, n)
	for rank := to - 1; rank >= from; rank-- {
		compose(affines(rank, n), acc)
	}
	return acc
}

// All collectives against what they are defined as, for all numbers of ranks from 1 to 8, all roots,
// and lengths on both sides of where the algorithm changes.
func TestCollectives(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			world := job(t, w, 8)
			for n := 1; n <= 8; n++ {
				if w.module != "shm" && n%3 != 2 {
					continue
				}
				each(t, world, func(ctx context.Context, c *mpi.Comm) error {
					color := 0
					if c.Rank() >= n {
						color = mpi.Undefined
					}
					part, err := c.Split(ctx, color, 0)
					if err != nil || part == nil {
						return err
					}
					if part.Size() != n || part.Rank() != c.Rank() {
						return fmt.Errorf("rank %d of %d, want %d of %d", part.Rank(), part.Size(), c.Rank(), n)
					}
					for _, k := range []int{0, 1, 3, 1000, 5000} {
						if err := collectives(ctx, part, k); err != nil {
							return fmt.Errorf("%d ranks, %d values: %w", n, k, err)
						}
					}
					return nil
				})
			}
		})
	}
}

func collectives(ctx context.Context, c *mpi.Comm, k int) error {
	n, rank := c.Size(), c.Rank()
	var all []int64
	for r := range n {
		all = append(all, values(r, k)...)
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	for root := range n {
		buf := make([]int64, k)
		if rank == root {
			copy(buf, values(root, k))
		}
		if err := mpi.Bcast(ctx, c, buf, root); err != nil {
			return err
		}
		if err := differs("bcast", buf, values(root, k)); err != nil {
			return err
		}
		var gathered, spread []int64
		var folded []affine
		if rank == root {
			gathered, spread, folded = make([]int64, n*k), all, make([]affine, k)
		}
		if err := mpi.Gather(ctx, c, values(rank, k), gathered, root); err != nil {
			return err
		}
		if err := mpi.Scatter(ctx, c, spread, buf, root); err != nil {
			return err
		}
		if err := differs("scatter", buf, values(rank, k)); err != nil {
			return err
		}
		if err := mpi.Reduce(ctx, c, affines(rank, k), folded, mpi.OpOf(compose, false), root); err != nil {
			return err
		}
		sum := make([]int64, k)
		if err := mpi.Reduce(ctx, c, values(rank, k), sum, mpi.Sum[int64](), root); err != nil {
			return err
		}
		if rank != root {
			continue
		}
		if err := differs("gather", gathered, all); err != nil {
			return err
		}
		if err := differs("reduce in order", folded, fold(0, n-1, k)); err != nil {
			return err
		}
		if err := differs("reduce", sum, sumOf(n, k)); err != nil {
			return err
		}
	}
	sum := make([]int64, k)
	if err := mpi.Allreduce(ctx, c, values(rank, k), sum, mpi.Sum[int64]()); err != nil {
		return err
	}
	if err := differs("allreduce", sum, sumOf(n, k)); err != nil {
		return err
	}
	if err := mpi.ReduceScatterBlock(ctx, c, all, sum, mpi.Sum[int64]()); err != nil {
		return err
	}
	want := make([]int64, k)
	for i := range want {
		want[i] = int64(n) * value(rank, i)
	}
	if err := differs("reduce scatter", sum, want); err != nil {
		return err
	}
	folded := make([]affine, k)
	if err := mpi.Allreduce(ctx, c, affines(rank, k), folded, mpi.OpOf(compose, false)); err != nil {
		return err
	}
	if err := differs("allreduce in order", folded, fold(0, n-1, k)); err != nil {
		return err
	}
	if err := mpi.Scan(ctx, c, affines(rank, k), folded, mpi.OpOf(compose, false)); err != nil {
		return err
	}
	if err := differs("scan", folded, fold(0, rank, k)); err != nil {
		return err
	}
	gathered := make([]int64, n*k)
	if err := mpi.Allgather(ctx, c, values(rank, k), gathered); err != nil {
		return err
	}
	if err := differs("allgather", gathered, all); err != nil {
		return err
	}
	out, in := make([]int64, n*k), make([]int64, n*k)
	want = make([]int64, n*k)
	for r := range n {
		for i := range k {
			out[r*k+i], want[r*k+i] = value(rank*10+r, i), value(r*10+rank, i)
		}
	}
	if err := mpi.Alltoall(ctx, c, out, in); err != nil {
		return err
	}
	return differs("alltoall", in, want)
}

func sumOf(n, k int) []int64 {
	sum := make([]int64, k)
	for r := range n {
		for i := range sum {
			sum[i] += value(r, i)
		}
	}
	return sum
}

// Floating-point sums are the same bits at all ranks, and again with the same ranks.
func TestReproducible(t *testing.T) {
	world := job(t, ways[0], 7)
	for _, k := range []int{5, 4000} {
		var results [2][7][]float64
		for again := range results {
			each(t, world, func(ctx context.Context, c *mpi.Comm) error {
				send, recv := make([]float64, k), make([]float64, k)
				for i := range send {
					send[i] = 1 / float64(value(c.Rank(), i)|1)
				}
				results[again][c.Rank()] = recv
				return mpi.Allreduce(ctx, c, send, recv, mpi.Sum[float64]())
			})
			for rank, r := range results[again] {
				if !slices.Equal(r, results[0][0]) {
					t.Errorf("%d values: rank %d has other bits than rank 0 the first time", k, rank)
				}
			}
		}
	}
}

// reduced is an operation's result for three values of two ranks.
func reduced[T any](op mpi.Op[T], a, b []T) func(ctx context.Context, c *mpi.Comm) ([]T, error) {
	return func(ctx context.Context, c *mpi.Comm) ([]T, error) {
		send, recv := a, make([]T, len(a))
		if c.Rank() == 1 {
			send = b
		}
		err := mpi.Allreduce(ctx, c, send, recv, op)
		return recv, err
	}
}

func TestOps(t *testing.T) {
	a, b := []int32{0, -6, 5}, []int32{3, 4, 5}
	for _, o := range []struct {
		name string
		op   mpi.Op[int32]
		want []int32
	}{
		{"sum", mpi.Sum[int32](), []int32{3, -2, 10}},
		{"prod", mpi.Prod[int32](), []int32{0, -24, 25}},
		{"min", mpi.Min[int32](), []int32{0, -6, 5}},
		{"max", mpi.Max[int32](), []int32{3, 4, 5}},
		{"band", mpi.BAnd[int32](), []int32{0, -6 & 4, 5}},
		{"bor", mpi.BOr[int32](), []int32{3, -6 | 4, 5}},
		{"bxor", mpi.BXor[int32](), []int32{3, -6 ^ 4, 0}},
		{"land", mpi.LAnd[int32](), []int32{0, 1, 1}},
		{"lor", mpi.LOr[int32](), []int32{1, 1, 1}},
		{"lxor", mpi.LXor[int32](), []int32{1, 0, 0}},
	} {
		t.Run(o.name, func(t *testing.T) {
			each(t, job(t, ways[0], 2), func(ctx context.Context, c *mpi.Comm) error {
				got, err := reduced(o.op, a, b)(ctx, c)
				if err != nil {
					return err
				}
				return differs(o.name, got, o.want)
			})
		})
	}
	each(t, job(t, ways[0], 2), func(ctx context.Context, c *mpi.Comm) error {
		got, err := reduced(mpi.Sum[complex128](), []complex128{1i}, []complex128{2})(ctx, c)
		if err != nil {
			return err
		}
		return differs("complex sum", got, []complex128{2 + 1i})
	})
}
