// Stencil computes how heat spreads over a plate. Each rank has some of the rows, and exchanges the
// outermost ones with its neighbours before each step:
//
//	vmmc run -n 4 ./stencil
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/vmmc-go/vmmc/mpi"
)

const (
	rows, columns = 40, 40
	enough        = 1e-2 // the least change of a step that is worth another one
)

func main() {
	ctx := context.Background()
	world, err := mpi.Init(ctx)
	check(err)
	rank, size := world.Rank(), world.Size()
	first, last := rows*rank/size, rows*(rank+1)/size
	above, below := rank-1, rank+1
	if above < 0 {
		above = mpi.ProcNull
	}
	if below == size {
		below = mpi.ProcNull
	}

	plate := newPlate(last - first)
	next := newPlate(last - first)
	n := last - first
	if rank == 0 {
		for x := range columns { // the upper edge is hot
			plate[0][x], next[0][x] = 100, 100
		}
	}
	steps, change := 0, []float64{1}
	for ; change[0] > enough; steps++ {
		_, err := mpi.Sendrecv(ctx, world, plate[1], above, 0, plate[n+1], below, 0)
		check(err)
		_, err = mpi.Sendrecv(ctx, world, plate[n], below, 1, plate[0], above, 1)
		check(err)
		most := []float64{0}
		for y := 1; y <= n; y++ {
			for x := 1; x < columns-1; x++ {
				v := (plate[y-1][x] + plate[y+1][x] + plate[y][x-1] + plate[y][x+1]) / 4
				most[0] = max(most[0], v-plate[y][x], plate[y][x]-v)
				next[y][x] = v
			}
		}
		check(mpi.Allreduce(ctx, world, most, change, mpi.Max[float64]()))
		plate, next = next, plate
	}

	middle := make([]float64, 1)
	if y := rows / 2; first <= y && y < last {
		middle[0] = plate[y-first+1][columns/2]
	}
	at := make([]float64, 1)
	check(mpi.Reduce(ctx, world, middle, at, mpi.Max[float64](), 0))
	if rank == 0 {
		fmt.Printf("%d steps, and the middle has %.6f degrees\n", steps, at[0])
	}
	check(world.Finalize(ctx))
}

// newPlate has n rows, and one more at each side.
func newPlate(n int) [][]float64 {
	plate := make([][]float64, n+2)
	for y := range plate {
		plate[y] = make([]float64, columns)
	}
	return plate
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
