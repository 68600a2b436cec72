package vrpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/node"
	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/xdr"
)

// One server answers clients by UDP, TCP and remote memory. For a program with a .x file vrpcgen
// writes what stands below: the types, the service and the client's function.
func Example() {
	ctx := context.Background()
	n, err := node.Start()
	check(err)
	defer n.Close()
	here, err := vmmc.Open(ctx, vmmc.WithSocket(n.Socket()))
	check(err)
	defer here.Close()
	there, err := vmmc.Open(ctx, vmmc.WithSocket(n.Socket()))
	check(err)
	defer there.Close()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	check(err)

	server := vrpc.NewServer()
	check(server.Register(speaker(func(_ context.Context, text string) (*line, error) {
		return &line{strings.ToUpper(text)}, nil
	})))
	var serving sync.WaitGroup
	serving.Go(func() { fmt.Println(errors.Is(server.Serve(tcp), vrpc.ErrClosed)) })
	serving.Go(func() { _ = server.ServePacket(udp) })
	serving.Go(func() { _ = server.ServeVMMC(there, vrpc.Meeting) })

	for _, dial := range []func() (*vrpc.Client, error){
		func() (*vrpc.Client, error) { return vrpc.Dial(ctx, "tcp", tcp.Addr().String()) },
		func() (*vrpc.Client, error) { return vrpc.Dial(ctx, "udp", udp.LocalAddr().String()) },
		func() (*vrpc.Client, error) { return vrpc.DialVMMC(ctx, here, there.ID(), vrpc.Meeting) },
	} {
		c, err := dial()
		check(err)
		fmt.Println(say(ctx, c, "hello"))
		check(c.Close())
	}
	check(server.Close())
	serving.Wait()
	// Output:
	// HELLO <nil>
	// HELLO <nil>
	// HELLO <nil>
	// true
}

// speaker is a service with one procedure, which answers a line of text.
func speaker(answer func(ctx context.Context, text string) (*line, error)) *vrpc.Service {
	return &vrpc.Service{
		Name: "SPEAKER_1", Program: 0x20000100, Version: 1,
		Procedures: []vrpc.Procedure{{
			Number: 1, Name: "SAY",
			New:    func() vrpc.Call { return &sayCall{answer: answer} },
			Values: true, // answer gets a string
		}},
	}
}

// sayCall is one call of SAY.
type sayCall struct {
	arg    line
	res    *line
	answer func(context.Context, string) (*line, error)
}

func (c *sayCall) DecodeXDR(d *xdr.Decoder) { c.arg.DecodeXDR(d) }
func (c *sayCall) EncodeXDR(e *xdr.Encoder) { c.res.EncodeXDR(e) }

func (c *sayCall) Do(ctx context.Context) (err error) {
	if c.res, err = c.answer(ctx, c.arg.Text); err == nil && c.res == nil {
		return vrpc.ErrNoResult
	}
	return err
}

// line is the argument and the result of SAY.
type line struct{ Text string }

func (l *line) DecodeXDR(d *xdr.Decoder) { l.Text = d.String(l.Text, 255) }
func (l *line) EncodeXDR(e *xdr.Encoder) { e.String(l.Text, 255) }

// say calls SAY.
func say(ctx context.Context, c vrpc.Caller, text string) (string, error) {
	var res line
	err := c.Call(ctx, 0x20000100, 1, 1, &line{text}, &res)
	return res.Text, vrpc.Named(err, "SAY of SPEAKER_1")
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
