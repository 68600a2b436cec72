package ingress

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

// Connections of one address are limited, and of all together: the address with most loses one.
func TestPreauthLimiter(t *testing.T) {
	p := newLimiter(0)
	enter := func(c from, want net.Conn) *unauthConn {
		t.Helper()
		s, evicted := p.admit(c)
		if evicted != want {
			t.Fatalf("%v made %v go, wanted %v", c.addr, evicted, want)
		}
		if want != nil && !*want.(from).closed {
			t.Fatal("the evicted connection was not closed")
		}
		return s
	}
	var crowd []from
	for i := range maxUnauthConns {
		c := come("10.0.0.1:1000")
		crowd = append(crowd, c)
		var goes net.Conn
		if i >= maxUnauthConns/2 {
			goes = crowd[i-maxUnauthConns/2]
		}
		enter(c, goes)
	}
	crowd = crowd[maxUnauthConns/2:]

	// Others come in until all is full, and then at the cost of the address with most.
	var others []*unauthConn
	for i := range maxUnauthConns - maxUnauthConns/2 {
		c := come("10.0.0.2:1000")
		c.addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 1)
		others = append(others, enter(c, nil))
	}
	late := come("10.9.9.9:1")
	s := enter(late, crowd[0])
	p.release(s)
	p.release(s) // does nothing
	if p.count != maxUnauthConns-1 {
		t.Errorf("%d are unauthenticated", p.count)
	}
	for _, o := range others {
		p.release(o)
	}
	if p.count != maxUnauthConns/2-1 || len(p.byAddr) != 1 {
		t.Errorf("%d are unauthenticated, of %d addresses", p.count, len(p.byAddr))
	}
	p.close()
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
func TestPreauthLimiterOfManyAddresses(t *testing.T) {
	p := newLimiter(0)
	for i := range maxUnauthConns {
		c := come("[2001:db8::1]:1")
		a := c.addr.Addr().As16()
		a[6], a[7] = byte(i>>8), byte(i)
		c.addr = netip.AddrPortFrom(netip.AddrFrom16(a), 1)
		p.admit(c)
	}
	for range 3 { // another of a network that has one
		s, _ := p.admit(come("[2001:db8::ffff]:1"))
		p.release(s)
	}
	if p.count > maxUnauthConns || len(p.byAddr) > maxUnauthConns {
		t.Errorf("%d are unauthenticated, of %d networks", p.count, len(p.byAddr))
	}
}

// Where all addresses have as many connections, the latest is not the one that is closed.
func TestTheOldestOfEqualsMakesRoom(t *testing.T) {
	p := newLimiter(0)
	var last []from
	young := 0
	for i := range 4 * maxUnauthConns {
		c := come("10.0.0.2:1")
		c.addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1)
		_, evicted := p.admit(c)
		if evicted != nil {
			for _, l := range last[max(0, len(last)-50):] {
				if evicted == l {
					young++
				}
			}
		}
		last = append(last, c)
	}
	if young > 0 {
		t.Errorf("of %d that had to go %d were among the 50 youngest of 1024", 3*maxUnauthConns, young)
	}
}
