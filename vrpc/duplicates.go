package vrpc

import (
	"hash/maphash"
	"net"
	"net/netip"
	"sync"
	"time"
)

// What a server remembers of the calls that came in datagrams.
const (
	rememberCalls = 1024
	rememberBytes = 16 << 20
	rememberTime  = 2 * time.Minute
)

// datagram names a call. A caller that starts anew may use the numbers of the one before, so its
// bytes count too.
type datagram struct {
	from  netip.AddrPort
	other string // from, where it is no UDP address
	xid   uint32
	sum   uint64
}

// cachedReply is a call; without a reply it is being run.
type cachedReply struct {
	reply []byte
	at    time.Time
}

// duplicateCache are the calls that came in datagrams lately: one that comes again is answered
// again, and not run again.
type duplicateCache struct {
	mu    sync.Mutex
	seed  maphash.Seed
	calls map[datagram]*cachedReply
	order []datagram // oldest first
	bytes int
}

func newDuplicateCache() *duplicateCache {
	return &duplicateCache{seed: maphash.MakeSeed(), calls: map[datagram]*cachedReply{}}
}

// begin reports whether to run a call. If not, reply is the earlier reply, or nil while it runs.
func (d *duplicateCache) begin(
	from net.Addr, xid uint32, call []byte,
) (name datagram, reply []byte, run bool) {
	name = datagram{xid: xid, sum: maphash.Bytes(d.seed, call)}
	if u, ok := from.(*net.UDPAddr); ok {
		name.from = u.AddrPort()
	} else {
		name.other = from.String()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if r, ok := d.calls[name]; ok && now.Sub(r.at) < rememberTime {
		return name, r.reply, false
	} else if ok {
		d.bytes -= len(r.reply)
		*r = cachedReply{at: now}
		return name, nil, true
	}
	d.calls[name] = &cachedReply{at: now}
	d.order = append(d.order, name)
	d.trim()
	return name, nil, true
}

// end remembers the reply.
func (d *duplicateCache) end(name datagram, reply []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, ok := d.calls[name]
	if !ok {
		return
	}
	d.bytes += len(reply) - len(r.reply) // one that took long may have been run twice
	r.reply = append(make([]byte, 0, len(reply)), reply...)
	d.trim()
}

// trim forgets the oldest until there is room.
func (d *duplicateCache) trim() {
	n := 0
	for ; len(d.order)-n > rememberCalls || d.bytes > rememberBytes && n < len(d.order); n++ {
		d.bytes -= len(d.calls[d.order[n]].reply)
		delete(d.calls, d.order[n])
	}
	if n > 0 {
		d.order = d.order[n:]
	}
}
