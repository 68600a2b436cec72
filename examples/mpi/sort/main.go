// Sort sorts numbers that are spread over the ranks, by samples: the ranks agree on splitters, send
// each number to the rank that its range belongs to, and sort what they have got.
//
//	vmmc run -n 4 ./sort
package main

import (
	"context"
	"fmt"
	"log"
	"slices"

	"github.com/vmmc-go/vmmc/mpi"
)

const total = 100_000

func main() {
	ctx := context.Background()
	world, err := mpi.Init(ctx)
	check(err)
	rank, size := world.Rank(), world.Size()

	var mine []uint64 // this rank's part of numbers that look random
	for i := total * rank / size; i < total*(rank+1)/size; i++ {
		mine = append(mine, scramble(uint64(i)))
	}
	slices.Sort(mine)

	// Each rank gives samples at equal distances, and all choose the same splitters among them.
	samples := make([]uint64, size)
	for i := range samples {
		samples[i] = mine[len(mine)*i/size]
	}
	all := make([]uint64, size*size)
	check(mpi.Allgather(ctx, world, samples, all))
	slices.Sort(all)

	// How many numbers go to each rank, and how many come.
	to, from := make([]int, size), make([]int, size)
	first := 0
	for r := range size {
		end := len(mine)
		if r+1 < size {
			end, _ = slices.BinarySearch(mine, all[size*(r+1)])
		}
		to[r] = end - first
		first = end
	}
	check(mpi.Alltoall(ctx, world, to, from))
	count := 0
	for _, k := range from {
		count += k
	}
	sorted := make([]uint64, count)
	check(mpi.Alltoallv(ctx, world, mine, mpi.Parts{Counts: to}, sorted, mpi.Parts{Counts: from}))
	slices.Sort(sorted)

	// Rank 0 gets all parts, in the order of ranks.
	counts := make([]int, size)
	check(mpi.Allgather(ctx, world, []int{count}, counts))
	var result []uint64
	if rank == 0 {
		result = make([]uint64, total)
	}
	check(mpi.Gatherv(ctx, world, sorted, result, mpi.Parts{Counts: counts}, 0))
	if rank == 0 {
		fmt.Printf("%d numbers, sorted: %v, the middle is %d\n", len(result), slices.IsSorted(result), result[total/2])
	}
	check(world.Finalize(ctx))
}

// scramble is the finalizer of splitmix64: different numbers give different numbers.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
