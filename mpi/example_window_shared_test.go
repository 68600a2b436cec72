package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/vmmc-go/vmmc/mpi"
)

// Ranks of one node have one table, of which each fills its part.
func ExampleWinAllocateShared() {
	ctx := context.Background()
	world, err := mpi.Init(ctx)
	if err != nil {
		log.Fatal(err)
	}
	table, err := mpi.WinAllocateShared[float64](ctx, world, 1000)
	if errors.Is(err, mpi.ErrRMAShared) {
		log.Fatal("start all ranks on one node")
	} else if err != nil {
		log.Fatal(err)
	}
	for i := range table.Values() {
		table.Values()[i] = float64(world.Rank())
	}
	if err := table.Fence(ctx); err != nil { // all have stored
		log.Fatal(err)
	}
	next, err := table.Shared((world.Rank() + 1) % world.Size())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(next[0])
	if err := errors.Join(table.Free(ctx), world.Finalize(ctx)); err != nil {
		log.Fatal(err)
	}
}
