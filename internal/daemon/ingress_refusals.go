package daemon

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/timeout"
)

// Why strangers were refused, as the metrics name it.
const (
	refusedSilent   = "silent"      // it did not say in time what it is
	refusedEvicted  = "crowded"     // made room for another
	refusedProtocol = "speech"      // neither TLS nor vmmc
	refusedHello    = "hello"       // a data link's, without its key
	refusedFull     = "descriptors" // run out
	refusedTLS      = "certificate" // none, or not one of the cluster's, or too old
)

// maxRefusalKeys bounds how many addresses are told apart.
const maxRefusalKeys = 1024

// refusals counts who was refused, and says so once for each address and reason; how
// many more there were it says when that address comes again after a minute.
type refusals struct {
	mu      sync.Mutex
	sums    map[string]uint64
	seen    map[refusalKey]*refusalLog
	limiter logLimiter // of all addresses: one user of this machine has millions
}

type refusalKey struct {
	addr netip.Addr
	why  string
}

type refusalLog struct {
	last       time.Time // that it was said
	suppressed uint64    // since
}

// countRefusal notes a refusal.
func (n *Node) countRefusal(c net.Conn, why string, err error) {
	r := &n.refusals
	k := refusalKey{limitKey(c), why}
	now := time.Now()
	r.mu.Lock()
	if r.sums == nil {
		r.sums, r.seen = map[string]uint64{}, map[refusalKey]*refusalLog{}
	}
	r.sums[why]++
	s := r.seen[k]
	if s == nil {
		if len(r.seen) >= maxRefusalKeys {
			clear(r.seen)
		}
		s = &refusalLog{}
		r.seen[k] = s
	}
	if now.Sub(s.last) < timeout.Refused {
		s.suppressed++
		r.mu.Unlock()
		return
	}
	left, ok := r.limiter.allow(now)
	if !ok {
		s.suppressed++
		r.mu.Unlock()
		return
	}
	more := s.suppressed
	s.last, s.suppressed = now, 0
	r.mu.Unlock()
	n.driver.Warn("a stranger was refused", "why", why, "from", c.RemoteAddr(), "err", err, "more", more, "others", left)
}

// refusalReasons are all of them.
var refusalReasons = []string{refusedSilent, refusedEvicted, refusedProtocol, refusedHello, refusedTLS, refusedFull}

// sum is how many were refused for each reason.
func (r *refusals) sum() map[string]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]uint64{}
	for _, why := range refusalReasons {
		out[why] = r.sums[why]
	}
	return out
}
