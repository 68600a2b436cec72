package call_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/call"
	"github.com/vmmc-go/vmmc/node"
)

// Range is what the examples ask for the sum of.
type Range struct {
	From, To int64
}

// Sum is the answer.
type Sum struct {
	Total int64
}

// A server sums up numbers for a client.
func Example() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()

	s, err := call.Serve(ctx, a, "sums", func(_ context.Context, q *Range, sum *Sum) error {
		for i := q.From; i <= q.To; i++ {
			sum.Total += i
		}
		return nil
	})
	check(err)
	defer s.Close()

	c, err := call.Dial[Range, Sum](ctx, b, "sums") // mostly another program
	check(err)
	defer c.Close()
	var sum Sum
	check(c.Call(ctx, &Range{From: 1, To: 100}, &sum))
	fmt.Println(sum.Total)
	// Output: 5050
}

// An error of the handler reaches the client as text.
func ExampleRemoteError() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	s, err := call.Serve(ctx, a, "sums", func(_ context.Context, q *Range, _ *Sum) error {
		if q.To < q.From {
			return fmt.Errorf("%d is less than %d", q.To, q.From)
		}
		panic("not built")
	})
	check(err)
	defer s.Close()
	c, err := call.Dial[Range, Sum](ctx, b, "sums")
	check(err)
	defer c.Close()

	err = c.Call(ctx, &Range{From: 5, To: 1}, &Sum{})
	var remote *call.RemoteError
	if errors.As(err, &remote) {
		fmt.Println(remote.Text, remote.Panicked)
	}
	// Output: 1 is less than 5 false
}

// A call that is given up may run all the same, and its error says so.
func ExampleClient_Call() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	s, err := call.Serve(ctx, a, "slow", func(ctx context.Context, _ *Range, _ *Sum) error {
		<-ctx.Done() // the server's end
		return ctx.Err()
	})
	check(err)
	defer s.Close()
	c, err := call.Dial[Range, Sum](ctx, b, "slow", call.Slots(4))
	check(err)
	defer c.Close()

	soon, stop := context.WithTimeout(ctx, 10*time.Millisecond)
	defer stop()
	err = c.Call(soon, &Range{}, &Sum{})
	fmt.Println(errors.Is(err, context.DeadlineExceeded), errors.Is(err, vmmc.ErrOutcomeUnknown))
	// Output: true true
}

// A server that is shut down answers the calls that it has taken. Only programs of one user may
// call it, and each has bounds.
func ExampleServer_Shutdown() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	s, err := call.Serve(ctx, a, "sums", func(ctx context.Context, q *Range, sum *Sum) error {
		if id, ok := call.Caller(ctx); !ok || id != b.ID() {
			return errors.New("it is not known")
		}
		sum.Total = q.From + q.To
		return nil
	},
		call.Permit(vmmc.Permission{Processes: []vmmc.ProcessID{b.ID()}}),
		call.MaxClients(10), call.MaxSlots(32), call.Handlers(8), call.Logger(slog.Default()))
	check(err)
	c, err := call.Dial[Range, Sum](ctx, b, "sums")
	check(err)
	defer c.Close()
	var sum Sum
	check(c.Call(ctx, &Range{From: 1, To: 2}, &sum))
	fmt.Println(sum.Total)

	soon, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	if s.Shutdown(soon) != nil { // handlers run longer than the program waits
		check(s.Close())
	}
	fmt.Println(errors.Is(c.Call(ctx, &Range{}, &Sum{}), vmmc.ErrRevoked))
	// Output:
	// 3
	// true
}

// processes starts a node with two processes.
func processes(ctx context.Context) (a, b *vmmc.Process, end func()) {
	n, err := node.Start()
	check(err)
	a, err = vmmc.Open(ctx, vmmc.WithSocket(n.Socket()))
	check(err)
	b, err = vmmc.Open(ctx, vmmc.WithSocket(n.Socket()))
	check(err)
	return a, b, func() {
		check(errors.Join(a.Close(), b.Close()))
		n.Close()
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
