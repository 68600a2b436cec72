package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"

	"github.com/vmmc-go/vmmc/mpi"
)

// A manager spawns workers, which run the same program, and adds what they find.
func ExampleComm_Spawn() {
	ctx := context.Background()
	world, err := mpi.Init(ctx)
	if err != nil {
		log.Fatal(err)
	}
	sum := []int{0}
	if manager := world.Parent(); manager != nil { // a worker
		part := []int{(world.AppNum() + 1) * world.Rank()}
		if err := mpi.Reduce(ctx, world, part, sum, mpi.Sum[int](), 0); err != nil {
			log.Fatal(err)
		}
		if world.Rank() == 0 {
			if err := mpi.Send(ctx, manager, sum, 0, 0); err != nil {
				log.Fatal(err)
			}
		}
	} else {
		itself := mpi.Command{
			Path: os.Args[0], Args: os.Args[1:], N: min(4, mpi.MaxSpawned),
			Dir: "/tmp", Env: []string{"LEVEL=3"}, Hosts: []string{"n1", "n2"},
		}
		workers, err := world.Spawn(ctx, 0, itself)
		var failed *mpi.SpawnError
		if errors.As(err, &failed) {
			log.Fatalf("%v: %v, all: %v", errors.Is(err, mpi.ErrSpawn), failed, slices.Clone(failed.Errs))
		} else if err != nil {
			log.Fatal(err)
		}
		if _, err := mpi.Recv(ctx, workers, sum, 0, 0); err != nil {
			log.Fatal(err)
		}
		fmt.Println(sum[0])
	}
	if err := world.Finalize(ctx); err != nil { // all at the same time
		log.Fatal(err)
	}
}
