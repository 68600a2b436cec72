package daemon

import (
	"context"
	"errors"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"
	"syscall"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/code"
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
		far, err := cs.n.cluster.peer(r.Node)
		if err != nil {
			return 0, err
		}
		pid, err := far.spawn(ctx, o, p.user)
		cs.n.cluster.compareFirst(far)
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

// spawn asks another node. The request goes out once: an answer that got lost
// leaves a program that no caller knows of, and a second request would start another one.
func (p *peer) spawn(ctx context.Context, o order, user string) (uint32, error) {
	ctx, stop := context.WithTimeout(ctx, timeout.Control)
	defer stop()
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	})
	a, err := p.client.Spawn(ctx, connect.NewRequest(&nodev1.SpawnRequest{
		Parent: processID(o.parent), User: user, Session: o.session,
		Path: o.Path, Args: o.Args, Directory: o.Directory, Hosts: o.Hosts,
		InSession: o.inSession != nil, Group: o.group, Name: o.name,
	}))
	if err == nil {
		return a.Msg.GetPid(), nil
	}
	if refusedSpawn(err) {
		return 0, p.failed(context.WithoutCancel(ctx), err)
	}
	if !sent.Load() {
		return 0, code.New(code.Unreachable, "node %q at %s cannot be reached: %v", p.host.Name,
			p.host.Control, err)
	}
	return 0, code.New(code.OutcomeUnknown,
		"node %q at %s was lost while it was asked; whether it has started %s is not known: %v",
		p.host.Name, p.host.Control, o.Path, err)
}

// refusedSpawn says whether the other node has answered that it does not.
func refusedSpawn(err error) bool {
	var ce *connect.Error
	if !errors.As(err, &ce) {
		return false
	}
	if _, err := strconv.Atoi(ce.Meta().Get(codeHeader)); err == nil {
		return true
	}
	switch ce.Code() { // without our code: it never got to the service
	case connect.CodePermissionDenied, connect.CodeUnimplemented, connect.CodeResourceExhausted:
		return true
	}
	return false
}
