package vrpc_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/xdr"
)

// An error names the call that has failed, and its kind says whether the server has run it.
func ExampleError() {
	ctx := context.Background()
	server, address, end := listen(func(context.Context, string) (*line, error) {
		return nil, errors.New("the disk is full") // which the server logs
	}, vrpc.WithServerLogger(slog.New(slog.DiscardHandler)))
	c, err := vrpc.Dial(ctx, "tcp", address, vrpc.WithMaxReply(512))
	check(err)
	defer c.Close()
	silent, err := net.ListenPacket("udp", "127.0.0.1:0") // without a server
	check(err)
	defer silent.Close()
	u, err := vrpc.Dial(ctx, "udp", silent.LocalAddr().String(),
		vrpc.WithRetry(time.Millisecond, 5*time.Millisecond)) // the first time, and all times
	check(err)

	_, err = say(ctx, c, "hello")
	var e *vrpc.Error
	fmt.Println(errors.As(err, &e), e.Name, e.Peer == "tcp "+address)
	fmt.Println(e.Program, e.Version, e.Procedure, e.Err)
	fmt.Println(state(err))
	program, void := server.Services()[0].Program, xdr.Void{}
	for _, err := range []error{
		c.Call(ctx, program, 1, 1, data(make([]byte, 1000)), void),
		c.Call(ctx, program+1, 1, 1, void, void),
		c.Call(ctx, program, 2, 1, void, void),
		c.Call(ctx, program, 1, 7, void, void),
		c.Call(ctx, program, 1, 1, void, void),
		c.Call(ctx, program, 1, 0, void, new(line)),
		u.Call(ctx, program, 1, 1, &line{"hello"}, void),
	} {
		fmt.Println(state(err))
	}
	end()
	fmt.Println(state(c.Call(ctx, program, 1, 0, void, void)))
	check(u.Close())
	fmt.Println(state(u.Call(ctx, program, 1, 0, void, void)))
	// Output:
	// true SAY of SPEAKER_1 true
	// 536871168 1 1 the server failed
	// run, and failed: see the server's log
	// not sent: raise the limit, or send it in parts
	// not run: this is another program's server
	// not run: the server has versions 1 to 1
	// not run: the server is older than the client
	// not run: client and server are not made from the same .x file
	// run: the client cannot decode the result
	// unknown: call again if it may run twice
	// unknown: call again if it may run twice
	// not run, or unknown: this program has closed the client
}

// state is what a client knows of a call that has failed.
func state(err error) string {
	var mismatch *vrpc.MismatchError
	switch {
	case errors.Is(err, vrpc.ErrTooLarge):
		return "not sent: raise the limit, or send it in parts"
	case errors.Is(err, vrpc.ErrProgUnavail):
		return "not run: this is another program's server"
	case errors.Is(err, vrpc.ErrProgMismatch) && errors.As(err, &mismatch):
		return fmt.Sprintf("not run: the server has versions %d to %d", mismatch.Low, mismatch.High)
	case errors.Is(err, vrpc.ErrRPCMismatch):
		return "not run: the server does not speak this RPC"
	case errors.Is(err, vrpc.ErrProcUnavail):
		return "not run: the server is older than the client"
	case errors.Is(err, vrpc.ErrGarbageArgs):
		return "not run: client and server are not made from the same .x file"
	case errors.Is(err, vrpc.ErrAuth):
		return "not run: the server refuses the caller"
	case errors.Is(err, vrpc.ErrSystem):
		return "run, and failed: see the server's log"
	case errors.Is(err, vrpc.ErrReply):
		return "run: the client cannot decode the result"
	case errors.Is(err, vrpc.ErrLost), errors.Is(err, vrpc.ErrTimeout):
		return "unknown: call again if it may run twice"
	case errors.Is(err, vrpc.ErrClosed):
		return "not run, or unknown: this program has closed the client"
	}
	return "done"
}
