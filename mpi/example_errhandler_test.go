package mpi_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc/mpi"
)

// All errors of a communicator, and of those that are made of it, are counted in one place.
func ExampleComm_SetErrhandler() {
	run(func(ctx context.Context, world *mpi.Comm) error {
		failed := 0
		count := mpi.NewErrhandler(func(_ *mpi.Comm, err error) {
			failed++
			fmt.Println(err)
		})
		world.SetErrhandler(count)
		err := mpi.Send(ctx, world, []int{1}, world.Size(), 0)
		fmt.Println(failed, errors.Is(err, mpi.ErrRank), world.Errhandler() == count)
		world.CallErrhandler(errors.New("the program's own"))
		world.SetErrhandler(mpi.ErrorsReturn) // or ErrorsAreFatal: the job ends by the first error
		fmt.Println(world.Errhandler() == mpi.ErrorsAreFatal)
		return nil
	})
	// Output:
	// MPI_Send, argument dest: it is 1, and MPI_COMM_WORLD has the ranks 0 to 0 (MPI_ERR_RANK)
	// 1 true true
	// the program's own
	// false
}
