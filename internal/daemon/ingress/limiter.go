package ingress

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
)

// maxUnauthConns bounds the connections that are not authenticated yet: data links that have not
// proved their key, and TLS connections whose certificate was not checked.
const maxUnauthConns = 1024

// limiter holds the unauthenticated connections. When there are too many, it closes the
// oldest one: of the new one's address if that has half of them, else of the address with most. An
// honest peer authenticates within milliseconds, so a peer that holds connections open loses its
// own and displaces no other.
type limiter struct {
	max      int // one address may have half as many
	mu       sync.Mutex
	byAddr   map[netip.Addr]*list.List // oldest first
	count    int
	admitted uint64 // number of connections admitted so far
	closed   bool
}

// newLimiter returns a limiter that uses at most a quarter of the process's descriptors; 0:
// their number is not known.
func newLimiter(descriptors int) *limiter {
	p := &limiter{max: maxUnauthConns, byAddr: map[netip.Addr]*list.List{}}
	if descriptors > 0 {
		p.max = max(2, min(p.max, descriptors/4))
	}
	return p
}

type unauthConn struct {
	net.Conn
	addr netip.Addr
	elem *list.Element // nil: released
	seq  uint64        // order of admission
}

func oldestSeq(l *list.List) uint64 { return l.Front().Value.(*unauthConn).seq }

// admit adds c. It closes and returns the connection that c displaces, if any.
func (p *limiter) admit(c net.Conn) (s *unauthConn, evicted net.Conn) {
	s = &unauthConn{Conn: c, addr: limitKey(c)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return s, nil
	}
	l := p.byAddr[s.addr]
	if l == nil {
		l = list.New()
	}
	switch {
	case l.Len() >= p.max/2:
		evicted = p.evict(l)
	case p.count >= p.max:
		most := l
		for _, o := range p.byAddr {
			if o.Len() > most.Len() || o.Len() == most.Len() && oldestSeq(o) < oldestSeq(most) {
				most = o
			}
		}
		evicted = p.evict(most)
	}
	p.byAddr[s.addr] = l // also when the evicted one was its only one
	p.admitted++
	s.seq = p.admitted
	s.elem = l.PushBack(s)
	p.count++
	return s, evicted
}

// evict closes the oldest connection of l. mu is held.
func (p *limiter) evict(l *list.List) net.Conn {
	s := l.Front().Value.(*unauthConn)
	p.remove(s)
	_ = s.Close()
	return s.Conn
}

func (p *limiter) remove(s *unauthConn) {
	if s.elem == nil {
		return
	}
	l := p.byAddr[s.addr]
	l.Remove(s.elem)
	s.elem = nil
	p.count--
	if l.Len() == 0 {
		delete(p.byAddr, s.addr)
	}
}

// release removes a connection that has authenticated or ended.
func (p *limiter) release(s *unauthConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(s)
}

// close closes all connections, and later ones at admit.
func (p *limiter) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, l := range p.byAddr {
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
