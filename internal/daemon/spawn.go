package daemon

import (
	"bytes"
	"context"
	"syscall"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// spawn starts a program for a process of this node, here or on another.
func (p *process) spawn(ctx context.Context, r local.SpawnRequest) (uint32, error) {
	if err := r.Check(p.session); err != nil {
		return 0, err
	}
	o := order{parent: *p.id.Load(), session: p.session, SpawnRequest: r}
	if p.member != nil {
		if err := p.member.order(ctx, &o); err != nil {
			return 0, err
		}
	}
	if r.Node != p.n.cfg.Name {
		far, err := p.n.peerNode(r.Node)
		if err != nil {
			return 0, err
		}
		pid, err := far.spawn(ctx, o, p.user)
		p.n.compareFirst(far)
		return pid, err
	}
	if o.in != nil {
		q, err := p.n.runInSession(ctx, o)
		return q.PID, err
	}
	var err error
	if o.who, err = p.account(); err != nil {
		return 0, err
	}
	return p.n.spawn(ctx, o)
}

// spawn starts a program here. Who gives up before it runs gets none: it would
// not know of it.
func (n *Node) spawn(ctx context.Context, o order) (uint32, error) {
	ctx, stop := context.WithTimeout(ctx, timeout.Control)
	defer stop()
	c := newChild(o)
	if err := n.beginChild(ctx, c); err != nil {
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
		n.giveUp(c)
		return 0, code.New(code.Timeout, "start %s on node %q: there is no more time (%v); it is killed if it has begun", o.Path, n.cfg.Name, context.Cause(ctx))
	}
	return c.pid, nil
}

// giveUp ends a child that nobody will know of, now or when it has begun.
func (n *Node) giveUp(c *child) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c.unwanted = true
	if c.proc != nil {
		c.proc.Signal(syscall.SIGKILL)
	}
}

// Spawn is asked by the node of the process that spawns.
func (s *service) Spawn(ctx context.Context, r *connect.Request[nodev1.SpawnRequest]) (*connect.Response[nodev1.SpawnResponse], error) {
	m := r.Msg
	im, err := importer(ctx, m.GetParent(), m.GetUser(), m.GetSession())
	if err != nil {
		return nil, coded(err)
	}
	o := order{
		parent: im.Process, session: im.Session,
		SpawnRequest: local.SpawnRequest{Path: m.GetPath(), Args: m.GetArgs(), Directory: m.GetDirectory(), Hosts: m.GetHosts()},
	}
	if err := o.Check(o.session); err != nil {
		return nil, coded(err)
	}
	var pid uint32
	if m.GetInSession() {
		if o.name = m.GetName(); len(o.name) > 4096 || bytes.IndexByte(o.name, 0) >= 0 {
			return nil, coded(code.New(code.BadArg, "the program's argument 0 has a zero byte, or %d bytes, at most 4096", len(o.name)))
		}
		pid, err = s.n.spawnInSession(ctx, im, o, m.GetGroup())
	} else if o.who, err = s.n.accountNamed(im.User); err == nil {
		pid, err = s.n.spawn(ctx, o)
	}
	if err != nil {
		return nil, coded(err)
	}
	return connect.NewResponse(&nodev1.SpawnResponse{Pid: pid}), nil
}
