package mpi_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc/mpi"
)

// A library keeps a communicator of its own with each one that it is called with, so that its messages
// are never taken for those of the program.
func ExampleKeyval() {
	private := mpi.NewKeyval(nil, func(_ *mpi.Comm, own *mpi.Comm) error {
		fmt.Println("ends:", own.Name())
		return own.Free()
	})
	count := mpi.NewKeyval(mpi.Shared[int], nil)
	library := func(ctx context.Context, c *mpi.Comm) (*mpi.Comm, error) {
		if own, ok := private.Get(c); ok {
			return own, nil
		}
		own, err := c.Dup(ctx)
		if err != nil {
			return nil, err
		}
		own.SetName("of the library for " + c.Name())
		return own, private.Set(c, own)
	}
	run(func(ctx context.Context, world *mpi.Comm) error {
		for range 2 {
			own, err := library(ctx, world)
			if err != nil {
				return err
			}
			fmt.Println(own.Name())
		}
		if err := count.Set(world.Self(), 1); err != nil {
			return err
		}
		err := count.Delete(world.Self())
		count.Free()
		fmt.Println(errors.Is(count.Set(world, 1), mpi.ErrKeyval), err)
		return nil // Finalize deletes the attribute
	})
	// Output:
	// of the library for MPI_COMM_WORLD
	// of the library for MPI_COMM_WORLD
	// true <nil>
	// ends: of the library for MPI_COMM_WORLD
}
