package vrpc_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/node"
	"github.com/vmmc-go/vmmc/vrpc"
)

// A server that does not trust its clients bounds what they may take.
func ExampleNewServer() {
	_, address, end := listen(repeat,
		vrpc.WithConnections(100),             // at a time
		vrpc.WithConcurrency(64, 4),           // calls at a time, of all and of one connection
		vrpc.WithMaxMessage(64<<10),           // bytes of a call or a reply
		vrpc.WithMaxDecoded(1<<20),            // bytes of the decoded arguments
		vrpc.WithMaxDatagram(512),             // calls by UDP may have a forged source
		vrpc.WithServerSilence(5*time.Second), // of a client's machine
		// For a call to arrive, for a reply to be taken, and between calls.
		vrpc.WithServerTimes(5*time.Second, 5*time.Second, time.Minute),
		vrpc.WithServerLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))),
	)
	defer end()
	c, err := vrpc.Dial(context.Background(), "tcp", address)
	check(err)
	defer c.Close()
	fmt.Println(say(context.Background(), c, "hello"))
	// Output: hello <nil>
}

// Options of a client.
func ExampleDial() {
	ctx := context.Background()
	_, address, end := listen(repeat)
	defer end()

	c, err := vrpc.Dial(ctx, "tcp", address,
		vrpc.WithMaxReply(64<<10),       // bytes of a call or a reply
		vrpc.WithMaxDecodedReply(1<<20), // bytes of the decoded results
		vrpc.WithSilence(3*time.Second), // of the server's machine
	)
	check(err)
	defer c.Close()
	fmt.Println(say(ctx, c, "hello"))
	// Output: hello <nil>
}

// Client and server by remote memory, where neither lets the other one map its memory.
func ExampleDialVMMC() {
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

	s := vrpc.NewServer(vrpc.WithServerArea(64<<10), vrpc.WithServerExport(vmmc.Unmapped()))
	check(s.Register(speaker(repeat)))
	served := make(chan error)
	friends := vmmc.Permission{Processes: []vmmc.ProcessID{here.ID()}}
	go func() { served <- s.ServeVMMC(there, vrpc.Meeting, vmmc.Permit(friends)) }()
	c, err := vrpc.DialVMMC(ctx, here, there.ID(), vrpc.Meeting,
		vrpc.WithArea(8, 64<<10), // 8 calls at a time, and memory for their replies
		vrpc.WithExport(vmmc.Unmapped()))
	check(err)
	fmt.Println(say(ctx, c, "hello"))
	check(c.Close())
	check(s.Close())
	fmt.Println(<-served)
	// Output:
	// hello <nil>
	// the client or the server is closed
}

// A client of a connection that the program makes itself.
func ExampleNewClient() {
	_, address, end := listen(repeat)
	defer end()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}} // the interface
	conn, err := d.Dial("tcp", address)
	check(err)
	c, err := vrpc.NewClient(conn)
	check(err)
	defer c.Close() // and the connection
	fmt.Println(say(context.Background(), c, "hello"))
	// Output: hello <nil>
}

// Calls without a reply. The server runs them in their order, and the call at the end says that it
// has run them all.
func ExampleClient_Post() {
	ctx := context.Background()
	log := ""
	_, address, end := listen(func(_ context.Context, text string) (*line, error) {
		if text == "how many?" {
			return &line{strconv.Itoa(len(log))}, nil
		}
		log += text
		return nil, vrpc.ErrNoReply
	}, vrpc.InOrder())
	defer end()
	c, err := vrpc.Dial(ctx, "tcp", address)
	check(err)
	defer c.Close()

	for range 100 {
		check(c.Post(ctx, 0x20000100, 1, 1, &line{"entry"}))
	}
	check(c.Flush(ctx)) // for now: the server may begin
	fmt.Println(say(ctx, c, "how many?"))
	// Output: 500 <nil>
}

// A server that is to end answers the calls that it runs.
func ExampleServer_Shutdown() {
	ctx := context.Background()
	running, finish := make(chan struct{}), make(chan struct{})
	s, address, end := listen(func(_ context.Context, text string) (*line, error) {
		close(running)
		<-finish
		return &line{text}, nil
	})
	defer end()
	c, err := vrpc.Dial(ctx, "tcp", address)
	check(err)
	defer c.Close()
	answered := make(chan error)
	go func() {
		_, err := say(ctx, c, "hello")
		answered <- err
	}()

	<-running
	soon, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	over := make(chan error)
	go func() { over <- s.Shutdown(soon) }()
	close(finish)
	fmt.Println(<-answered, <-over)
	// Output: <nil> <nil>
}

// listen serves SAY by TCP until end is called.
func listen(answer func(context.Context, string) (*line, error), opts ...vrpc.ServerOption) (
	s *vrpc.Server, address string, end func(),
) {
	s = vrpc.NewServer(opts...)
	check(s.Register(speaker(answer)))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	served := make(chan struct{})
	go func() {
		_ = s.Serve(l) // ErrClosed
		close(served)
	}()
	return s, l.Addr().String(), func() {
		check(s.Close())
		<-served
	}
}

func repeat(_ context.Context, text string) (*line, error) { return &line{text}, nil }
