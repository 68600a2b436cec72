package daemon

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
)

// maxUnauthConns bounds the connections that are not authenticated yet: data links that have not
// proved their key, and TLS connections whose certificate was not checked.
const maxUnauthConns = 1024

// preauthLimiter holds the unauthenticated connections. When there are too many, it closes the
// oldest one: of the new one's address if that has half of them, else of the address with most. An
// honest peer authenticates within milliseconds, so a peer that holds connections open loses its
// own and displaces no other.
type preauthLimiter struct {
	max      int // one address may have half as many
	mu       sync.Mutex
	byAddr   map[netip.Addr]*list.List // oldest first
	count    int
	admitted uint64 // number of connections admitted so far
	closed   bool
}

// newPreauthLimiter returns a limiter that uses at most a quarter of the process's descriptors; 0:
// their number is not known.
func newPreauthLimiter(descriptors int) *preauthLimiter {
	g := &preauthLimiter{max: maxUnauthConns, byAddr: map[netip.Addr]*list.List{}}
	if descriptors > 0 {
		g.max = max(2, min(g.max, descriptors/4))
	}
	return g
}

type unauthConn struct {
	net.Conn
	addr netip.Addr
	elem *list.Element // nil: released
	seq  uint64        // order of admission
}

func oldestSeq(l *list.List) uint64 { return l.Front().Value.(*unauthConn).seq }

// admit adds c. It closes and returns the connection that c displaces, if any.
func (g *preauthLimiter) admit(c net.Conn) (s *unauthConn, evicted net.Conn) {
	s = &unauthConn{Conn: c, addr: limitKey(c)}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		_ = c.Close()
		return s, nil
	}
	l := g.byAddr[s.addr]
	if l == nil {
		l = list.New()
	}
	switch {
	case l.Len() >= g.max/2:
		evicted = g.evict(l)
	case g.count >= g.max:
		most := l
		for _, o := range g.byAddr {
			if o.Len() > most.Len() || o.Len() == most.Len() && oldestSeq(o) < oldestSeq(most) {
				most = o
			}
		}
		evicted = g.evict(most)
	}
	g.byAddr[s.addr] = l // also when the evicted one was its only one
	g.admitted++
	s.seq = g.admitted
	s.elem = l.PushBack(s)
	g.count++
	return s, evicted
}

// evict closes the oldest connection of l. mu is held.
func (g *preauthLimiter) evict(l *list.List) net.Conn {
	s := l.Front().Value.(*unauthConn)
	g.remove(s)
	_ = s.Close()
	return s.Conn
}

func (g *preauthLimiter) remove(s *unauthConn) {
	if s.elem == nil {
		return
	}
	l := g.byAddr[s.addr]
	l.Remove(s.elem)
	s.elem = nil
	g.count--
	if l.Len() == 0 {
		delete(g.byAddr, s.addr)
	}
}

// release removes a connection that has authenticated or ended.
func (g *preauthLimiter) release(s *unauthConn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.remove(s)
}

// close closes all connections, and later ones at admit.
func (g *preauthLimiter) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, l := range g.byAddr {
		for e := l.Front(); e != nil; e = e.Next() {
			_ = e.Value.(*unauthConn).Close()
		}
	}
}

// limitKey is the address that a connection is counted for: for IPv6 its /64 network, since the
// owner of a network has more addresses than can be counted.
func limitKey(c net.Conn) netip.Addr {
	t, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	a := t.AddrPort().Addr().Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}
