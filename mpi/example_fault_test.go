package mpi_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc/mpi"
)

// Ranks that live go on without those that are gone. Such a program begins by
// mpi.Init(ctx, mpi.WithFailed(...)), so that it does not end with the first of them.
func ExampleComm_Shrink() {
	step := func(ctx context.Context, c *mpi.Comm) error {
		sum := []int{0}
		return mpi.Allreduce(ctx, c, []int{1}, sum, mpi.Sum[int]())
	}
	run(func(ctx context.Context, c *mpi.Comm) error {
		for range 3 {
			err := step(ctx, c)
			if errors.Is(err, mpi.ErrProcFailed) && !c.Revoked() {
				_ = c.Revoke() // others may wait for this rank
			}
			// All find out whether all have come through the step.
			done := uint64(1)
			if err != nil {
				done = 0
			}
			if _, err := c.AckFailed(c.GetFailed().Size()); err != nil {
				return err
			}
			all, err := c.Agree(ctx, done)
			if all == 1 && err == nil {
				continue
			}
			if c, err = c.Shrink(ctx); err != nil {
				return err
			}
		}
		err := c.Revoke()
		fmt.Println(errors.Is(c.Barrier(ctx), mpi.ErrRevoked), c.Size(), err)
		return nil
	})
	// Output: true 1 <nil>
}
