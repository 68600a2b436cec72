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
	refusedSilent = "silent"      // it did not say in time what it is
	refusedCrowd  = "crowded"     // made room for another
	refusedSpeech = "speech"      // neither TLS nor vmmc
	refusedHello  = "hello"       // a data link's, without its key
	refusedFull   = "descriptors" // run out
	refusedTLS    = "certificate" // none, or not one of the cluster's, or too old
)

// maxRefused bounds how many addresses are told apart.
const maxRefused = 1024

// refusals counts who was refused, and says so once for each address and reason; how
// many more there were it says when that address comes again after a minute.
type refusals struct {
	mu   sync.Mutex
	sums map[string]uint64
	seen map[refusal]*refused
	told toldLines // of all addresses: one user of this machine has millions
}

type refusal struct {
	addr netip.Addr
	why  string
}

type refused struct {
	last time.Time // that it was said
	more uint64    // since
}

// refuse notes a refusal.
func (n *Node) refuse(c net.Conn, why string, err error) {
	r := &n.refusals
	k := refusal{addressOf(c), why}
	now := time.Now()
	r.mu.Lock()
	if r.sums == nil {
		r.sums, r.seen = map[string]uint64{}, map[refusal]*refused{}
	}
	r.sums[why]++
	s := r.seen[k]
	if s == nil {
		if len(r.seen) >= maxRefused {
			clear(r.seen)
		}
		s = &refused{}
		r.seen[k] = s
	}
	if now.Sub(s.last) < timeout.Refused {
		s.more++
		r.mu.Unlock()
		return
	}
	left, ok := r.told.take(now)
	if !ok {
		s.more++
		r.mu.Unlock()
		return
	}
	more := s.more
	s.last, s.more = now, 0
	r.mu.Unlock()
	n.driver.Warn("a stranger was refused", "why", why, "from", c.RemoteAddr(), "err", err, "more", more, "others", left)
}

// reasons are all of them.
var reasons = []string{refusedSilent, refusedCrowd, refusedSpeech, refusedHello, refusedTLS, refusedFull}

// sum is how many were refused for each reason.
func (r *refusals) sum() map[string]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]uint64{}
	for _, why := range reasons {
		out[why] = r.sums[why]
	}
	return out
}
