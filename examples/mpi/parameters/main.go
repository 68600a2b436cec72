// Parameters fits a line to points that are spread over the ranks, with a parameter server that runs no
// code: the parameters lie in a window of rank 0. In each step all ranks read them there, and add what
// their own points say to the sums beside them.
//
//	vmmc run -n 4 ./parameters
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/vmmc-go/vmmc/mpi"
)

const (
	points = 1200
	steps  = 300
	rate   = 0.5
)

// What the window of rank 0 has. Sums are in millionths, so that they do not depend on the order.
const (
	slope, offset, slopeSum, offsetSum = 0, 1, 2, 3
	unit                               = 1e6
)

func main() {
	ctx := context.Background()
	world, err := mpi.Init(ctx)
	check(err)
	rank, size := world.Rank(), world.Size()
	n := 0
	if rank == 0 {
		n = 4
	}
	server, err := mpi.WinAllocate[int64](ctx, world, n)
	check(err)
	check(server.Fence(ctx))

	now := make([]int64, 2)
	for range steps {
		check(server.Get(ctx, now, 0, slope))
		a, b := float64(now[slope])/unit, float64(now[offset])/unit
		var sums [2]int64
		for i := points * rank / size; i < points*(rank+1)/size; i++ {
			x := float64(i) / points
			miss := a*x + b - (3*x + 1) // the points lie on this line
			sums[0] += int64(miss * x * unit)
			sums[1] += int64(miss * unit)
		}
		// Each sum is added to atomically, while the others add to it.
		check(server.Accumulate(ctx, sums[:], 0, slopeSum, mpi.Sum[int64]()))
		check(server.Fence(ctx))
		if rank == 0 {
			p := server.Values()
			p[slope] -= int64(rate * float64(p[slopeSum]) / points)
			p[offset] -= int64(rate * float64(p[offsetSum]) / points)
			p[slopeSum], p[offsetSum] = 0, 0
		}
		check(server.Fence(ctx))
	}
	if rank == 0 {
		p := server.Values()
		fmt.Printf("y = %.2f x + %.2f\n", float64(p[slope])/unit, float64(p[offset])/unit)
	}
	check(server.Free(ctx))
	check(world.Finalize(ctx))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
