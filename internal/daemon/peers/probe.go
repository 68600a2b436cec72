package peers

import (
	"context"
	"fmt"
	"net"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/agree"
	"github.com/vmmc-go/vmmc/internal/handshake"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// Probe pings the given nodes concurrently.
func (c *Cluster) Probe(
	ctx context.Context, nodes *Roster, hs []hosts.Host, what nodev1.Look,
) []*nodev1.Host {
	ctx, stop := context.WithTimeout(ctx, timeout.Ping)
	defer stop()
	out := make([]*nodev1.Host, len(hs))
	var all sync.WaitGroup
	for i, h := range hs {
		s := &nodev1.Host{
			Name: h.Name, ControlAddress: h.Control, DataAddress: h.Data, Place: nodes.placeOf(h.Name),
		}
		if out[i] = s; h.Name == c.cfg.Node {
			s.Self, s.Reachable, s.Ping = true, true, c.cfg.Ping()
			continue
		}
		if what == nodev1.Look_LOOK_UNSPECIFIED {
			continue
		}
		all.Go(func() {
			p := nodes.peers[h.Name]
			p.probe(ctx, s)
			if s.GetReachable() {
				s.HostsDiffer, s.HostsConflict = c.compareLists(ctx, p, nodes, s.GetPing().GetHostsDigest())
			}
		})
		if what == nodev1.Look_LOOK_DATA {
			all.Go(func() {
				rtt, err := probeDataPort(ctx, h.Data)
				if err != nil {
					s.DataError = ErrorText(err)
					return
				}
				s.DataRttNs = int64(rtt)
			})
		}
	}
	all.Wait()
	return out
}

// maxErrorText bounds an error's text in a list of nodes, in bytes.
const maxErrorText = 240

func truncateError(s string) string {
	if len(s) > maxErrorText {
		s = strings.ToValidUTF8(s[:maxErrorText], "") + "…"
	}
	return s
}

// ErrorText is an error as an answer has it; brief, as it goes into lists. It is "" for nil.
func ErrorText(err error) string {
	if err == nil {
		return ""
	}
	return truncateError(err.Error())
}

// probe measures a round trip on an established connection and records the answer in s.
func (p *Peer) probe(ctx context.Context, s *nodev1.Host) {
	var from atomic.Pointer[string]
	ctx = httptrace.WithClientTrace(ctx,
		&httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
			a := i.Conn.LocalAddr().String()
			from.Store(&a)
		}})
	for range 2 { // the first call may have to connect
		start := time.Now()
		a, err := p.client.Ping(ctx, connect.NewRequest(&nodev1.PingRequest{}))
		if err != nil {
			if ctx.Err() != nil {
				err = fmt.Errorf("node %q at %s does not answer within %v", s.Name, s.ControlAddress,
					timeout.Ping)
			} else {
				err = p.failed(ctx, err)
			}
			s.Reachable, s.RttNs, s.Ping, s.Error = false, 0, nil, ErrorText(err)
			return
		}
		rtt := time.Since(start)
		s.Reachable, s.RttNs, s.Ping = true, int64(rtt), a.Msg
		if c := a.Msg.GetClockUnixNs(); c != 0 {
			s.ClockAheadNs = c - start.Add(rtt/2).UnixNano()
		}
		if f := from.Load(); f != nil {
			s.FromAddress = *f
		}
	}
}

// probeDataPort checks that a data port answers: it sends a hello and reads the challenge.
func probeDataPort(ctx context.Context, addr string) (time.Duration, error) {
	start := time.Now()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, fmt.Errorf("data address %s: %w", addr, err)
	}
	defer c.Close()
	if t, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(t)
	}
	if err := handshake.Probe(c); err != nil {
		return 0, fmt.Errorf("data address %s does not answer a hello: %w", addr, err)
	}
	return time.Since(start), nil
}

// listComparison is what is known of how another node's list of nodes differs.
type listComparison struct {
	done atomic.Bool // since this node's list is what it is

	mu         sync.Mutex
	lastLogged string // in the log; "": nothing yet
}

// placeOf is a node's place, from 1 on.
func (r *Roster) placeOf(name string) uint32 {
	for i, h := range r.hosts {
		if h.Name == name {
			return uint32(hosts.Place(r.hosts, i) + 1)
		}
	}
	return 0
}

// compareLists says how another node's list differs, which has the digest, and has the
// log say it once.
func (c *Cluster) compareLists(
	ctx context.Context, p *Peer, own *Roster, digest uint64,
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
		c.cfg.Logs.Driver.Warn("a node gives out logical pids of other nodes", "node", p.host.Name, "why",
			how)
	default:
		c.cfg.Logs.Driver.Info("a node has another list of nodes", "node", p.host.Name, "why", how)
	}
	return how, conflict
}

// CompareFirst compares the lists after the first call to a node, and not again before
// this node's list changes. The caller does not wait for it.
func (c *Cluster) CompareFirst(p *Peer) {
	if p.lists.done.Swap(true) {
		return
	}
	c.cfg.Go(func() {
		ctx, stop := context.WithTimeout(c.cfg.Ctx, timeout.Control)
		defer stop()
		a, err := p.client.Ping(ctx, connect.NewRequest(&nodev1.PingRequest{}))
		if err != nil {
			p.lists.done.Store(false)
			return
		}
		c.compareLists(ctx, p, c.roster.Load(), a.Msg.GetHostsDigest())
	})
}
