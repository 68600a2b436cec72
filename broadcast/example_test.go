package broadcast_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/broadcast"
	"github.com/vmmc-go/vmmc/node"
)

// A reader gets what was appended before it came, and what comes later, up to the log's end.
func Example() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()

	w, err := broadcast.NewWriter(ctx, a, "ticks", 1<<20)
	check(err)
	begin, err := w.Append([]byte("one"))
	check(err)

	done := make(chan struct{})
	r, err := broadcast.NewReader(ctx, b, "ticks", broadcast.Oldest) // mostly another program
	check(err)
	go func() {
		defer close(done)
		for e, err := range r.All(ctx) {
			if lost := (*broadcast.Overrun)(nil); errors.As(err, &lost) {
				fmt.Println(lost.Lost, "bytes were overwritten")
				continue
			}
			check(err)
			fmt.Println(e.Pos-begin, string(e.Data))
		}
		check(r.Close())
	}()

	_, err = w.Append([]byte("two"))
	check(err)
	check(w.Close(ctx)) // waits until the reader has read all
	<-done
	// Output:
	// 0 one
	// 12 two
}

// A reader that is too slow learns what it has lost, and goes on with the oldest entry.
func ExampleOverrun() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	w, err := broadcast.NewWriter(ctx, a, "ticks", 4096, broadcast.MaxReaders(8))
	check(err)
	fmt.Println("up to", w.MaxEntry(), "bytes an entry")
	r, err := broadcast.NewReader(ctx, b, "ticks", broadcast.Newest)
	check(err)
	fmt.Println(w.Readers(), "reader")

	begin, err := w.Append(make([]byte, w.MaxEntry()))
	check(err)
	for range 19 {
		_, err := w.Append(make([]byte, w.MaxEntry()))
		check(err)
	}
	_, _, err = r.Next(ctx, nil)
	fmt.Println(err)
	entry, pos, err := r.Next(ctx, nil)
	check(err)
	fmt.Println(len(entry), pos-begin)

	check(r.Close())
	check(w.Close(ctx))
	// Output:
	// up to 504 bytes an entry
	// 1 reader
	// read log "ticks": overrun: 6144 bytes of the log were overwritten before they were read
	// 504 6144
}

// A reader goes on where an earlier one was, and is told the end of the log.
func ExampleAt() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	only := broadcast.Permit(vmmc.Permission{Processes: []vmmc.ProcessID{b.ID()}})
	w, err := broadcast.NewWriter(ctx, a, "ticks", 1<<16, only)
	check(err)
	_, err = w.Append([]byte("one"))
	check(err)
	pos, err := w.Append([]byte("two"))
	check(err)

	r, err := broadcast.NewReader(ctx, b, "ticks", broadcast.At(pos))
	check(err)
	entry, _, err := r.Next(ctx, nil)
	check(err)
	fmt.Println(string(entry))

	closed := make(chan error)
	go func() { closed <- w.Close(ctx) }()
	_, _, err = r.Next(ctx, nil)
	fmt.Println(errors.Is(err, broadcast.ErrEnded))
	check(<-closed)
	check(r.Close())
	// Output:
	// two
	// true
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
