package daemon

import (
	"context"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/names"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// maxLinks bounds the links that a process announces when it rejoins.
const maxLinks = 1 << 16

// rejoin readmits a process that joined an earlier daemon, or whose connection this daemon gave up.
// No other process reaches it until it has announced its exports and links.
func (p *process) rejoin(r nodeproto.RejoinRequest) (nodeproto.Welcome, error) {
	n := p.n
	if r.Version != nodeproto.Version {
		return nodeproto.Welcome{}, code.New(code.Protocol, "the program speaks version %d of the "+
			"local protocol, this daemon %d: start the program again with the vmmc of this daemon",
			r.Version, nodeproto.Version)
	}
	in := n.sessions.named(n.registry.journal.Session(r.Process))
	n.registry.mu.Lock()
	defer n.registry.mu.Unlock()
	if p.id.Load() != nil {
		return nodeproto.Welcome{}, code.New(code.BadArg, "this connection has registered already")
	}
	e, err := n.registry.journal.BeginReturn(&r, p.cred, p.conn,
		n.registry.processes[r.Process.PID] != nil)
	if err != nil {
		return nodeproto.Welcome{}, err
	}
	c := n.children.byPID[e.Process.PID]
	if c != nil && c.runAs.UID == p.cred.UID && c.markJoined() {
		c.real = p.cred.PID
	}
	p.session = e.Session
	if in != nil && in.Name == e.Session && in.User == p.user {
		if p.member = (&member{s: in, group: e.Group}); !e.Started {
			p.member.note(p, e.Process.PID)
		}
	}
	p.names = &names.Owner{ID: e.Process, Alive: p.conn.Alive}
	p.linkOrder.Store(r.Order)
	p.id.Store(&e.Process)
	n.registry.processes[e.Process.PID] = p
	return nodeproto.Welcome{
		Process: e.Process, Parent: e.Parent, User: p.user, Hosts: n.cluster.NodeNames(), Pass: r.Pass,
		Introduces: true, InSession: p.member != nil, Names: true,
	}, nil
}

// markJoined marks a spawned program as joined, and reports whether this is its first join.
func (c *child) markJoined() bool {
	select {
	case <-c.joined:
		return false
	default:
		close(c.joined)
		return true
	}
}

// takeBelongings takes one part of what a rejoining process announces, and returns the names that
// it cannot have any more.
func (p *process) takeBelongings(r nodeproto.AgainRequest) (lost []nodeproto.LostName, err error) {
	notReturning := code.New(code.BadArg, "only a process that comes back says what it had")
	id := p.id.Load()
	if !p.n.registry.journal.IsReturning(*id, p.conn) {
		return nil, notReturning
	}
	for _, e := range r.Exports {
		if err := p.announce(e, true); err != nil {
			return nil, err
		}
	}
	lost = p.restoreNames(r.Names)
	if err := p.n.broker.takeLinks(p, r.Links); err != nil {
		return nil, err
	}
	if !r.Last {
		return lost, nil
	}
	if !p.n.registry.journal.EndReturn(*id, p.conn) {
		return nil, notReturning
	}
	p.joined.Store(true) // not before: an early departure would have it awaited again
	p.n.logs.Server.Info("process rejoined", "pid", id.PID, "realpid", p.cred.PID, "user", p.user,
		"session", p.session)
	if why := p.n.network.reason(); why != "" { // it may have missed the sever request
		p.n.wg.Go(func() {
			ctx, stop := context.WithTimeout(p.n.ctx, timeout.Control)
			defer stop()
			fds, _ := p.conn.Call(ctx, nodeproto.Sever, nodeproto.SeverRequest{
				Epoch: p.n.network.currentEpoch(), Why: why,
			}, nil, nil)
			closeAll(fds)
		})
	}
	return lost, nil
}
