package channel_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/channel"
	"github.com/vmmc-go/vmmc/node"
)

// Job is what the examples send.
type Job struct {
	ID   uint64
	Size uint32
	Kind uint32
}

// A receiver takes the jobs of a sender until it closes the channel.
func Example() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()

	jobs, err := channel.Make[Job](ctx, a, "jobs")
	check(err)
	defer jobs.Close()

	done := make(chan error)
	go func() { // mostly another program
		s, err := channel.Dial[Job](ctx, b, "jobs")
		check(err)
		for i := range 3 {
			check(s.Send(ctx, Job{ID: uint64(i), Size: 10}))
		}
		done <- s.Close(ctx)
	}()

	for job, err := range jobs.All(ctx) {
		check(err)
		fmt.Println(job.ID, job.Size)
	}
	_, ok, err := jobs.Recv(ctx)
	fmt.Println(ok, err, <-done)
	// Output:
	// 0 10
	// 1 10
	// 2 10
	// false <nil> <nil>
}

// A sender that ends without a close is told, and another one may take its place.
func ExampleChan_Replace() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	opts := []channel.Option{
		channel.Senders(1),
		channel.Buffer(16),
		channel.Permit(vmmc.Permission{Nodes: []vmmc.NodeID{a.Node()}}),
	}
	jobs, err := channel.Make[Job](ctx, a, "jobs", opts...)
	check(err)
	defer jobs.Close()
	s, err := channel.Dial[Job](ctx, b, "jobs")
	check(err)
	check(s.Send(ctx, Job{ID: 1}))
	fmt.Println(s.Pending())
	check(b.Close()) // as if it had died

	var lost *channel.LostError
	for job, err := range jobs.All(ctx) {
		if errors.As(err, &lost) {
			fmt.Println("lost after", lost.Values)
			break
		}
		check(err)
		fmt.Println(job.ID)
	}
	fmt.Println(errors.Is(lost, vmmc.ErrPeerGone), jobs.Replace(lost))

	done := make(chan error)
	go func() {
		s, err := channel.Dial[Job](ctx, a, "jobs")
		check(err)
		done <- s.Close(ctx)
	}()
	_, ok, err := jobs.Recv(ctx)
	fmt.Println(ok, err, <-done)
	// Output:
	// 1
	// 1
	// lost after 1
	// true true
	// false <nil> <nil>
}

// processes are two of a node of their own.
func processes(ctx context.Context) (a, b *vmmc.Process, end func()) {
	n, err := node.Start()
	check(err)
	a, err = vmmc.Open(ctx, vmmc.WithSocket(n.Socket()))
	check(err)
	b, err = vmmc.Open(ctx, vmmc.WithSocket(n.Socket()))
	check(err)
	return a, b, func() {
		a.Close()
		b.Close()
		n.Close()
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
