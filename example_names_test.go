package vmmc_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc"
)

// A server publishes a buffer, and a client finds it without knowing the server's number.
func ExampleProcess_Publish() {
	ctx := context.Background()
	client, server, end := pair(ctx)
	defer end()

	mem, err := server.Alloc(64)
	check(err)
	queue, err := server.Publish(ctx, "queue", mem.Bytes())
	check(err)

	im, err := client.ImportName(ctx, "queue")
	check(err)
	fmt.Println(im.Name(), im.Exporter() == server.ID(), im.ID() == queue.ID())
	for n, err := range client.Names(ctx, "*") {
		check(err)
		fmt.Println(n.Name, n.Process == server.ID(), n.Buffer == queue.ID(), n.Size, n.Set)
	}

	other, err := client.Alloc(64)
	check(err)
	_, err = client.Publish(ctx, "queue", other.Bytes())
	fmt.Println(errors.Is(err, vmmc.ErrNameTaken))
	_, err = client.Publish(ctx, "a/b/c", other.Bytes())
	fmt.Println(errors.Is(err, vmmc.ErrBadName))

	// The server gives the name away and keeps the buffer.
	check(queue.Unpublish(ctx, "queue"))
	check(queue.PublishAs(ctx, "old queue"))
	_, err = client.Publish(ctx, "queue", other.Bytes())
	fmt.Println(err)
	// Output:
	// queue true true
	// queue true true 64 false
	// true
	// true
	// <nil>
}

// Two servers share a name, and each import gets the next one.
func ExampleInSet() {
	ctx := context.Background()
	client, server, end := pair(ctx)
	defer end()

	shared := []vmmc.NameOption{vmmc.InSet()}
	for _, p := range []*vmmc.Process{client, server} { // the client is a server, too
		mem, err := p.Alloc(64)
		check(err)
		_, err = p.Export(1, mem.Bytes(), vmmc.WithName("workers", shared...))
		check(err)
	}
	met := map[vmmc.ProcessID]bool{}
	for range 2 {
		im, err := client.ImportName(ctx, "workers")
		check(err)
		met[im.Exporter()] = true
	}
	fmt.Println(len(met))
	// Output: 2
}

// A name of another user or session says whose it is.
func ExampleOwnedBy() {
	ctx := context.Background()
	client, _, end := pair(ctx)
	defer end()

	whose := []vmmc.FindOption{vmmc.OwnedBy("ada", "weather")}
	_, err := client.ImportName(ctx, "forecast", whose...)
	fmt.Println(errors.Is(err, vmmc.ErrNoRights)) // not there, or not for this process
	// Output: true
}
