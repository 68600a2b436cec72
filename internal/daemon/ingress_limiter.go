package daemon

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
)

// maxUnauthConns is how many connections may be strange at a time: neither a data link that
// has proved its key nor a TLS connection whose certificate was checked.
const maxUnauthConns = 1024

// preauthLimiter keeps the strangers. Where there are too many, the oldest makes room for the
// newest: of the same address, or of that which has most. Who is honest is strange for
// milliseconds, so who holds connections open loses those, and takes the room of
// nobody.
type preauthLimiter struct {
	max      int // of one address half as many, so that others have room
	mu       sync.Mutex
	byAddr   map[netip.Addr]*list.List // oldest first
	count    int
	admitted uint64 // in all
	closed   bool
}

// newPreauthLimiter is of a process that may have so many descriptors, 0 if that is not known:
// strangers have at most a quarter of them.
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
	elem *list.Element // nil: it has left
	seq  uint64        // to come
}

func oldestSeq(l *list.List) uint64 { return l.Front().Value.(*unauthConn).seq }

// admit lets c in, and closes who had to make room for it.
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
	g.byAddr[s.addr] = l // also where the one that went was its only one
	g.admitted++
	s.seq = g.admitted
	s.elem = l.PushBack(s)
	g.count++
	return s, evicted
}

// evict closes the oldest; mu is held.
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

// release is of one that is strange no more, or gone.
func (g *preauthLimiter) release(s *unauthConn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.remove(s)
}

// close closes all that are there, and who comes later.
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

// limitKey is whom a connection is counted for. One who has an IPv6 network has more
// addresses than can be counted.
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
