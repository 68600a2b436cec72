package portmap

import (
	"net"
	"testing"

	"github.com/vmmc-go/vmmc/internal/rpcbind"
	"github.com/vmmc-go/vmmc/vrpc"
)

// A portmapper of version 2, which knows two networks, has both of a program.
func TestRegisterAtAPortmapper(t *testing.T) {
	tcp, _ := serve(t, func(s *Server, r vrpc.Registrar) error { return rpcbind.RegisterPmapvers(r, versionTwo{s: s}) })
	c, err := Dial(t.Context(), "tcp", tcp)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	services := []*vrpc.Service{{Program: 300, Version: 1}}
	any4 := net.IPv4zero
	if err := c.Register(t.Context(), "me", services, &net.TCPAddr{IP: any4, Port: 258}, &net.UDPAddr{IP: any4, Port: 259}); err != nil {
		t.Fatal(err)
	}
	all, err := c.Dump(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, m := range all {
		if m.Program == 300 {
			n++
			t.Logf("%+v", m)
		}
	}
	if n != 2 {
		t.Errorf("%d of 2 addresses are registered, and Register returned no error", n)
	}
	if err := c.Register(t.Context(), "me", services, &net.TCPAddr{IP: net.IPv6zero, Port: 258}); err != nil {
		t.Errorf("an ordinary listener on [::]: %v", err)
	}
}

// The program of rpcbind itself, on a network that it is not served at.
func TestNobodySetsRpcbindItself(t *testing.T) {
	tcp, _ := serve(t, (*Server).Register)
	c, err := Dial(t.Context(), "tcp", tcp)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m := Mapping{Program: Program, Version: 4, Network: "udp", Address: "6.6.6.6.0.111"}
	if err := c.Set(t.Context(), m); err == nil {
		t.Errorf("anybody has set where rpcbind itself is by udp; taking it back: %v", c.Unset(t.Context(), m))
	}
}
