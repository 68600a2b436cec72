package mpi_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc/mpi"
)

// The even ranks, and the odd ones, have a communicator each.
func ExampleGroup() {
	run(func(ctx context.Context, c *mpi.Comm) error {
		all := c.Group()
		r := mpi.Range{Last: all.Size() - 1, Stride: 2}
		r.First = 0
		even, err := all.RangeIncl([]mpi.Range{r})
		if err != nil {
			return err
		}
		odd := all.Difference(even)
		mine := even
		if even.Rank() == mpi.Undefined {
			mine = odd
		}
		half, err := c.Create(ctx, mine)
		if err != nil {
			return err
		}
		inWorld, err := half.Group().Translate([]int{0}, all)
		fmt.Println("rank 0 of", half.Size(), "is", inWorld, err)
		if _, err := half.CreateGroup(ctx, half.Group(), mpi.MaxGroupTag); err != nil { // by members alone
			return err
		}

		// The order of the members matters: that of a union is the first group's, and then the other's.
		both, err := odd.Union(even)
		if err != nil {
			return err
		}
		fmt.Println(both.Compare(all), mpi.Ident, mpi.Similar, mpi.Unequal)
		fmt.Println(mpi.Comparison.String(all.Compare(all.Intersection(both))))
		_, err = all.Excl([]int{0, 0})
		fmt.Println(err)
		_, inclErr := all.Incl([]int{0})
		_, rangeErr := all.RangeExcl(nil)
		return errors.Join(inclErr, rangeErr)
	})
	// Output:
	// rank 0 of 1 is [0] <nil>
	// MPI_IDENT MPI_IDENT MPI_SIMILAR MPI_UNEQUAL
	// MPI_IDENT
	// MPI_Group_excl, argument ranks: rank 0 is there twice, again at index 1: name each rank once (MPI_ERR_RANK)
}

// A group of another job's ranks is none that a communicator can be made of.
func ExampleComm_Create() {
	run(func(ctx context.Context, c *mpi.Comm) error {
		part, err := c.Create(ctx, c.Group())
		switch {
		case errors.Is(err, mpi.ErrGroup):
			return fmt.Errorf("the group is not part of %s: %w", c.Name(), err)
		case err != nil:
			return err
		}
		fmt.Println(part.Name(), part.Size())
		return nil
	})
	// Output: MPI_COMM_WORLD create 1
}
