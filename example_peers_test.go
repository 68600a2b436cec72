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

// What a process has sent before its end is in place, though it closed its exports before.
func ExampleImport_PeerDone() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	mem, err := b.Alloc(64)
	check(err)
	exp, err := b.Export(1, mem.Bytes())
	check(err)
	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)

	check(exp.Close())
	<-im.Done()
	select {
	case <-im.PeerDone():
		fmt.Println("gone")
	default:
		fmt.Println("the exporter lives")
	}
	check(b.Close())
	<-im.PeerDone()
	fmt.Println("gone")
	// Output:
	// the exporter lives
	// gone
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

// A wait for a peer's answer ends with the peer.
func ExampleWatch() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	theirs, err := b.Alloc(64)
	check(err)
	_, err = b.Export(1, theirs.Bytes())
	check(err)
	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)
	mine, err := a.Alloc(64)
	check(err)
	exp, err := a.Export(1, mine.Bytes())
	check(err)
	answer, err := exp.Word(0)
	check(err)

	check(b.Close()) // without an answer
	i, err := a.WaitAny(ctx, vmmc.Watch{Word: answer, Old: 0, From: im})
	fmt.Println(i, errors.Is(err, vmmc.ErrBadIbufState))
	// Output: 0 true
}

// A counter of 64 bits is waited for.
func ExampleWord64_Wait() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	mem, err := b.Alloc(8)
	check(err)
	exp, err := b.Export(1, mem.Bytes())
	check(err)
	count, err := exp.Word64(0)
	check(err)
	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)

	_, err = im.FetchAdd64(ctx, 0, 1<<40)
	check(err)
	n, err := count.Wait(ctx, 0)
	fmt.Println(n, err)
	// Output: 1099511627776 <nil>
}

// What was sent to several processes has arrived.
func ExampleProcess_Fence() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	var mems [][]byte
	for _, p := range []*vmmc.Process{a, b} { // a process may import its own
		mem, err := p.Alloc(8)
		check(err)
		_, err = p.Export(1, mem.Bytes())
		check(err)
		im, err := a.Import(ctx, p.Node(), p.PID(), 1)
		check(err)
		_, err = im.SendAsync(ctx, []byte("arrived."), 0)
		check(err)
		mems = append(mems, mem.Bytes())
	}
	check(a.Fence(ctx))
	fmt.Printf("%s %s\n", mems[0], mems[1])
	// Output: arrived. arrived.
}
