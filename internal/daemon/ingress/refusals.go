package ingress

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/daemon/systemlog"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// Why unauthenticated connections were refused, as the metrics name it.
const (
	refusedSilent   = "silent"      // the first bytes or the handshake came too late
	refusedEvicted  = "crowded"     // evicted for a newer one
	refusedProtocol = "speech"      // neither TLS nor vmmc
	refusedHello    = "hello"       // a data link's hello without a proof of its key
	refusedFull     = "descriptors" // the daemon runs out of them
	refusedTLS      = "certificate" // none, or not one of the cluster's, or too old
)

// maxRefusalKeys bounds the address and reason pairs that are told apart.
const maxRefusalKeys = 1024

// Refusals counts refused connections. It logs the first for each address and reason, and after a
// minute the next one with the number in between.
type Refusals struct {
	logs *systemlog.Logs

	mu   sync.Mutex
	sums map[string]uint64          // Guarded by mu.
	seen map[refusalKey]*refusalLog // Guarded by mu.
	// For all addresses: a local user has millions of loopback addresses.
	limiter systemlog.Limiter
}

type refusalKey struct {
	addr netip.Addr
	why  string
}

type refusalLog struct {
	last       time.Time // when it was last logged
	suppressed uint64    // since
}

// NewRefusals returns the count of a node, which is zero.
func NewRefusals(logs *systemlog.Logs) *Refusals { return &Refusals{logs: logs} }

// count counts a refusal and logs it within the limits.
func (r *Refusals) count(c net.Conn, why string, err error) {
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
	left, ok := r.limiter.Allow(now)
	if !ok {
		s.suppressed++
		r.mu.Unlock()
		return
	}
	more := s.suppressed
	s.last, s.suppressed = now, 0
	r.mu.Unlock()
	r.logs.Driver.Warn("an unauthenticated connection was refused", "why", why, "from", c.RemoteAddr(), "err", err,
		"more", more, "others", left)
}

// refusalReasons lists all reasons.
var refusalReasons = []string{
	refusedSilent, refusedEvicted, refusedProtocol, refusedHello, refusedTLS, refusedFull,
}

// Sum returns the number of refusals for each reason.
func (r *Refusals) Sum() map[string]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]uint64{}
	for _, why := range refusalReasons {
		out[why] = r.sums[why]
	}
	return out
}
