package portmap_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/vrpc/portmap"
	"github.com/vmmc-go/vmmc/xdr"
)

// A server registers its services, and a client finds them.
func Example() {
	ctx := context.Background()
	clock := &vrpc.Service{Name: "CLOCK_1", Program: 0x20000200, Version: 1}
	address, end := listen(clock)
	defer end()

	// The server. Its machine's rpcbind would be that of portmap.Local.
	rpcbind, err := portmap.Dial(ctx, address.Network(), address.String())
	check(err)
	defer rpcbind.Close()
	services := []*vrpc.Service{clock}
	check(rpcbind.Register(ctx, "clockd", services, address))

	// The client.
	m, err := rpcbind.Find(ctx, 0x20000200, 1, "tcp")
	check(err)
	network, at, err := m.Endpoint()
	check(err)
	c, err := vrpc.Dial(ctx, network, at)
	check(err)
	defer c.Close()
	err = c.Call(ctx, m.Program, m.Version, 0, xdr.Void{}, xdr.Void{})
	fmt.Println(network, at == address.String(), err)

	check(rpcbind.Unregister(ctx, services, address)) // before the server ends
	_, err = rpcbind.Find(ctx, 0x20000200, 1, "tcp")
	fmt.Println(errors.Is(err, portmap.ErrNotRegistered))
	// Output:
	// tcp4 true <nil>
	// true
}

// Everything that is registered, as rpcinfo(8) lists it.
func ExampleClient_Dump() {
	ctx := context.Background()
	address, end := listen()
	defer end()
	c, err := portmap.Dial(ctx, "tcp", address.String())
	check(err)
	defer c.Close()

	m := portmap.Mapping{
		Program: 0x20000200, Version: 1, Network: "udp", Address: "127.0.0.1.8.1", Owner: "clockd",
	}
	check(c.Set(ctx, m))
	all, err := c.Dump(ctx)
	check(err)
	for _, m := range all {
		if m.Program != portmap.Program { // rpcbind itself
			fmt.Println(m.Program, m.Version, m.Network, m.Address, m.Owner)
		}
	}

	// Another server of the program has to wait until it is taken back.
	m.Address = "127.0.0.1.8.2"
	fmt.Println(errors.Is(c.Set(ctx, m), portmap.ErrRefused))
	check(c.Unset(ctx, m))
	check(c.Set(ctx, m))
	// Output:
	// 536871424 1 udp 127.0.0.1.8.1 clockd
	// true
}

// Ways to a machine's rpcbind: by its socket, by TCP, and by UDP.
func ExampleLocal() {
	ctx := context.Background()
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(portmap.Port))
	for _, dial := range []func() (*portmap.Client, error){
		func() (*portmap.Client, error) { return portmap.Local(ctx) },
		func() (*portmap.Client, error) { return portmap.Host(ctx, "127.0.0.1") },
		func() (*portmap.Client, error) {
			return portmap.Dial(ctx, "udp", at, vrpc.WithRetry(10*time.Millisecond, 100*time.Millisecond))
		},
	} {
		c, err := dial()
		if err == nil {
			_, err = c.Find(ctx, 0x2000ffff, 1, "tcp")
			check(c.Close())
		}
		if err != nil { // portmap.ErrNotRegistered, or there is no rpcbind
			fmt.Println("not found")
		}
	}
	// Output:
	// not found
	// not found
	// not found
}

// A machine without rpcbind gets one, here on a port of its own and below another root.
func ExampleNewServer() {
	ctx := context.Background()
	root, err := os.MkdirTemp("", "rpcbind")
	check(err)
	defer os.RemoveAll(root)
	socket := filepath.Join(root, portmap.Socket)
	check(os.MkdirAll(filepath.Dir(socket), 0o700))
	tcp, err := net.Listen("tcp", "127.0.0.1:0") // otherwise at portmap.Port
	check(err)
	local, err := net.Listen("unix", socket)
	check(err)
	rpcbind, err := portmap.NewServer(tcp.Addr(), local.Addr())
	check(err)
	s := vrpc.NewServer()
	check(rpcbind.Register(s))
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(tcp) })
	serving.Go(func() { _ = s.Serve(local) })

	c, err := vrpc.Dial(ctx, "unix", local.Addr().String())
	check(err)
	for version := range uint32(5) {
		err := c.Call(ctx, portmap.Program, version, 0, xdr.Void{}, xdr.Void{})
		fmt.Println(version, err == nil)
	}
	check(c.Close())
	check(s.Close())
	serving.Wait()
	// Output:
	// 0 false
	// 1 false
	// 2 true
	// 3 true
	// 4 true
}

// Rpcbind writes addresses in a form of its own, with the two bytes of the port at the end.
func ExampleOf() {
	fmt.Println(portmap.FormatAddress(netip.MustParseAddrPort("192.0.2.1:2049")))
	a, err := portmap.ParseAddress("192.0.2.1.8.1")
	fmt.Println(a, err)

	// A listener on [::] takes IPv4 too.
	all, err := portmap.Of(0x20000200, 1, &net.TCPAddr{IP: net.IPv6zero, Port: 2049})
	check(err)
	for _, m := range all {
		network, address, err := m.Endpoint()
		fmt.Println(m.Network, m.Address, network, address, err)
	}
	// Output:
	// 192.0.2.1.8.1
	// 192.0.2.1:2049 <nil>
	// tcp 0.0.0.0.8.1 tcp4 0.0.0.0:2049 <nil>
	// tcp6 ::.8.1 tcp6 [::]:2049 <nil>
}

// listen serves an rpcbind and services on one socket until end is called.
func listen(services ...*vrpc.Service) (address net.Addr, end func()) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	rpcbind, err := portmap.NewServer(l.Addr())
	check(err)
	s := vrpc.NewServer()
	check(rpcbind.Register(s))
	for _, v := range services {
		check(s.Register(v))
	}
	served := make(chan struct{})
	go func() {
		_ = s.Serve(l) // ErrClosed
		close(served)
	}()
	return l.Addr(), func() {
		check(s.Close())
		<-served
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
