package main

import (
	"context"
	"fmt"
	"os"

	"github.com/vmmc-go/vmmc/mpi"
)

// mpirank DO: a rank of an MPI job. "sum" prints the sum of all ranks' numbers, and "compute" takes
// part in a barrier, prints its number of a process, and computes for ever.
func mpirank() int {
	if err := doRank(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func doRank(do string) error {
	ctx, stop := context.WithTimeout(context.Background(), 10*patience)
	defer stop()
	c, err := mpi.Init(ctx)
	if err != nil {
		return err
	}
	if do == "compute" {
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		fmt.Printf("rank %d is process %d\n", c.Rank(), os.Getpid())
		<-ctx.Done()
		return ctx.Err()
	}
	sum := make([]int, 1)
	if err := mpi.Allreduce(ctx, c, []int{c.Rank()}, sum, mpi.Sum[int]()); err != nil {
		return err
	}
	fmt.Printf("rank %d of %d: sum %d\n", c.Rank(), c.Size(), sum[0])
	return c.Finalize(ctx)
}
