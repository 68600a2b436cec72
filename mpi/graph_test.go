package mpi_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/vmmc-go/vmmc/mpi"
)

// edges is a graph of n ranks, with edges that are there several times and edges from a rank to
// itself. All ranks make the same of a seed.
func edges(n int, seed uint64) (sources, dests [][]int) {
	random := rand.New(rand.NewPCG(seed, uint64(n)))
	sources, dests = make([][]int, n), make([][]int, n)
	for range random.IntN(3 * n) {
		from, to := random.IntN(n), random.IntN(n)
		for range 1 + random.IntN(2) {
			dests[from] = append(dests[from], to)
			sources[to] = append(sources[to], from)
		}
	}
	for rank := range n { // each end lists its edges in an order of its own
		for _, l := range [][]int{sources[rank], dests[rank]} {
			random.Shuffle(len(l), func(i, j int) { l[i], l[j] = l[j], l[i] })
		}
	}
	return sources, dests
}

// nth is the index of the k-th of a list's elements that are x.
func nth(list []int, x, k int) int {
	for i, y := range list {
		if y == x {
			if k == 0 {
				return i
			}
			k--
		}
	}
	return -1
}

// Graphs of 1 to 8 ranks: the k-th part for a rank is that rank's k-th part of the sender.
func TestGraph(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			world := job(t, w, 8)
			for n := 1; n <= 8; n++ {
				for seed := range uint64(4) {
					each(t, world, func(ctx context.Context, c *mpi.Comm) error {
						g, err := c.Group().RangeIncl([]mpi.Range{{First: 0, Last: n - 1, Stride: 1}})
						if err != nil {
							return err
						}
						part, err := c.Create(ctx, g)
						if err != nil || part == nil {
							return err
						}
						if err := graph(ctx, part, seed); err != nil {
							return fmt.Errorf("%d ranks, seed %d: %w", n, seed, err)
						}
						return nil
					})
				}
			}
		})
	}
}

func graph(ctx context.Context, c *mpi.Comm, seed uint64) error {
	rank := c.Rank()
	sources, dests := edges(c.Size(), seed)
	first, err := c.Graph(ctx, sources[rank], dests[rank], true)
	if err != nil {
		return err
	}
	g, err := first.Dup(ctx)
	if err != nil {
		return err
	}
	from, to := g.Neighbors()
	if !slices.Equal(from, sources[rank]) || !slices.Equal(to, dests[rank]) {
		return fmt.Errorf("neighbours %v and %v: %w", from, to, errWrong)
	}
	for _, k := range []int{0, 1, 2500} {
		var send, wantAll, wantParts []int64
		for i := range to {
			send = append(send, values(rank*100+i, k)...)
		}
		seen := map[int]int{}
		for _, s := range from {
			wantAll = append(wantAll, values(s, k)...)
			wantParts = append(wantParts, values(s*100+nth(dests[s], rank, seen[s]), k)...)
			seen[s]++
		}
		got := make([]int64, len(from)*k)
		if err := mpi.NeighborAllgather(ctx, g, values(rank, k), got); err != nil {
			return err
		}
		if err := differs("neighbor allgather", got, wantAll); err != nil {
			return err
		}
		clear(got)
		if err := mpi.NeighborAlltoall(ctx, g, send, got); err != nil {
			return err
		}
		if err := differs("neighbor alltoall", got, wantParts); err != nil {
			return err
		}
	}
	return nil
}

// Grids of 1 to 8 ranks, with rings of one and two ranks: what is sent to the lower neighbour is that
// one's part from above, and parts beside the grid stay as they are.
func TestCartNeighbors(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			world := job(t, w, 8)
			for _, dims := range grids {
				for bits := range 1 << len(dims) {
					each(t, world, func(ctx context.Context, c *mpi.Comm) error {
						grid, err := c.Cart(ctx, dims, periods(dims, bits), false)
						if err != nil || grid == nil {
							return err
						}
						if err := cartNeighbors(ctx, grid); err != nil {
							return fmt.Errorf("grid %v, rings %b: %w", dims, bits, err)
						}
						return nil
					})
				}
			}
		})
	}
}

func cartNeighbors(ctx context.Context, grid *mpi.Cart) error {
	rank, dims := grid.Rank(), grid.Dims()
	var want []int
	for dim := range dims {
		for _, by := range []int{-1, 1} {
			at := place(dims, rank)
			at[dim] += by
			want = append(want, rankAt(dims, grid.Periodic(), at))
		}
	}
	from, to := grid.Neighbors()
	if !slices.Equal(from, want) || !slices.Equal(to, want) {
		return fmt.Errorf("neighbours %v and %v, want %v: %w", from, to, want, errWrong)
	}
	for _, k := range []int{1, 2500} {
		var send, wantAll, wantParts []int64
		for i, s := range want {
			send = append(send, values(rank*100+i, k)...)
			if s == mpi.ProcNull {
				wantAll, wantParts = append(wantAll, make([]int64, k)...), append(wantParts, make([]int64, k)...)
				continue
			}
			wantAll = append(wantAll, values(s, k)...)
			wantParts = append(wantParts, values(s*100+(i^1), k)...) // the other direction
		}
		got := make([]int64, len(want)*k)
		if err := mpi.NeighborAllgather(ctx, grid, values(rank, k), got); err != nil {
			return err
		}
		if err := differs("neighbor allgather", got, wantAll); err != nil {
			return err
		}
		clear(got)
		if err := mpi.NeighborAlltoall(ctx, grid, send, got); err != nil {
			return err
		}
		if err := differs("neighbor alltoall", got, wantParts); err != nil {
			return err
		}
	}
	return nil
}

func TestGraphArguments(t *testing.T) {
	world := job(t, ways[0], 3)
	one := []int32{1}
	each(t, world, func(ctx context.Context, c *mpi.Comm) error {
		// Rank 0 sends to rank 2, which does not know: all ranks are told.
		var dests []int
		if c.Rank() == 0 {
			dests = []int{2}
		}
		_, err := c.Graph(ctx, nil, dests, false)
		checkError(t, "MPI_Dist_graph_create_adjacent", "sources", mpi.ErrTopology, err)
		_, err = c.Graph(ctx, []int{3}, nil, false)
		checkError(t, "MPI_Dist_graph_create_adjacent", "sources", mpi.ErrRank, err)
		_, err = c.Graph(ctx, nil, []int{mpi.ProcNull}, false)
		checkError(t, "MPI_Dist_graph_create_adjacent", "destinations", mpi.ErrRank, err)

		ring, err := c.Graph(ctx, []int{(c.Rank() + 2) % 3}, []int{(c.Rank() + 1) % 3}, false)
		if err != nil {
			return err
		}
		none, err := c.Graph(ctx, nil, nil, false)
		if err != nil {
			return err
		}
		checkError(t, "MPI_Neighbor_allgather", "recv", mpi.ErrCount, mpi.NeighborAllgather(ctx, ring, one, nil))
		checkError(t, "MPI_Neighbor_allgather", "comm", mpi.ErrTopology, mpi.NeighborAllgather(ctx, nil, one, nil))
		checkError(t, "MPI_Neighbor_alltoall", "comm", mpi.ErrTopology, mpi.NeighborAlltoall(ctx, nil, one, nil))
		checkError(t, "MPI_Neighbor_alltoall", "send", mpi.ErrCount, mpi.NeighborAlltoall(ctx, none, one, nil))
		checkError(t, "MPI_Neighbor_alltoall", "recv", mpi.ErrCount, mpi.NeighborAlltoall(ctx, none, nil, one))
		checkError(t, "MPI_Neighbor_alltoall", "recv", mpi.ErrCount, mpi.NeighborAlltoall(ctx, ring, one, nil))
		checkError(t, "MPI_Neighbor_alltoall", "buf", mpi.ErrType,
			mpi.NeighborAlltoall(ctx, ring, []string{""}, []string{""}))
		return nil
	})
}
