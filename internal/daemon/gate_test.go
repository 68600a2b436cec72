package daemon

import (
	"net"
	"net/netip"
	"testing"
)

// from is a connection from an address.
type from struct {
	net.Conn
	addr   netip.AddrPort
	closed *bool
}

func (f from) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(f.addr) }

func (f from) Close() error {
	*f.closed = true
	return nil
}

func come(addr string) from { return from{addr: netip.MustParseAddrPort(addr), closed: new(bool)} }

// One address has room of its own, and all together too: who has most gives it up.
func TestGate(t *testing.T) {
	g := newGate(0)
	enter := func(c from, want net.Conn) *stranger {
		t.Helper()
		s, evicted := g.enter(c)
		if evicted != want {
			t.Fatalf("%v made %v go, wanted %v", c.addr, evicted, want)
		}
		if want != nil && !*want.(from).closed {
			t.Fatal("who had to go was not closed")
		}
		return s
	}
	var crowd []from
	for i := range maxStrangers {
		c := come("10.0.0.1:1000")
		crowd = append(crowd, c)
		var goes net.Conn
		if i >= maxStrangers/2 {
			goes = crowd[i-maxStrangers/2]
		}
		enter(c, goes)
	}
	crowd = crowd[maxStrangers/2:]

	// Others come in until all is full, and then at the cost of those who have most.
	var others []*stranger
	for i := range maxStrangers - maxStrangers/2 {
		c := come("10.0.0.2:1000")
		c.addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 1)
		others = append(others, enter(c, nil))
	}
	late := come("10.9.9.9:1")
	s := enter(late, crowd[0])
	g.leave(s)
	g.leave(s) // does nothing
	if g.n != maxStrangers-1 {
		t.Errorf("%d are strange", g.n)
	}
	for _, o := range others {
		g.leave(o)
	}
	if g.n != maxStrangers/2-1 || len(g.from) != 1 {
		t.Errorf("%d are strange, of %d addresses", g.n, len(g.from))
	}
	g.close()
	if last := crowd[len(crowd)-1]; !*last.closed {
		t.Error("one is open after the end")
	}
	if c := come("10.0.0.3:1"); true {
		if enter(c, nil); !*c.closed {
			t.Error("one came after the end")
		}
	}
}

// All are one each: the newest takes the place of one of them, its own included.
func TestGateOfMany(t *testing.T) {
	g := newGate(0)
	for i := range maxStrangers {
		c := come("[2001:db8::1]:1")
		a := c.addr.Addr().As16()
		a[6], a[7] = byte(i>>8), byte(i)
		c.addr = netip.AddrPortFrom(netip.AddrFrom16(a), 1)
		g.enter(c)
	}
	for range 3 { // another of a network that has one
		s, _ := g.enter(come("[2001:db8::ffff]:1"))
		g.leave(s)
	}
	if g.n > maxStrangers || len(g.from) > maxStrangers {
		t.Errorf("%d are strange, of %d networks", g.n, len(g.from))
	}
}
