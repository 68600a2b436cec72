package mpi_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc/mpi"
)

// Each rank of a grid gives its value to the next one of its row, and rows have a communicator each.
func ExampleCart() {
	run(func(ctx context.Context, c *mpi.Comm) error {
		dims, err := mpi.Dims(c.Size(), []int{0, 0})
		if err != nil {
			return err
		}
		grid, err := c.Cart(ctx, dims, []bool{false, true}, true)
		if err != nil {
			return err
		}
		at, err := grid.Coords(grid.Rank())
		if err != nil {
			return err
		}
		fmt.Println("rank", grid.Rank(), "lies at", at, "of", grid.Dims(), grid.Periodic())
		source, dest, err := grid.Shift(1, 1)
		if err != nil {
			return err
		}
		got := []int{0}
		if _, err := mpi.Sendrecv(ctx, grid.Comm, []int{7}, dest, 0, got, source, 0); err != nil {
			return err
		}
		row, err := grid.Sub(ctx, []bool{false, true})
		if err != nil {
			return err
		}
		again, err := row.Dup(ctx)
		if err != nil {
			return err
		}
		fmt.Println("got", got, "in a row of", again.Size())
		_, err = grid.RankOf([]int{1, 5})
		fmt.Println(err)
		_, err = mpi.Dims(3, []int{2, 0})
		if errors.Is(err, mpi.ErrTopology) {
			return err
		}
		fmt.Println(errors.Is(err, mpi.ErrDims))
		return nil
	})
	// Output:
	// rank 0 lies at [0 0] of [1 1] [false true]
	// got [7] in a row of 1
	// MPI_Cart_rank, argument coords: coordinate 0 is 1, want 0 to 0: that dimension is no ring (MPI_ERR_ARG)
	// true
}
