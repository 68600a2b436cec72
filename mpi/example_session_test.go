package mpi_test

import (
	"context"
	"fmt"
	"log"
	"slices"

	"github.com/vmmc-go/vmmc/mpi"
)

// A library computes among all ranks, whatever the program does with MPI itself.
func ExampleNewSession() {
	ctx := context.Background()
	s, err := mpi.NewSession(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if !slices.Contains(s.Psets(), mpi.PsetWorld) || !slices.Contains(s.Psets(), mpi.PsetSelf) {
		log.Fatal("no set of all ranks, or of this one")
	}
	all, err := s.Group(mpi.PsetWorld)
	if err != nil {
		log.Fatal(err)
	}
	c, err := mpi.CommFromGroup(ctx, all, "org.example.library")
	if err != nil {
		log.Fatal(err)
	}
	sum := []int{0}
	if err := mpi.Allreduce(ctx, c, []int{1}, sum, mpi.Sum[int]()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(sum[0] == c.Size())
	if err := s.Finalize(ctx); err != nil {
		log.Fatal(err)
	}
}

// A model of the sea and one of the air, each half of the ranks, exchange what they have.
func ExampleIntercommFromGroups() {
	ctx := context.Background()
	world, err := mpi.Init(ctx)
	if err != nil {
		log.Fatal(err)
	}
	all, ok := world.Pset(mpi.PsetWorld)
	if !ok || all.Size() < 2 {
		log.Fatal("start at least 2 ranks")
	}
	half := all.Size() / 2
	sea, err := all.RangeIncl([]mpi.Range{{First: 0, Last: half - 1, Stride: 1}})
	if err != nil {
		log.Fatal(err)
	}
	air := all.Difference(sea)
	own, other := sea, air
	if world.Rank() >= half {
		own, other = air, sea
	}
	inter, err := mpi.IntercommFromGroups(ctx, own, 0, other, 0, "sea and air")
	if err != nil {
		log.Fatal(err)
	}
	if err := inter.Barrier(ctx); err != nil {
		log.Fatal(err)
	}
	if err := world.Finalize(ctx); err != nil {
		log.Fatal(err)
	}
}
