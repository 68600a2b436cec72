package portmap

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc/internal/rpcbind"
	"github.com/vmmc-go/vmmc/internal/rpcmsg"
	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/xdr"
)

func TestAddress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b [16]byte
		copy(b[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "address"))
		want := netip.AddrPortFrom(netip.AddrFrom16(b).Unmap(), rapid.Uint16().Draw(t, "port"))
		if got, err := ParseAddress(FormatAddress(want)); err != nil || got != want {
			t.Fatalf("%v is %s is %v: %v", want, FormatAddress(want), got, err)
		}
	})
	for _, bad := range []string{"", ".", "..", "1.2", "1.2.3.4", "1.2.3.4.5", "1.2.3.4.5.256", "1.2.3.4.-1.0", "x.1.1", "::1.1"} {
		if a, err := ParseAddress(bad); err == nil {
			t.Errorf("%q is %v", bad, a)
		}
	}
	if s := FormatAddress(netip.MustParseAddrPort("127.0.0.1:2049")); s != "127.0.0.1.8.1" {
		t.Error(s)
	}
}

func TestOf(t *testing.T) {
	for _, c := range []struct {
		a    net.Addr
		want []Mapping
	}{
		{&net.TCPAddr{IP: net.IPv4(1, 2, 3, 4), Port: 258}, []Mapping{{1, 2, "tcp", "1.2.3.4.1.2", ""}}},
		{&net.UDPAddr{IP: net.IPv6zero, Port: 258}, []Mapping{{1, 2, "udp", "0.0.0.0.1.2", ""}, {1, 2, "udp6", "::.1.2", ""}}},
		{&net.TCPAddr{IP: net.IPv6loopback, Port: 1}, []Mapping{{1, 2, "tcp6", "::1.0.1", ""}}},
		{&net.UnixAddr{Name: "/x", Net: "unix"}, []Mapping{{1, 2, "local", "/x", ""}}},
		{&net.IPAddr{}, nil},
	} {
		got, err := Of(1, 2, c.a)
		if d := cmp.Diff(c.want, got); d != "" || (err != nil) != (c.want == nil) {
			t.Errorf("%v: %s, %v", c.a, d, err)
		}
	}
}

// serve serves an rpcbind with the versions that are chosen.
func serve(t *testing.T, versions func(*Server, vrpc.Registrar) error) (tcp, unix string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unix = filepath.Join(t.TempDir(), "s")
	u, err := net.Listen("unix", unix)
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewServer(l.Addr(), u.Addr())
	if err != nil {
		t.Fatal(err)
	}
	s := vrpc.NewServer()
	if err := versions(b, s); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	wg.Go(func() { _ = s.Serve(u) })
	t.Cleanup(func() {
		_ = s.Close()
		wg.Wait()
	})
	return l.Addr().String(), unix
}

// Whatever its versions, an rpcbind does the same for a client.
func TestVersions(t *testing.T) {
	for name, versions := range map[string]func(*Server, vrpc.Registrar) error{
		"all":   (*Server).Register,
		"two":   func(s *Server, r vrpc.Registrar) error { return rpcbind.RegisterPmapvers(r, versionTwo{s: s}) },
		"three": func(s *Server, r vrpc.Registrar) error { return rpcbind.RegisterRpcbvers(r, versionThree{s: s}) },
	} {
		t.Run(name, func(t *testing.T) {
			tcp, unix := serve(t, versions)
			for network, address := range map[string]string{"tcp": tcp, "unix": unix} {
				c, err := Dial(t.Context(), network, address)
				if err != nil {
					t.Fatal(err)
				}
				client(t, c, name == "two")
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func client(t *testing.T, c *Client, two bool) {
	ctx := t.Context()
	m := Mapping{Program: 300, Version: 1, Network: "tcp", Address: "0.0.0.0.1.2"}
	if _, err := c.Find(ctx, 300, 1, "tcp"); !errors.Is(err, ErrNotRegistered) {
		t.Errorf("before: %v", err)
	}
	if err := c.Set(ctx, m); err != nil {
		t.Fatal(err)
	}
	other := m
	other.Address = "0.0.0.0.1.3"
	if err := c.Set(ctx, other); !errors.Is(err, ErrRefused) {
		t.Errorf("twice: %v", err)
	}
	found, err := c.Find(ctx, 300, 1, "tcp")
	if err != nil {
		t.Fatal(err)
	}
	if _, address, err := found.Endpoint(); err != nil || address != "127.0.0.1:258" {
		t.Errorf("%+v, %s, %v", found, address, err)
	}
	all, err := c.Dump(ctx)
	own := 0
	for _, m := range all {
		if m.Program == Program {
			own++
		}
	}
	if err != nil || all[len(all)-1] != m || own == 0 || two != (own == 3) {
		t.Errorf("%+v, %v", all, err)
	}
	if err := c.Unset(ctx, m); err != nil {
		t.Error(err)
	}
	if err := c.Unset(ctx, m); !errors.Is(err, ErrRefused) {
		t.Errorf("not there: %v", err)
	}
	if err := c.Unset(ctx, Mapping{Program: Program, Version: 2}); !errors.Is(err, ErrRefused) {
		t.Errorf("itself: %v", err)
	}
}

// A list that is long is not sent by UDP, where the source address may be another's: what is
// answered to a short call is bounded. By TCP it is all there.
func TestDumpByUDPIsBounded(t *testing.T) {
	const most = 512
	at, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := new(Server)
	s := vrpc.NewServer()
	if err := b.Register(s); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	wg.Go(func() { _ = s.ServePacket(at) })
	t.Cleanup(func() {
		_ = s.Close()
		wg.Wait()
	})
	byTCP, err := Dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer byTCP.Close()
	conn, err := net.Dial("udp", at.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	xid := uint32(0)
	// ask returns the answer to a dump by a version of the protocol.
	ask := func(version uint32) []byte {
		t.Helper()
		xid++
		h := rpcmsg.Call{XID: xid, Program: Program, Version: version, Procedure: 4}
		call, err := xdr.Marshal(&h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(call); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 1<<16)
		n, err := conn.Read(answer)
		if err != nil {
			t.Fatal(err)
		}
		return answer[:n]
	}
	refused := map[uint32]bool{}
	for n := range 100 {
		for version := uint32(2); version <= 4; version++ {
			answer := ask(version)
			var r rpcmsg.Reply
			if err := xdr.Unmarshal(answer[:min(24, len(answer))], &r); err != nil {
				t.Fatal(err)
			}
			refused[version] = r.Outcome == rpcmsg.AuthError
			if len(answer) > most || refused[version] && len(answer) > 24 || n < 5 && refused[version] {
				t.Fatalf("version %d, %d mappings: %d bytes, refused: %v", version, n, len(answer), refused[version])
			}
		}
		all, err := byTCP.Dump(t.Context())
		if err != nil || len(all) != n {
			t.Fatalf("by TCP: %d of %d mappings, %v", len(all), n, err)
		}
		if err := byTCP.Set(t.Context(), Mapping{Program: uint32(300 + n), Version: 1, Network: "tcp", Address: "0.0.0.0.1.2"}); err != nil {
			t.Fatal(err)
		}
	}
	for version := uint32(2); version <= 4; version++ {
		if !refused[version] {
			t.Errorf("version %d sends 99 mappings by UDP", version)
		}
	}
}

// Only a process on the machine may register.
func TestHere(t *testing.T) {
	s := new(Server)
	if s.set(context.Background(), Mapping{1, 1, "tcp", "0.0.0.0.1.2", ""}) || s.unset(context.Background(), 1, 1, "tcp") {
		t.Error("a caller from nowhere may")
	}
}

// A server is registered at all its addresses, whatever was there, and is gone when it says so.
func TestRegister(t *testing.T) {
	tcp, _ := serve(t, (*Server).Register)
	c, err := Dial(t.Context(), "tcp", tcp)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	services := []*vrpc.Service{{Program: 300, Version: 1}, {Program: 300, Version: 2}}
	addrs := []net.Addr{&net.TCPAddr{IP: net.IPv6zero, Port: 258}, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 3}}
	count := func() (n int) {
		all, err := c.Dump(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			if m.Program == 300 && m.Owner == "me" {
				n++
			}
		}
		return n
	}
	for range 2 {
		if err := c.Register(t.Context(), "me", services, addrs...); err != nil || count() != 6 {
			t.Errorf("%v, %d", err, count())
		}
	}
	if err := c.Unregister(t.Context(), services, addrs...); err != nil || count() != 0 {
		t.Errorf("%v, %d", err, count())
	}
	if err := c.Register(t.Context(), "me", services, addrs[0], &net.IPAddr{}); err == nil {
		t.Error("registered at no network")
	}
}
