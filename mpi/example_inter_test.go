package mpi_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc/mpi"
)

// The even ranks ask, and the odd ones answer. Each group names the ranks of the other one.
func ExampleComm_Intercomm() {
	run(func(ctx context.Context, world *mpi.Comm) error {
		side := world.Rank() % 2
		half, err := world.Split(ctx, side, 0)
		if err != nil {
			return err
		}
		inter, err := half.Intercomm(ctx, 0, world, 1-side, 0) // world's ranks 0 and 1 lead
		if errors.Is(err, mpi.ErrRank) || errors.Is(err, mpi.ErrComm) {
			fmt.Println("one group has no rank: start at least two")
			return nil
		}
		if err != nil {
			return err
		}
		question := []int{0}
		root := 0 // the first one of the even ranks
		switch {
		case side == 0 && half.Rank() == 0:
			root, question[0] = mpi.Root, 21
		case side == 0:
			root = mpi.ProcNull
		}
		if err := mpi.Bcast(ctx, inter, question, root); err != nil {
			return err
		}
		sums := []int{0}
		if err := mpi.Allreduce(ctx, inter, question, sums, mpi.Sum[int]()); err != nil {
			return err
		}
		fmt.Println(inter.Inter(), inter.RemoteSize(), inter.RemoteGroup().Size(), sums[0])
		_, err = inter.Merge(ctx, side == 1) // the even ranks first
		return err
	})
	// Output: one group has no rank: start at least two
}
