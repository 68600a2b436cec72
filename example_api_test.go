package vmmc_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/manual"
	"github.com/vmmc-go/vmmc/node"
)

// Options of a process. Without WithSocket it joins the system's daemon, or the one that
// VMMC_SOCKET names.
func ExampleOpen() {
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	n, err := node.Start()
	check(err)
	defer n.Close()

	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})).
		With("vmmc", vmmc.Release)
	p, err := vmmc.Open(ctx,
		vmmc.WithSocket(n.Socket()),
		vmmc.WithSession("analysis"),         // its processes may import from each other
		vmmc.WithLogger(quiet),               // without it the library says nothing
		vmmc.WithEncryption(),                // links between nodes use TLS
		vmmc.WithPayloadChecksums(),          // and check each payload
		vmmc.WithSilence(5*time.Second),      // how long a peer may say nothing
		vmmc.WithResume(20*time.Second),      // how long a link may be without a connection
		vmmc.WithImportLimit(1<<30),          // bytes imported at a time
		vmmc.WithImportsDumped(),             // core dumps have what is imported
		vmmc.WithEvents(func(vmmc.Event) {}), // see Event
	)
	check(err)
	defer p.Close()
	fmt.Println(p.ID(), len(p.Environ()), len(p.AllHosts()))
	// Output: process 1 on node "local" 1 1
}

// An export says what its buffer holds, and importers compare.
func ExampleWithLabel() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	mem, err := b.Alloc(vmmc.PageSize())
	check(err)
	_, err = b.Export(1, mem.Bytes(), vmmc.WithLabel([]byte("prices, version 2")))
	check(err)
	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)
	fmt.Printf("%s\n", im.Label())
	// Output: prices, version 2
}

// The nodes of a cluster, and of the process's session.
func ExampleProcess_AllHosts() {
	a, _, end := pair(context.Background())
	defer end()

	for _, n := range a.AllHosts() {
		name, err := a.NodeToName(n)
		check(err)
		same, err := a.NameToNode(name)
		check(err)
		fmt.Println(name, same == a.Node(), a.HostName() != "")
	}
	session, err := a.SessionHosts()
	check(err)
	fmt.Println(len(session), errorCode(func() error { _, err := a.NameToNode("elsewhere"); return err }()) == vmmc.ErrNoSuchNode)
	_, err = a.Parent()
	fmt.Println(errors.Is(err, vmmc.ErrNoParent))
	// Output:
	// local true true
	// 1 true
	// true
}

// errorCode is the number of an error.
func errorCode(err error) (c vmmc.Code) {
	errors.As(err, &c)
	return c
}

// An error says what was tried, with which peer, on which path, and why it failed.
func ExampleError() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	mem, err := b.Alloc(64)
	check(err)
	_, err = b.Export(1, mem.Bytes(), vmmc.WriteOnly())
	check(err)
	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)

	err = im.Get(ctx, make([]byte, 8), 0)
	var e *vmmc.Error
	if errors.As(err, &e) {
		fmt.Printf("%s; %s; %v link %t\n%v: %v\n", e.Op, e.Peer, e.Path, e.Link != 0, int(e.Code), e.Err)
	}
	// Output:
	// get 8 bytes at 0 of buffer 1 (64 bytes); process 2 on node "local"; mapped link true
	// -64: the exporter does not allow this
}

// Calls fail with a code that says why, and a context's end is the context's error too.
func ExampleCode() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	mem, err := b.Alloc(64)
	check(err)
	exp, err := b.Export(1, mem.Bytes())
	check(err)
	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)
	soon, stop := context.WithTimeout(ctx, time.Millisecond)
	defer stop()
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	word := []byte("word")

	_, tooLong := a.Import(soon, b.Node(), b.PID(), 2)
	fmt.Println(errors.Is(tooLong, vmmc.ErrTimeout), errors.Is(tooLong, context.DeadlineExceeded))
	_, gaveUp := a.Import(cancelled, b.Node(), b.PID(), 2)
	fmt.Println(errors.Is(gaveUp, vmmc.ErrCanceled), errors.Is(gaveUp, context.Canceled))
	for _, c := range []struct {
		err  error
		code vmmc.Code
	}{
		{im.Send(ctx, word, 64), vmmc.ErrBadProxyAddr},
		{im.Send(ctx, word, 2), vmmc.ErrBadAlignment},
		{im.Send(ctx, nil, 0), vmmc.ErrBadSize},
		{func() error { _, err := b.Export(1, make([]byte, 8)); return err }(), vmmc.ErrBufAlreadyExists},
		{func() error { _, err := b.Export(2, mem.Bytes()); return err }(), vmmc.ErrOverlappedBufs},
		{func() error { _, err := b.Export(3, make([]byte, 8), vmmc.GlobalSpace()); return err }(), vmmc.ErrBadArg},
		{func() error { _, err := a.Import(ctx, b.Node(), 99, 1); return err }(), vmmc.ErrNoSuchProcess},
		{mem.Close(), vmmc.ErrBadRbufState},
		{exp.PostRedir(make([]byte, 8), 0), vmmc.ErrNotRedirectable},
	} {
		fmt.Println(errors.Is(c.err, c.code), c.code)
	}
	check(im.Close())
	fmt.Println(errors.Is(im.Send(ctx, word, 0), vmmc.ErrClosed), errors.Is(im.Send(ctx, word, 0), vmmc.ErrBadIbufState))
	// Output:
	// true true
	// true true
	// true the range does not lie within one imported buffer
	// true an offset, a length or an address is not a multiple of the word (4 bytes)
	// true the size must be positive
	// true this process already exports a buffer under this id
	// true the memory overlaps a buffer that is exported already
	// true an argument is outside its domain
	// true no such process
	// true the exported buffer cannot be used in its present state
	// true the buffer is not redirectable
	// true true
}

// A process hears what happens outside of it.
func ExampleEvent() {
	ctx := context.Background()
	n, err := node.Start()
	check(err)
	defer n.Close()
	events := make(chan vmmc.Event, 10)
	a, err := vmmc.Open(ctx, vmmc.WithSocket(n.Socket()), vmmc.WithEvents(func(e vmmc.Event) { events <- e }))
	check(err)
	defer a.Close()
	b, err := vmmc.Open(ctx, vmmc.WithSocket(n.Socket()))
	check(err)
	mem, err := b.Alloc(64)
	check(err)
	exp, err := b.Export(1, mem.Bytes())
	check(err)
	_, err = a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)

	check(exp.Close())
	for e := range events {
		switch e.Kind {
		case vmmc.ImportRevoked:
			fmt.Println(e.Kind, e.Import.ID(), e.Import.Exporter() == e.Peer, errors.Is(e.Err, vmmc.ErrRevoked))
			check(b.Close())
		case vmmc.PeerGone:
			fmt.Println(e.Kind, e.Peer.PID == b.PID(), e.Peer.Node == b.Node(), errors.Is(e.Err, vmmc.ErrPeerGone))
			return
		case vmmc.LinkDown, vmmc.LinkResumed: // between nodes
		case vmmc.NodeGone, vmmc.NodeBack: // the daemon was restarted
		case vmmc.ExportFault:
			fmt.Println("the program has unmapped exported memory:", e.Export.ID())
		case vmmc.NameLost: // after that
			fmt.Println("another process is found by the name:", e.Name, e.Peer)
		}
	}
	// Output:
	// import revoked 1 true true
	// peer gone true true true
}

// Options of an export.
func ExampleProcess_Export() {
	p, _, end := pair(context.Background())
	defer end()

	mem, err := p.Alloc(2 * vmmc.PageSize())
	check(err)
	half := vmmc.PageSize()
	first, err := p.Export(1, mem.Bytes()[:half], vmmc.SharePages(), vmmc.GlobalSpace(), vmmc.ReadWrite())
	check(err)
	second, err := p.Export(2, mem.Bytes()[half:], vmmc.SharePages(), vmmc.Locked())
	check(err)
	friends := vmmc.Permission{Users: []string{"root"}, Sessions: []string{"*"}, Nodes: []vmmc.NodeID{p.Node()}}
	third, err := p.Export(3, make([]byte, 64), vmmc.Permit(friends, vmmc.Permission{Processes: []vmmc.ProcessID{p.ID()}}))
	check(err)
	fmt.Println(first.Size() == len(second.Bytes()), third.ID())
	// Output: true 3
}

// A message of several pieces, and words that importers and the exporter change.
func ExampleImport_SendV() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	mem, err := b.Alloc(64)
	check(err)
	exp, err := b.Export(1, mem.Bytes())
	check(err)
	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)

	check(im.SendV(ctx, [][]byte{[]byte("head"), []byte("body")}, 8))
	fmt.Printf("%s\n", mem.Bytes()[8:16])

	w, err := exp.Word(0)
	check(err)
	w.Store(1)
	_, err = im.FetchAdd32(ctx, 0, 1)
	check(err)
	_, err = im.Swap32(ctx, 0, w.Load()+1)
	check(err)
	_, swapped, err := im.CompareAndSwap32(ctx, 0, 3, 4)
	check(err)
	fmt.Println(swapped, w.Add(1), w.Swap(6), w.CompareAndSwap(6, 7))

	v, err := exp.Word64(16)
	check(err)
	v.Store(1)
	_, err = im.Swap64(ctx, 16, 2)
	check(err)
	_, swapped, err = im.CompareAndSwap64(ctx, 16, 2, 3)
	if o, ok := vmmc.OutcomeOf(err); ok { // the context has ended first
		_, err = o.Wait(context.Background())
	}
	check(err)
	fmt.Println(swapped, v.Swap(4), v.CompareAndSwap(4, 5))
	// Output:
	// headbody
	// true 5 5 true
	// true 3 true
}

// A slot of a ring and its number, which lie apart: one call, the number last.
func ExampleImport_SendSignal() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	mem, err := b.Alloc(1 << 12)
	check(err)
	exp, err := b.Export(1, mem.Bytes())
	check(err)
	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)

	const numbers, slots = 0, 1024
	check(im.SendSignal(ctx, []byte("the first record"), slots, 1, numbers))

	w, err := exp.Word(numbers)
	check(err)
	n, err := w.Wait(ctx, 0)
	check(err)
	fmt.Printf("%d: %s\n", n, mem.Bytes()[slots:slots+16])
	// Output: 1: the first record
}

// Waits for one of several words, and for anything else that changes.
func ExampleProcess_WaitAny() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	mem, err := b.Alloc(4 * vmmc.WordSize())
	check(err)
	exp, err := b.Export(1, mem.Bytes())
	check(err)
	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)
	x, err := exp.Word(0)
	check(err)
	y, err := exp.Word(4)
	check(err)

	check(im.Send(ctx, []byte{1, 0, 0, 0}, 4))
	i, err := b.WaitAny(ctx, vmmc.Watch{Word: x, Old: 0}, vmmc.Watch{Word: y, Old: 0})
	check(err)
	check(b.WaitUntil(ctx, func() bool { return y.Load() == 1 }))
	fmt.Println(i)
	// Output: 1
}

// A client waits for an answer, or for the end of the server that owes it.
func ExampleImport_WaitWord() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	answers, err := a.Alloc(64)
	check(err)
	exp, err := a.Export(1, answers.Bytes())
	check(err)
	answer, err := exp.Word(0)
	check(err)
	calls, err := b.Alloc(64)
	check(err)
	served, err := b.Export(1, calls.Bytes())
	check(err)
	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)

	check(served.Close()) // instead of an answer
	_, err = im.WaitWord(ctx, answer, 0)
	fmt.Println(errors.Is(err, vmmc.ErrRevoked))
	// Output: true
}

// Requests complete in their order.
func ExampleImport_GetAsync() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	mem, err := b.Alloc(64)
	check(err)
	copy(mem.Bytes(), "data")
	_, err = b.Export(1, mem.Bytes(), vmmc.WithHandler(func(vmmc.Notification) {}))
	check(err)
	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)

	got := make([]byte, 4)
	get, err := im.GetAsync(ctx, got, 0)
	check(err)
	send, err := im.SendNotifyAsync(ctx, []byte("more"), 4)
	check(err)
	check(send.Wait(ctx))
	if err := get.Status(); errors.Is(err, vmmc.ErrInProgress) {
		fmt.Println("not over yet")
	}
	fmt.Println(get.Done(), string(got))
	// Output: true data
}

// Reads and writes of any bytes, within a context.
func ExampleImport_ReadAtContext() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	_, err := b.Export(1, make([]byte, 64))
	check(err)
	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)
	_, err = im.WriteAtContext(ctx, []byte("abc"), 5)
	check(err)
	got := make([]byte, 3)
	_, err = im.ReadAtContext(ctx, got, 5)
	check(err)
	_, err = im.ReadAt(got[:1], 6) // io.ReaderAt has an int64
	check(err)
	fmt.Println(string(got), im.Path() == vmmc.PathStream, im.Path() == vmmc.PathMapped)
	// Output: bbc true false
}

// Two processes of one node share memory. Data that travels by a stream is not mapped.
func ExampleImport_Mapped() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	mem, err := b.Alloc(64)
	check(err)
	_, err = b.Export(1, mem.Bytes())
	check(err)
	_, err = b.Export(2, make([]byte, 64)) // not of Alloc
	check(err)
	shared, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)
	other, err := a.Import(ctx, b.Node(), b.PID(), 2)
	check(err)
	shared.Mapped()[5] = 7
	fmt.Println(mem.Bytes()[5], other.Mapped() == nil)
	check(shared.Close())
	// Output: 7 true
}

// A buffer whose exporter has made it again is imported again.
func ExampleImport_Rejoin() {
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
	_, err = b.Export(1, mem.Bytes())
	check(err)

	im, err = im.Rejoin(ctx) // from the same process; RejoinAt names another one
	check(err)
	im, err = im.RejoinAt(ctx, b.ID())
	check(err)
	fmt.Println(im.Send(ctx, []byte("word"), 0))
	// Output: <nil>
}

// Notifications that an exporter does not want, and those that it counts.
func ExampleExport_Notified() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	mem, err := b.Alloc(64)
	check(err)
	exp, err := b.Export(1, mem.Bytes(), vmmc.WithHandler(func(n vmmc.Notification) { fmt.Println(len(n.At)) }))
	check(err)
	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)
	seen := exp.Notified()
	check(im.SendNotify(ctx, []byte("word"), 0))
	_, err = exp.WaitNotified(ctx, seen)
	check(err)
	exp.DiscardNotifications(true)
	check(im.SendNotify(ctx, []byte("more"), 0)) // its data arrives
	check(im.Fence(ctx))
	fmt.Println(exp.Notified(), string(mem.Bytes()[:4]))
	// Output:
	// 4
	// 1 more
}

// How a binding finds what was stored, and what it has carried over. Store and Flush are for those
// who wait.
func ExampleBinding_Stats() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	there, err := b.Alloc(vmmc.PageSize())
	check(err)
	_, err = b.Export(1, there.Bytes())
	check(err)
	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	check(err)
	here, err := a.Alloc(vmmc.PageSize())
	check(err)
	for _, opts := range [][]vmmc.BindOption{
		{vmmc.CompareOnly(), vmmc.WithContents(), vmmc.FlagRange(8, 16)},
		{vmmc.NotifyUpdates()},
		{vmmc.AliasPages()},
	} {
		bound, err := im.Bind(here.Bytes(), 0, opts...)
		check(err)
		check(bound.Store(ctx, 0, 7)) // at once
		here.Bytes()[4]++             // within microseconds
		check(bound.Flush(ctx))       // it has arrived
		s := bound.Stats()
		switch s.Mode {
		case vmmc.BindWatch, vmmc.BindCompare: // s.Reason says why it is not BindWatch
			fmt.Println(s.Path, s.Messages > 0 && s.Words >= s.Messages && s.Passes > 0 && s.Scans+1 > 0, s.Reason != "" || s.Mode == vmmc.BindWatch)
		case vmmc.BindAlias:
			fmt.Println(s.Mode)
		}
		check(bound.Close())
		<-bound.Done()
		fmt.Println(errors.Is(bound.Err(), vmmc.ErrClosed), there.Bytes()[0])
	}
	// Output:
	// mapped true true
	// true 7
	// mapped true true
	// true 7
	// alias
	// true 7
}

// An import that is made in the background, and operations by address.
func Example_importAsync() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	r := manual.ImportAsync(ctx, a, b.Node(), b.PID(), 1)
	_, err := r.Status()
	fmt.Println(errors.Is(err, vmmc.ErrInProgress))
	mem, err := b.Alloc(64)
	check(err)
	_, err = b.Export(1, mem.Bytes())
	check(err)
	im, err := r.Wait(ctx)
	check(err)
	_, err = r.Status() // it was given out
	fmt.Println(errors.Is(err, vmmc.ErrStaleHandle))
	never := manual.ImportAsync(ctx, a, b.Node(), b.PID(), 2)
	never.Cancel()

	var space manual.DestSpace
	addr, err := space.Add(im)
	check(err)
	at := addr + 8
	check(space.SendNotify(ctx, []byte("one "), at))
	send, err := space.SendAsync(ctx, []byte("two "), at+4)
	check(err)
	check(send.Wait(ctx))
	send, err = space.SendNotifyAsync(ctx, []byte("five"), at+8)
	check(err)
	check(send.Wait(ctx))
	got, rest := make([]byte, 8), make([]byte, 4)
	check(space.Get(ctx, got, at))
	get, err := space.GetAsync(ctx, rest, at+8)
	check(err)
	check(get.Wait(ctx))
	_, off, err := space.Lookup(at)
	check(err)
	fmt.Printf("%s%s %d\n", got, rest, off)
	// Output:
	// true
	// true
	// one two five 8
}
