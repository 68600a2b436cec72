package mpi_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc/mpi"
)

// Ranks exchange values along the edges of a graph: here each rank sends to itself, twice.
func ExampleGraph() {
	run(func(ctx context.Context, c *mpi.Comm) error {
		me := c.Rank()
		first, err := c.Graph(ctx, []int{me, me}, []int{me, me}, false)
		switch {
		case errors.Is(err, mpi.ErrTopology):
			return fmt.Errorf("an edge is missing at one end: %w", err)
		case err != nil:
			return err
		}
		var g *mpi.Graph
		if g, err = first.Dup(ctx); err != nil {
			return err
		}
		fmt.Println(g.Neighbors())
		got := make([]int, 2)
		err = mpi.NeighborAllgather(ctx, g, []int{7}, got)
		fmt.Println(got, err)
		if err := mpi.Bcast(ctx, g.Comm, got, 0); err != nil { // all other calls take its Comm
			return err
		}
		err = mpi.NeighborAlltoall(ctx, g, []int{1, 2}, got)
		fmt.Println(got, err)
		return nil
	})
	// Output:
	// [0 0] [0 0]
	// [7 7] <nil>
	// [1 2] <nil>
}

// A rank of a ring has the same neighbour on both sides if it is alone. What goes up comes from below.
func ExampleNeighborAlltoall() {
	run(func(ctx context.Context, c *mpi.Comm) error {
		grid, err := c.Cart(ctx, []int{1}, []bool{true}, false)
		if err != nil {
			return err
		}
		var t mpi.Topology = grid
		fmt.Println(grid.Neighbors())
		fmt.Println(t.Neighbors())
		parts := make([]int, 2)
		err = mpi.NeighborAlltoall(ctx, t, []int{1, 2}, parts)
		fmt.Println(parts)
		return err
	})
	// Output:
	// [0 0] [0 0]
	// [0 0] [0 0]
	// [2 1]
}
