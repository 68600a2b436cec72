// Rpcecho is one server of SunRPC that answers old clients, by UDP and TCP, and new ones, by remote
// memory, at once. What is in echo/ vrpcgen makes of echo/echo.x; a client in C is made of the same
// file by rpcgen.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/examples/rpcecho/echo"
	"github.com/vmmc-go/vmmc/node"
	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/vrpc/portmap"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

const usage = `usage: rpcecho                              serve, and call by each transport
       rpcecho serve HOST:PORT              serve on UDP and TCP, and tell rpcbind
       rpcecho call tcp|udp HOST:PORT WORDS`

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	switch {
	case len(args) == 0:
		ctx, stop := context.WithTimeout(ctx, 30*time.Second)
		defer stop()
		return show(ctx)
	case len(args) == 1 && args[0] == "child":
		return child(ctx)
	case len(args) == 2 && args[0] == "serve":
		return serve(ctx, args[1])
	case len(args) > 3 && args[0] == "call":
		c, err := vrpc.Dial(ctx, args[1], args[2])
		if err != nil {
			return err
		}
		defer c.Close()
		return say(ctx, c, args[1], strings.Join(args[3:], " "))
	}
	return errors.New(usage)
}

// server has the procedures.
type server struct{ echo.UnimplementedEchoServer }

func (server) Say(_ context.Context, words string) (string, error) { return words, nil }

func (server) Take(_ context.Context, data echo.Heard) (uint32, error) {
	return uint32(len(data)), nil
}

// listening is a server with its sockets.
type listening struct {
	*vrpc.Server
	tcp     net.Listener
	udp     net.PacketConn
	serving sync.WaitGroup
}

// listen serves on UDP and TCP at an address.
func listen(ctx context.Context, address string) (*listening, error) {
	s := &listening{Server: vrpc.NewServer()}
	if err := echo.RegisterEcho(s, server{}); err != nil {
		return nil, err
	}
	var l net.ListenConfig
	var err error
	if s.tcp, err = l.Listen(ctx, "tcp", address); err != nil {
		return nil, err
	}
	if s.udp, err = l.ListenPacket(ctx, "udp", s.tcp.Addr().String()); err != nil {
		_ = s.tcp.Close()
		return nil, err
	}
	s.serving.Go(func() { _ = s.Serve(s.tcp) })
	s.serving.Go(func() { _ = s.ServePacket(s.udp) })
	return s, nil
}

func (s *listening) Close() {
	_ = s.Server.Close()
	s.serving.Wait()
}

// serve serves until it is interrupted.
func serve(ctx context.Context, address string) error {
	s, err := listen(ctx, address)
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Println("serving at", s.tcp.Addr())
	if c, err := portmap.Local(ctx); err != nil {
		fmt.Println("not registered:", err)
	} else {
		defer c.Close()
		if err := c.Register(ctx, "rpcecho", s.Services(), s.tcp.Addr(), s.udp.LocalAddr()); err != nil {
			return err
		}
		defer func() {
			if err := c.Unregister(context.WithoutCancel(ctx), s.Services(), s.tcp.Addr(), s.udp.LocalAddr()); err != nil {
				log.Print(err)
			}
		}()
		fmt.Println("registered with rpcbind")
	}
	<-ctx.Done()
	return nil
}

// show has one server, in a process of its own, answer three clients.
func show(ctx context.Context) error {
	p, err := vmmc.Open(ctx, node.Embed())
	if err != nil {
		return err
	}
	defer p.Close()
	s, err := start(ctx, p)
	if err != nil {
		return err
	}
	defer s.end()
	tcp, err := vrpc.Dial(ctx, "tcp", s.address)
	if err != nil {
		return err
	}
	defer tcp.Close()
	udp, err := vrpc.Dial(ctx, "udp", s.address)
	if err != nil {
		return err
	}
	defer udp.Close()
	mem, err := vrpc.DialVMMC(ctx, p, s.process, vrpc.Meeting)
	if err != nil {
		return err
	}
	defer mem.Close()
	return errors.Join(say(ctx, udp, "udp", "hello"), say(ctx, tcp, "tcp", "hello"), say(ctx, mem, "vmmc", "hello"))
}

// say has the server say it again.
func say(ctx context.Context, c vrpc.Caller, name, words string) error {
	back, err := echo.NewEchoClient(c).Say(ctx, words)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %s\n", name, back)
	return nil
}
