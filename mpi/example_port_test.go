package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"

	"github.com/vmmc-go/vmmc/mpi"
)

// A server: any number of other jobs connect to it, one after another.
func ExampleComm_Accept() {
	ctx := context.Background()
	world, err := mpi.Init(ctx)
	if err != nil {
		log.Fatal(err)
	}
	port, err := world.OpenPort(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := world.PublishName(ctx, "ocean", port); errors.Is(err, mpi.ErrService) {
		log.Fatal("the server runs already")
	} else if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		clients, err := world.Accept(ctx, port, 0)
		if err != nil {
			log.Fatal(err)
		}
		if err := mpi.Send(ctx, clients, []float64{4.5}, 0, 0); err != nil {
			log.Print(err) // that job has ended; the next one may connect
		}
		if err := clients.Disconnect(ctx); err != nil {
			log.Print(err)
		}
	}
	if err := errors.Join(world.UnpublishName("ocean", port), world.ClosePort(port), world.Finalize(ctx)); err != nil {
		log.Fatal(err)
	}
}

// A client of such a server.
func ExampleComm_Connect() {
	ctx := context.Background()
	world, err := mpi.Init(ctx)
	if err != nil {
		log.Fatal(err)
	}
	port, err := world.LookupName(ctx, "ocean")
	if errors.Is(err, mpi.ErrName) {
		log.Fatal("no server runs")
	} else if err != nil {
		log.Fatal(err)
	}
	server, err := world.Connect(ctx, port, 0)
	if errors.Is(err, mpi.ErrPort) {
		log.Fatal("the server has ended meanwhile")
	} else if err != nil {
		log.Fatal(err)
	}
	temperature := []float64{0}
	if _, err := mpi.Recv(ctx, server, temperature, 0, 0); err != nil {
		log.Fatal(err)
	}
	fmt.Println(temperature[0])
	if err := errors.Join(server.Disconnect(ctx), world.Finalize(ctx)); err != nil {
		log.Fatal(err)
	}
}

// Two programs that have a connection of their own become one computation.
func ExampleComm_Join() {
	ctx := context.Background()
	world, err := mpi.Init(ctx)
	if err != nil {
		log.Fatal(err)
	}
	conn, err := net.Dial("tcp", "solver.example:4000")
	if err != nil {
		log.Fatal(err)
	}
	solver, err := world.Join(ctx, conn)
	if err != nil {
		log.Fatal(err)
	}
	// The intercommunicator needs the connection no more.
	if err := conn.Close(); err != nil {
		log.Print(err)
	}
	if err := mpi.Send(ctx, solver, []float64{4.5}, 0, 0); err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(solver.Disconnect(ctx), world.Finalize(ctx)); err != nil {
		log.Fatal(err)
	}
}

// A library that sends messages among the ranks of its caller, which never receives them.
func ExampleComm_Shadow() {
	ctx := context.Background()
	world, err := mpi.Init(ctx)
	if err != nil {
		log.Fatal(err)
	}
	library := world.Shadow()
	next, prev := (world.Rank()+1)%world.Size(), (world.Rank()+world.Size()-1)%world.Size()
	halo := []float64{0}
	if _, err := mpi.Sendrecv(ctx, library, []float64{1}, next, 0, halo, prev, 0); err != nil {
		log.Fatal(err)
	}
	if err := world.Finalize(ctx); err != nil {
		log.Fatal(err)
	}
}
