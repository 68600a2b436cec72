package vmmc_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/node"
)

// Open says why the program has no node to join.
func ExampleOpen_failure() {
	_, err := vmmc.Open(context.Background(), vmmc.WithSocket("/no/such/socket"))
	switch {
	case errors.Is(err, vmmc.ErrNotImplemented):
		fmt.Println("this system is not Linux")
	case errors.Is(err, vmmc.ErrNoRights):
		fmt.Println("another user's daemon may serve this socket")
	case errors.Is(err, vmmc.ErrNoDaemon):
		fmt.Println("start vmmcd, or embed a node")
	}
	// Output: start vmmcd, or embed a node
}

// A program with a node that says when it ends. An error of the function has no code of the
// library, and Open returns it as ErrUnknown.
func ExampleWithEmbedded() {
	ctx := context.Background()
	p, err := vmmc.Open(ctx, vmmc.WithEmbedded(func(context.Context) (string, func(), error) {
		n, err := node.Start()
		if err != nil {
			return "", nil, err
		}
		return n.Socket(), func() { n.Close(); fmt.Println("the node has ended") }, nil
	}))
	check(err)
	check(p.Close())

	errDisabled := errors.New("this program must not run a node")
	_, err = vmmc.Open(ctx, vmmc.WithEmbedded(func(context.Context) (string, func(), error) {
		return "", nil, errDisabled
	}))
	fmt.Println(errors.Is(err, vmmc.ErrUnknown), errors.Is(err, errDisabled))
	// Output:
	// the node has ended
	// true true
}

// A cache takes less memory where the machine has not enough.
func ExampleProcess_Alloc() {
	p, _, end := pair(context.Background())
	defer end()

	var cache *vmmc.Memory
	for _, size := range []int{math.MaxInt &^ 7, 1 << 20} {
		mem, err := p.Alloc(size)
		if errors.Is(err, vmmc.ErrNoMem) {
			continue // no page was touched
		}
		check(err)
		cache = mem
		break
	}
	fmt.Println(len(cache.Bytes()) >= 1<<20)
	check(cache.Close())
	// Output: true
}

// A handler must not wait for other processes: other notifications wait for it. It forwards what
// it can, and leaves the rest to a goroutine.
func ExampleInHandler() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()
	in, err := a.Export(1, make([]byte, 64), vmmc.WithHandler(func(vmmc.Notification) {}))
	check(err)
	back, err := b.Import(ctx, a.Node(), a.PID(), 1)
	check(err)
	later := make(chan []byte, 1)
	_, err = b.Export(1, make([]byte, 64), vmmc.WithHandler(func(n vmmc.Notification) {
		if n.Word == 1 {
			_, err := b.Import(ctx, a.Node(), a.PID(), 2) // waits for the export
			fmt.Println(vmmc.InHandler(), errors.Is(err, vmmc.ErrNotInHandler))
		}
		msg := binary.LittleEndian.AppendUint32(nil, n.Word)
		if err := back.SendNotify(ctx, msg, 0); errors.Is(err, vmmc.ErrNoCredit) {
			later <- msg // 64 notifications wait at a already
		}
	}))
	check(err)
	out, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)

	a.BlockNotifications()
	for i := range byte(65) {
		check(out.SendNotify(ctx, []byte{i + 1, 0, 0, 0}, 0))
	}
	rest := <-later
	_, err = a.UnblockNotifications()
	check(err)
	check(back.SendNotify(ctx, rest, 0)) // no handler: it waits for a credit
	for seen := uint64(0); seen < 65; {
		seen, err = in.WaitNotified(ctx, seen)
		check(err)
	}
	fmt.Println("all have arrived")
	// Output:
	// true true
	// all have arrived
}

// An export whose notifications are blocked does not end before its handler has run.
func ExampleExport_Close_notifications() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	exp, err := b.Export(1, make([]byte, 64), vmmc.WithHandler(func(n vmmc.Notification) {
		fmt.Println("handled:", n.Word)
	}))
	check(err)
	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)

	b.BlockNotifications()
	check(im.SendNotify(ctx, []byte{7, 0, 0, 0}, 0))
	check(im.Fence(ctx))
	err = exp.Close()
	if errors.Is(err, vmmc.ErrBlockedNotifications) {
		_, err = b.UnblockNotifications()
		check(err)
		_, err = exp.WaitNotified(ctx, 0)
		check(err)
		err = exp.Close()
	}
	fmt.Println(err)
	// Output:
	// handled: 7
	// <nil>
}

// Two buffers take turns: while one is sent, the program fills the other one. The request of a
// buffer that was never sent is the zero Request.
func ExampleRequest() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	mem, err := b.Alloc(32)
	check(err)
	_, err = b.Export(1, mem.Bytes())
	check(err)
	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)

	var buffers [2][8]byte
	var sent [2]vmmc.Request
	for i := range 4 {
		buf, r := &buffers[i%2], &sent[i%2]
		switch err := r.Wait(ctx); {
		case errors.Is(err, vmmc.ErrBadAsyncHandle): // the buffer was free
		default:
			check(err)
		}
		copy(buf[:], fmt.Sprintf("block %d ", i))
		*r, err = im.SendAsync(ctx, buf[:], i*len(buf))
		check(err)
	}
	for _, r := range sent {
		check(r.Wait(ctx))
	}
	fmt.Printf("%q\n", mem.Bytes())
	// Output: "block 0 block 1 block 2 block 3 "
}
