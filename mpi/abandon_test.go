package mpi_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/mpi"
)

// sameValues are n times v.
func sameValues(n int, v float64) []float64 {
	all := make([]float64, n)
	for i := range all {
		all[i] = v
	}
	return all
}

// briefly runs a call whose context ends before the other rank takes part.
func briefly(t *testing.T, call func(ctx context.Context) error) {
	t.Helper()
	ctx, stop := context.WithTimeout(within(t), 100*time.Millisecond)
	defer stop()
	if err := call(ctx); !errors.Is(err, mpi.ErrCanceled) {
		t.Fatalf("a call whose context ends: %v", err)
	}
}

// A call whose context has ended does not use the caller's memory any more, and what it has begun
// does not keep the ranks from finalizing.
func TestMemoryAfterTheContextEnds(t *testing.T) {
	const n = 1 << 17 // longer than the rings hold
	const old, later = 1, 1000
	for _, w := range ways {
		t.Run("Sendrecv "+w.name, func(t *testing.T) {
			cs := job(t, w, 2)
			out, in := sameValues(n, old), make([]float64, n)
			briefly(t, func(ctx context.Context) error {
				_, err := mpi.Sendrecv(ctx, cs[0], out, 1, 5, make([]byte, 8), 1, 6)
				return err
			})
			copy(out, sameValues(n, later))
			q, err := mpi.Isend(cs[0], out, 1, 5)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := mpi.Recv(within(t), cs[1], in, 0, 5); err != nil {
				t.Fatal(err)
			}
			if in[0] == old { // it was matched before its withdrawal came
				if err := differs("a message that was given up", in, sameValues(n, old)); err != nil {
					t.Error(err)
				}
				if _, err := mpi.Recv(within(t), cs[1], in, 0, 5); err != nil {
					t.Fatal(err)
				}
			}
			if err := differs("the message after it", in, sameValues(n, later)); err != nil {
				t.Error(err)
			}
			if _, err := q.Wait(within(t)); err != nil {
				t.Error(err)
			}
		})
		t.Run("Allreduce "+w.name, func(t *testing.T) {
			cs := job(t, w, 2)
			x, sum := sameValues(n, old), make([]float64, n)
			briefly(t, func(ctx context.Context) error { return mpi.Allreduce(ctx, cs[0], x, sum, mpi.Sum[float64]()) })
			copy(x, sameValues(n, later))
			copy(sum, sameValues(n, later))
			got := make([]float64, n)
			briefly(t, func(ctx context.Context) error {
				return mpi.Allreduce(ctx, cs[1], sameValues(n, old), got, mpi.Sum[float64]())
			})
			for i, v := range got {
				if v > 2*old {
					t.Fatalf("value %d is %v", i, v)
				}
			}
		})
		t.Run("Neighbors "+w.name, func(t *testing.T) {
			cs := job(t, w, 2)
			gs := make([]*mpi.Graph, len(cs))
			each(t, cs, func(ctx context.Context, c *mpi.Comm) error {
				edges := [][2][]int{{nil, {1}}, {{0}, nil}}[c.Rank()] // from rank 0 to rank 1
				var err error
				gs[c.Rank()], err = c.Graph(ctx, edges[0], edges[1], false)
				return err
			})
			out, in := sameValues(n, old), make([]float64, n)
			briefly(t, func(ctx context.Context) error { return mpi.NeighborAllgather(ctx, gs[0], out, nil) })
			copy(out, sameValues(n, later))
			ctx, stop := context.WithTimeout(within(t), 100*time.Millisecond)
			defer stop()
			want := make([]float64, n) // the values were withdrawn
			switch err := mpi.NeighborAllgather(ctx, gs[1], sameValues(n, old), in); {
			case err == nil: // they were matched before their withdrawal came
				want = sameValues(n, old)
			case !errors.Is(err, mpi.ErrCanceled):
				t.Fatalf("a call whose context ends: %v", err)
			case in[0] == old: // it has got a part of them
				return
			}
			if err := differs("what a call has got of one that was given up", in, want); err != nil {
				t.Error(err)
			}
		})
		t.Run("Scan "+w.name, func(t *testing.T) {
			cs := job(t, w, 3)
			briefly(t, func(ctx context.Context) error {
				return mpi.Scan(ctx, cs[1], sameValues(n, old), make([]float64, n), mpi.Sum[float64]())
			})
		})
	}
}
