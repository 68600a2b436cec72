// Pi computes π by a sum that all ranks share:
//
//	vmmc run -n 4 ./pi
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/vmmc-go/vmmc/mpi"
)

const steps = 10_000_000

func main() {
	ctx := context.Background()
	world, err := mpi.Init(ctx)
	check(err)

	part, pi := make([]float64, 1), make([]float64, 1)
	for i := world.Rank(); i < steps; i += world.Size() {
		x := (float64(i) + 0.5) / steps
		part[0] += 4 / (1 + x*x) / steps
	}
	check(mpi.Reduce(ctx, world, part, pi, mpi.Sum[float64](), 0))

	if world.Rank() == 0 {
		fmt.Printf("pi is %.9f, by %d ranks\n", pi[0], world.Size())
	}
	check(world.Finalize(ctx))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
