package vmmc_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc"
)

// The end of an import, awaited beside other things.
func ExampleImport_Done() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	mem, err := b.Alloc(64)
	check(err)
	exp, err := b.Export(1, mem.Bytes())
	check(err)
	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)

	fmt.Println(im.Err())
	check(exp.Close())
	select {
	case <-im.Done():
		fmt.Println(errors.Is(im.Err(), vmmc.ErrRevoked), errors.Is(im.Err(), vmmc.ErrPeerGone))
	case <-ctx.Done():
	}
	// Output:
	// <nil>
	// true false
}

// Two parts of a program hear of events, and one of them stops listening.
func ExampleProcess_Subscribe() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	mem, err := b.Alloc(64)
	check(err)
	exp, err := b.Export(1, mem.Bytes())
	check(err)
	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)

	told := make(chan string, 1)
	cancel := a.Subscribe(func(e vmmc.Event) { fmt.Println("a cache:", e.Kind) })
	a.Subscribe(func(e vmmc.Event) { told <- fmt.Sprint("a lock: ", e.Kind, e.Import == im) })
	check(exp.Close())
	fmt.Println(<-told)
	cancel()
	// Output:
	// a cache: import revoked
	// a lock: import revoked true
}

// A handler learns which process has sent a notification.
func ExampleNotification() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	mem, err := b.Alloc(64)
	check(err)
	exp, err := b.Export(1, mem.Bytes(), vmmc.WithHandler(func(n vmmc.Notification) {
		fmt.Println(n.From == a.ID(), n.From, n.Offset, n.Word)
	}))
	check(err)
	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)

	check(im.SendNotify(ctx, []byte{5, 0, 0, 0}, 8))
	_, err = exp.WaitNotified(ctx, 0)
	check(err)
	// Output: true process 1 on node "local" 8 5
}
