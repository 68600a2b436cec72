package daemon

import (
	"context"
	"syscall"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/peers"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// spawnFor starts a program for a process of this node, here or on another.
func (cs *children) spawnFor(
	ctx context.Context, p *process, r nodeproto.SpawnRequest,
) (uint32, error) {
	if err := r.Check(p.session); err != nil {
		return 0, err
	}
	o := order{parent: *p.id.Load(), session: p.session, SpawnRequest: r}
	if p.member != nil {
		if err := p.member.order(ctx, &o); err != nil {
			return 0, err
		}
	}
	if r.Node != cs.n.cfg.Name {
		far, err := cs.n.cluster.Peer(r.Node)
		if err != nil {
			return 0, err
		}
		pid, err := far.Spawn(ctx, &nodev1.SpawnRequest{
			Parent: peers.ProcessID(o.parent), User: p.user, Session: o.session,
			Path: o.Path, Args: o.Args, Directory: o.Directory, Hosts: o.Hosts,
			InSession: o.inSession != nil, Group: o.group, Name: o.name,
		})
		cs.n.cluster.CompareFirst(far)
		return pid, err
	}
	if o.inSession != nil {
		q, err := cs.runInSession(ctx, o)
		return q.PID, err
	}
	var err error
	if o.runAs, err = cs.n.accounts.Of(p.cred, p.user); err != nil {
		return 0, err
	}
	return cs.spawn(ctx, o)
}

// spawn starts a program here. A caller that gives up before the program runs gets none: it would
// not know of it.
func (cs *children) spawn(ctx context.Context, o order) (uint32, error) {
	ctx, stop := context.WithTimeout(ctx, timeout.Control)
	defer stop()
	c := newChild(o)
	if err := cs.start(ctx, c); err != nil {
		return 0, err
	}
	select {
	case err := <-c.started:
		if err != nil {
			return 0, err
		}
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		cs.cancel(c)
		return 0, code.New(code.Timeout,
			"start %s on node %q: there is no more time (%v); it is killed if it has begun", o.Path,
			cs.n.cfg.Name, context.Cause(ctx))
	}
	return c.pid, nil
}

// cancel kills a child whose caller has given up, now or when it has started.
func (cs *children) cancel(c *child) {
	cs.n.registry.mu.Lock()
	defer cs.n.registry.mu.Unlock()
	c.cancelled = true
	if c.proc != nil {
		c.proc.Signal(syscall.SIGKILL)
	}
}
