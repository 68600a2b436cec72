package vmmc_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/manual"
	"github.com/vmmc-go/vmmc/node"
)

// Two processes, here in one program, and a node of their own. Usually they are
// two programs, and the node is vmmcd or one that the first of them embeds.
func Example() {
	ctx := context.Background()
	n, err := node.Start()
	check(err)
	defer n.Close()

	// One process offers memory and waits for its last word to change.
	b, err := vmmc.Open(ctx, vmmc.WithSocket(n.Socket()))
	check(err)
	defer b.Close()
	mem, err := b.Alloc(16)
	check(err)
	exp, err := b.Export(1, mem.Bytes())
	check(err)
	last, err := exp.Word(12)
	check(err)

	// The other one writes there.
	a, err := vmmc.Open(ctx, vmmc.WithSocket(n.Socket()))
	check(err)
	defer a.Close()
	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)
	check(im.Send(ctx, []byte("sixteen letters!"), 0))

	_, err = last.Wait(ctx, 0)
	check(err)
	fmt.Printf("%s (%s)\n", mem.Bytes(), im.Path())
	// Output: sixteen letters! (mapped)
}

// A message with a notification runs the exporter's handler when its data is in
// place.
func ExampleImport_SendNotify() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	mem, err := b.Alloc(4096)
	check(err)
	done := make(chan struct{})
	_, err = b.Export(1, mem.Bytes(), vmmc.WithHandler(func(n vmmc.Notification) {
		fmt.Printf("word %d at %d of buffer %d\n", n.Word, n.Offset, n.Export.ID())
		if n.Word == 3 {
			close(done)
		}
	}))
	check(err)

	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)
	for i := range uint32(3) {
		msg := binary.LittleEndian.AppendUint32([]byte("data"), i+1)
		check(im.SendNotify(ctx, msg, int(i)*8))
	}
	<-done
	// Output:
	// word 1 at 4 of buffer 1
	// word 2 at 12 of buffer 1
	// word 3 at 20 of buffer 1
}

// A get reads the exporter's memory as it is; the exporter does nothing for it.
func ExampleImport_Get() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	mem, err := b.Alloc(8)
	check(err)
	copy(mem.Bytes(), "12345678")
	_, err = b.Export(1, mem.Bytes(), vmmc.ReadOnly())
	check(err)

	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)
	half := make([]byte, 4)
	check(im.Get(ctx, half, 4))
	fmt.Printf("%s\n", half)
	fmt.Println(errors.Is(im.Send(ctx, half, 0), vmmc.ErrNoRights))
	// Output:
	// 5678
	// true
}

// An import is an io.WriterAt and an io.ReaderAt, for any number of bytes at any
// offset.
func ExampleImport_WriteAt() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	mem, err := b.Alloc(16)
	check(err)
	copy(mem.Bytes(), "----------------")
	_, err = b.Export(1, mem.Bytes())
	check(err)

	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)
	_, err = im.WriteAt([]byte("odd bytes"), 3)
	check(err)
	all, err := io.ReadAll(io.NewSectionReader(im, 1, int64(im.Size())))
	check(err)
	fmt.Printf("%s\n", all)
	// Output: --odd bytes----
}

// On the stream way Send returns when the source may be used again. Fence returns
// when all has arrived.
func ExampleImport_Fence() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	mem, err := b.Alloc(400)
	check(err)
	_, err = b.Export(1, mem.Bytes(), vmmc.Unmapped()) // as if on another node
	check(err)

	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)
	one := []byte("abc!")
	for off := 0; off < im.Size(); off += len(one) {
		check(im.Send(ctx, one, off))
	}
	check(im.Fence(ctx))
	fmt.Printf("%s: %s ... %s\n", im.Path(), mem.Bytes()[:4], mem.Bytes()[396:])
	// Output: stream: abc! ... abc!
}

// Plain stores to bound memory show up at the exporter by themselves. A word that is
// declared a flag does so after the data that was stored before it.
func ExampleImport_Bind() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	there, err := b.Alloc(64 << 10)
	check(err)
	exp, err := b.Export(1, there.Bytes())
	check(err)
	ready, err := exp.Word(0)
	check(err)

	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)
	here, err := a.Alloc(64 << 10)
	check(err)
	bound, err := im.Bind(here.Bytes(), 0, vmmc.FlagWords(0))
	check(err)
	defer bound.Close()
	flag, err := bound.Word(0)
	check(err)
	copy(here.Bytes()[40<<10:], "no call was needed")
	flag.Store(1)

	_, err = ready.Wait(ctx, 0)
	check(err)
	fmt.Printf("%s\n", there.Bytes()[40<<10:][:18])
	// Output: no call was needed
}

// When an exporter closes a buffer it keeps its contents, and importers are told
// by an error.
func ExampleExport_Close() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	mem, err := b.Alloc(4)
	check(err)
	exp, err := b.Export(1, mem.Bytes())
	check(err)
	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)

	check(im.Send(ctx, []byte("kept"), 0))
	check(exp.Close())
	err = im.Send(ctx, []byte("late"), 0)
	switch {
	case err == nil:
		fmt.Println("sent")
	case errors.Is(err, vmmc.ErrOutcomeUnknown):
		fmt.Println("closed meanwhile: part of the message may be there")
	case errors.Is(err, vmmc.ErrRevoked):
		fmt.Println("closed before: nothing was written")
	}
	fmt.Printf("%s\n", mem.Bytes())
	// Output:
	// closed before: nothing was written
	// kept
}

// Many sends may be under way. Only the last one is waited for here: requests on
// one link are over in order.
func ExampleImport_SendAsync() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	mem, err := b.Alloc(40)
	check(err)
	_, err = b.Export(1, mem.Bytes(), vmmc.Unmapped()) // as if on another node
	check(err)
	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)

	src := []byte("these are ten words, sent one by one... ")
	var r vmmc.Request
	for off := 0; off < len(src); off += 4 {
		r, err = im.SendAsync(ctx, src[off:off+4], off)
		check(err)
	}
	check(r.Wait(ctx)) // src is ours again, and all of it has arrived
	fmt.Printf("%s\n", mem.Bytes())
	// Output: these are ten words, sent one by one...
}

// An import is a range of addresses in the manual's DestSpace.
func Example_destSpace() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	mem, err := b.Alloc(16)
	check(err)
	_, err = b.Export(1, mem.Bytes())
	check(err)
	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)

	var space manual.DestSpace
	addr, err := space.Add(im)
	check(err)
	check(space.Send(ctx, []byte("word"), addr+4))
	err = space.Send(ctx, []byte("word"), addr+16)
	space.Remove(im)
	_, _, removed := space.Lookup(addr)
	fmt.Printf("%q %v %v\n", mem.Bytes()[:8], errors.Is(err, vmmc.ErrBadProxyAddr), errors.Is(removed, vmmc.ErrBadProxyAddr))
	// Output: "\x00\x00\x00\x00word" true true
}

// The receiver says where the next message goes, and the sender need not know.
func ExampleExport_PostRedir() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	mem, err := b.Alloc(4096)
	check(err)
	exp, err := b.Export(1, mem.Bytes(), vmmc.Redirectable())
	check(err)
	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)

	mine := make([]byte, 8) // any memory
	check(exp.PostRedir(mine, 4))
	check(im.Send(ctx, []byte("headdata1234tail"), 0))
	check(im.Fence(ctx))
	n, first, err := exp.EndRedir(ctx)
	check(err)
	off, _ := exp.DataEnd()
	fmt.Printf("%s; buffer %q; last word at %d\n", mine[first:first+n], mem.Bytes()[:16], off)
	// Output: data1234; buffer "head\x00\x00\x00\x00\x00\x00\x00\x00tail"; last word at 12
}

// A server receives the next block of any client where it wants it. It clears the end of the data,
// to know the next message when it arrives.
func ExampleManySenders() {
	ctx := context.Background()
	n, err := node.Start()
	check(err)
	defer n.Close()
	var processes [3]*vmmc.Process
	for i := range processes {
		processes[i], err = vmmc.Open(ctx, vmmc.WithSocket(n.Socket()))
		check(err)
		defer processes[i].Close()
	}
	server := processes[0]
	exp, err := server.Export(1, make([]byte, 64), vmmc.Redirectable(), vmmc.ManySenders())
	check(err)

	for i, client := range processes[1:] {
		im, err := client.Import(ctx, server.Node(), server.PID(), 1)
		check(err)
		block := make([]byte, 64)
		check(exp.PostRedir(block, 0))
		exp.ClearDataEnd()
		_, arrived := exp.DataEnd()
		fmt.Println(arrived)

		check(im.Send(ctx, []byte("from a client...")[:12+4*i], 0))
		check(im.Fence(ctx))
		n, first, err := exp.EndRedir(ctx)
		check(err)
		last, arrived := exp.DataEnd()
		fmt.Printf("%t: %q, last word at %d\n", arrived, block[first:first+n], last)
	}
	// Output:
	// false
	// true: "from a clien", last word at 8
	// false
	// true: "from a client...", last word at 12
}

// A word that several processes count in.
func ExampleImport_FetchAdd64() {
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

	count.Add(40)
	old, err := im.FetchAdd64(ctx, 0, 2)
	check(err)
	fmt.Println(old, count.Load())
	// Output: 40 42
}

// While notifications are blocked, what handlers change does not change.
func ExampleProcess_BlockNotifications() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	mem, err := b.Alloc(4096)
	check(err)
	sum, inHandler := uint32(0), false
	exp, err := b.Export(1, mem.Bytes(), vmmc.WithHandler(func(n vmmc.Notification) {
		sum += n.Word
		inHandler = vmmc.InHandler()
	}))
	check(err)
	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)

	b.BlockNotifications()
	check(im.SendNotify(ctx, []byte{5, 0, 0, 0}, 0))
	fmt.Println("blocked:", sum)
	_, err = b.UnblockNotifications()
	check(err)
	_, err = exp.WaitNotified(ctx, 0)
	check(err)
	fmt.Println("delivered:", sum, inHandler, vmmc.InHandler())
	// Output:
	// blocked: 0
	// delivered: 5 true false
}

// pair opens two processes on a node of their own, the first one with options.
func pair(ctx context.Context, opts ...vmmc.Option) (a, b *vmmc.Process, end func()) {
	n, err := node.Start()
	check(err)
	a, err = vmmc.Open(ctx, append(opts, vmmc.WithSocket(n.Socket()))...)
	check(err)
	b, err = vmmc.Open(ctx, vmmc.WithSocket(n.Socket()))
	check(err)
	return a, b, func() {
		check(a.Close())
		check(b.Close())
		n.Close()
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
