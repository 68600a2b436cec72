// Via measures two virtual interfaces of two processes: ping-pong, bandwidth one way, and both ways at
// once. The second process finds the first one's node by the name service, and connects.
package main

import (
	"context"
	"os"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/node"
)

const (
	rounds = 1000
	small  = 64
	large  = 64 << 10
	window = 16 // SENDs, and receives, that are outstanding

	discriminator = "measure"
)

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	p, err := vmmc.Open(ctx, node.Embed())
	check(err)
	defer p.Close()
	e := open(p)
	defer e.nic.Close()
	for i := range window { // before the connection: then no message can find none
		e.postReceive(i)
	}

	first := len(os.Args) == 1
	if first {
		l, err := e.nic.Listen(ctx, discriminator)
		check(err)
		second := start(p)
		r, err := l.Wait(ctx)
		check(err)
		check(r.Accept(e.vi))
		defer func() { check(second.Wait()) }()
	} else {
		e.connect(ctx, os.Args[1])
	}
	e.meet(ctx, first)
	for _, n := range []int{small, large} {
		took := e.pingPong(ctx, first, n)
		report(first, "%d bytes, half a round trip: %v\n", n, took/(2*rounds))
	}
	report(first, "one way: %.0f MB/s\n", rate(e.stream(ctx, first, !first)))
	report(first, "both ways: %.0f MB/s each\n", rate(e.stream(ctx, true, true)))
	e.meet(ctx, first) // the other side has taken all
}
