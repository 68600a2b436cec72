package mpi_test

import (
	"context"
	"fmt"

	"github.com/vmmc-go/vmmc/mpi"
)

// A program chooses the length of its messages by what the network takes.
func ExampleComm_Network() {
	ctx := context.Background()
	world, err := mpi.Init(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := world.Ping(ctx, 0); err != nil {
		fmt.Println(err)
	}
	var n mpi.Network // it is all zeros where there is one rank
	if n, err = world.Network(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println(n)
	fmt.Println("bytes while a short packet is under way:", n.Bandwidth*n.Latency.Seconds())
	if err := world.Finalize(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// latency 0s, bandwidth 0 MB/s
	// bytes while a short packet is under way: 0
}
