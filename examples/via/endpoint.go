package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/via"
)

// endpoint is a VI with memory: room for window messages that it sends, then for as many that arrive.
type endpoint struct {
	nic *via.NIC
	mem *via.Memory
	vi  *via.VI
}

func open(p *vmmc.Process) (e endpoint) {
	var err error
	e.nic, err = via.Open(p, "nic0")
	check(err)
	e.nic.OnError(func(a via.AsyncError) {
		if a.Code != via.ConnectionLost { // one side ends first; before the end the Waits tell it
			log.Fatal(a.Code, a.Err)
		}
	})
	tag, err := e.nic.NewTag()
	check(err)
	e.mem, err = e.nic.Register(make([]byte, 2*window*large), via.MemoryAttributes{Tag: tag})
	check(err)
	e.vi, err = e.nic.NewVI(via.VIAttributes{Level: via.ReliableDelivery, MaxTransferSize: large, Tag: tag}, nil, nil)
	check(err)
	return e
}

// connect looks the node up and requests the connection.
func (e *endpoint) connect(ctx context.Context, node string) {
	host, err := e.nic.HostByName(node, 0)
	check(err)
	back, err := e.nic.HostByAddress(host)
	check(err)
	fmt.Printf("node %q has the address %v\n", back, host)
	_, err = e.vi.Connect(ctx, via.Address{}, via.Address{Host: host, Discriminator: discriminator})
	check(err)
}

// postReceive posts a receive into the i-th room for one.
func (e *endpoint) postReceive(i int) {
	check(e.vi.PostReceive(&via.Descriptor{
		Segments: []via.Segment{e.mem.Segment((window+i)*large, large)},
	}))
}

func (e *endpoint) send(ctx context.Context, n int) {
	check(e.vi.PostSend(&via.Descriptor{Segments: []via.Segment{e.mem.Segment(0, n)}}))
	_, err := e.vi.SendWait(ctx)
	check(err)
}

// receive takes a message, and posts its descriptor again.
func (e *endpoint) receive(ctx context.Context) {
	d, err := e.vi.ReceiveWait(ctx)
	check(err)
	check(e.vi.PostReceive(d))
}

// meet waits for the other process, which waits too.
func (e *endpoint) meet(ctx context.Context, first bool) {
	if first {
		e.send(ctx, 0)
		e.receive(ctx)
	} else {
		e.receive(ctx)
		e.send(ctx, 0)
	}
}

func (e *endpoint) pingPong(ctx context.Context, first bool, n int) time.Duration {
	begin := time.Now()
	for range rounds {
		if first {
			e.send(ctx, n)
			e.receive(ctx)
		} else {
			e.receive(ctx)
			e.send(ctx, n)
		}
	}
	return time.Since(begin)
}

// stream sends rounds messages, receives as many, or does both. Each quarter of a window that was received is
// answered by an empty message: without it the sender would find no receive posted.
func (e *endpoint) stream(ctx context.Context, sends, receives bool) time.Duration {
	const step = window / 4
	begin := time.Now()
	for sent, got, credits := 0, 0, 2*step; sends && sent < rounds || receives && got < rounds || sends && credits < 2*step; {
		if sends && sent < rounds && credits > 0 {
			e.send(ctx, large)
			sent++
			credits--
			continue
		}
		d, err := e.vi.ReceiveWait(ctx)
		check(err)
		n := d.Length
		check(e.vi.PostReceive(d))
		if n == 0 {
			credits += step
			continue
		}
		if got++; got%step == 0 {
			e.send(ctx, 0)
		}
	}
	return time.Since(begin)
}

func rate(took time.Duration) float64 { return float64(rounds*large) / 1e6 / took.Seconds() }

// report prints what the first process has measured.
func report(first bool, format string, args ...any) {
	if first {
		fmt.Printf(format, args...)
	}
}

// start runs this program again, on p's node.
func start(p *vmmc.Process) *exec.Cmd {
	self, err := os.Executable()
	check(err)
	name, err := p.NodeToName(p.Node())
	check(err)
	c := exec.Command(self, name) //nolint:noctx // it ends by itself
	c.Env = append(os.Environ(), p.Environ()...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	check(c.Start())
	return c
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
