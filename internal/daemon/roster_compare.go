package daemon

import (
	"context"
	"sync"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/agree"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// listComparison is what is known of how another node's list of nodes differs.
type listComparison struct {
	done atomic.Bool // since this node's list is what it is

	mu         sync.Mutex
	lastLogged string // in the log; "": nothing yet
}

// placeOf is a node's place, from 1 on.
func (r *roster) placeOf(name string) uint32 {
	for i, h := range r.hosts {
		if h.Name == name {
			return uint32(hosts.Place(r.hosts, i) + 1)
		}
	}
	return 0
}

// compareLists says how another node's list differs, which has the digest, and has the
// log say it once.
func (c *cluster) compareLists(
	ctx context.Context, p *peer, own *roster, digest uint64,
) (how string, conflict bool) {
	how, conflict = agree.With(ctx, p.cluster, own.hosts, digest)
	how = truncateError(how)
	p.lists.mu.Lock()
	was := p.lists.lastLogged
	p.lists.lastLogged = how
	p.lists.mu.Unlock()
	switch {
	case how == was || how == "" || c.roster.Load() != own:
	case conflict:
		c.n.driver.Warn("a node gives out logical pids of other nodes", "node", p.host.Name, "why", how)
	default:
		c.n.driver.Info("a node has another list of nodes", "node", p.host.Name, "why", how)
	}
	return how, conflict
}

// compareFirst compares the lists after the first call to a node, and not again before
// this node's list changes. The caller does not wait for it.
func (c *cluster) compareFirst(p *peer) {
	if p.lists.done.Swap(true) {
		return
	}
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if c.n.state == nodeStopping { // and Close may not wait any more
		return
	}
	c.n.wg.Go(func() {
		ctx, stop := context.WithTimeout(c.n.ctx, timeout.Control)
		defer stop()
		a, err := p.client.Ping(ctx, connect.NewRequest(&nodev1.PingRequest{}))
		if err != nil {
			p.lists.done.Store(false)
			return
		}
		c.compareLists(ctx, p, c.roster.Load(), a.Msg.GetHostsDigest())
	})
}
