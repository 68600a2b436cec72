package main

import (
	"errors"
	"net"
	"strconv"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/vrpc/portmap"
)

// rpcbind has an rpcbind serve until the script ends, at the port $RPCBIND of UDP and TCP.
func rpcbind(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: rpcbind")
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	udp, err := net.ListenPacket("udp", tcp.Addr().String())
	ts.Check(err)
	s := vrpc.NewServer()
	b, err := portmap.NewServer(tcp.Addr(), udp.LocalAddr())
	ts.Check(errors.Join(err, b.Register(s)))
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(tcp) })
	wg.Go(func() { _ = s.ServePacket(udp) })
	ts.Defer(func() {
		_ = s.Close()
		wg.Wait()
	})
	ts.Setenv("RPCBIND", strconv.Itoa(tcp.Addr().(*net.TCPAddr).Port))
}
