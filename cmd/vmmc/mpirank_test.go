package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/vmmc-go/vmmc/mpi"
)

// mpirank DO: a rank of an MPI job. "sum" prints the sum of all ranks' numbers, and "compute" takes
// part in a barrier, prints its number of a process, and computes for ever. "app" prints the number of
// its command. "spawn CHILD" spawns two children: with "sum" it waits for them in Finalize, and with
// "compute" it is connected with them and computes. With "leave" it disconnects and ends, and they print
// that they go on when they have no parent any more.
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
	switch do {
	case "app":
		fmt.Printf("rank %d is of command %d\n", c.Rank(), c.AppNum())
		return c.Finalize(ctx)
	case "spawn":
		do = os.Args[2]
		inter, err := c.Spawn(ctx, 0, mpi.Command{Path: "mpirank", Args: []string{do}, N: 2})
		if err != nil {
			return err
		}
		if do == "leave" {
			if err := inter.Disconnect(ctx); err != nil {
				return err
			}
			return c.Finalize(ctx)
		}
	case "leave":
		if err := c.Parent().Disconnect(ctx); err != nil {
			return err
		}
		time.Sleep(300 * time.Millisecond) // the parents end meanwhile, or later: both is right
		do = "sum"
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
