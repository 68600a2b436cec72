package daemon

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
)

// maxStrangers is how many connections may be strange at a time: neither a data link that
// has proved its key nor a TLS connection whose certificate was checked.
const maxStrangers = 1024

// gate keeps the strangers. Where there are too many, the oldest makes room for the
// newest: of the same address, or of that which has most. Who is honest is strange for
// milliseconds, so who holds connections open loses those, and takes the room of
// nobody.
type gate struct {
	max    int // of one address half as many, so that others have room
	mu     sync.Mutex
	from   map[netip.Addr]*list.List // oldest first
	n      int
	come   uint64 // in all
	closed bool
}

// newGate is of a process that may have so many descriptors, 0 if that is not known:
// strangers have at most a quarter of them.
func newGate(descriptors int) *gate {
	g := &gate{max: maxStrangers, from: map[netip.Addr]*list.List{}}
	if descriptors > 0 {
		g.max = max(2, min(g.max, descriptors/4))
	}
	return g
}

type stranger struct {
	net.Conn
	addr netip.Addr
	at   *list.Element // nil: it has left
	nth  uint64        // to come
}

func eldest(l *list.List) uint64 { return l.Front().Value.(*stranger).nth }

// enter lets c in, and closes who had to make room for it.
func (g *gate) enter(c net.Conn) (s *stranger, evicted net.Conn) {
	s = &stranger{Conn: c, addr: addressOf(c)}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		_ = c.Close()
		return s, nil
	}
	l := g.from[s.addr]
	if l == nil {
		l = list.New()
	}
	switch {
	case l.Len() >= g.max/2:
		evicted = g.evict(l)
	case g.n >= g.max:
		most := l
		for _, o := range g.from {
			if o.Len() > most.Len() || o.Len() == most.Len() && eldest(o) < eldest(most) {
				most = o
			}
		}
		evicted = g.evict(most)
	}
	g.from[s.addr] = l // also where the one that went was its only one
	g.come++
	s.nth = g.come
	s.at = l.PushBack(s)
	g.n++
	return s, evicted
}

// evict closes the oldest; mu is held.
func (g *gate) evict(l *list.List) net.Conn {
	s := l.Front().Value.(*stranger)
	g.remove(s)
	_ = s.Close()
	return s.Conn
}

func (g *gate) remove(s *stranger) {
	if s.at == nil {
		return
	}
	l := g.from[s.addr]
	l.Remove(s.at)
	s.at = nil
	g.n--
	if l.Len() == 0 {
		delete(g.from, s.addr)
	}
}

// leave is of one that is strange no more, or gone.
func (g *gate) leave(s *stranger) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.remove(s)
}

// close closes all that are there, and who comes later.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, l := range g.from {
		for e := l.Front(); e != nil; e = e.Next() {
			_ = e.Value.(*stranger).Close()
		}
	}
}

// addressOf is whom a connection is counted for. One who has an IPv6 network has more
// addresses than can be counted.
func addressOf(c net.Conn) netip.Addr {
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
