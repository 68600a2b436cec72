package daemon

import (
	"context"
	"crypto/hmac"
	"slices"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/users"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/supervise"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// spawnInSession is asked by the node of a process that spawns in a session.
func (cs *children) spawnInSession(
	ctx context.Context, im nodeproto.Importer, o order, group uint32,
) (uint32, error) {
	s, err := cs.n.sessions.find(users.Caller{User: im.User}, im.Session)
	if err != nil {
		return 0, err
	}
	if s.User != im.User { // root's programs run in root's sessions
		return 0, code.New(code.NoRights,
			"session %q on node %q is user %q's, the process that spawns is user %q's", s.Name,
			cs.n.cfg.Name, s.User, im.User)
	}
	o.inSession, o.group = s, group
	p, err := cs.runInSession(ctx, o)
	return p.PID, err
}

// runInSession starts a program in a session of this node. If the caller gives up before it runs,
// it is not started.
func (cs *children) runInSession(ctx context.Context, o order) (supervise.Program, error) {
	bounded, stop := context.WithTimeout(ctx, timeout.Control)
	defer stop()
	s := o.inSession
	o.runAs = s.account()
	if o.runAs.UID == 0 && o.parent.Node != "" && o.parent.Node != cs.n.cfg.Name &&
		!cs.n.cfg.SpawnRoot {
		return supervise.Program{}, code.New(code.NoRights,
			"node %q starts no programs as user %q for other nodes: start its daemon with --spawn-root",
			cs.n.cfg.Name, o.runAs.Name)
	}
	sup, err := s.reach(bounded)
	if err != nil {
		return supervise.Program{}, err
	}
	c := newChild(o)
	cs.n.registry.mu.Lock()
	if cs.n.isStopping() {
		err = code.New(code.Unreachable, "node %q is stopping", cs.n.cfg.Name)
	} else {
		c.pid = cs.n.registry.freePID()
		c.token = s.token(c.pid)
		if c.group == 0 {
			c.group = c.pid
		}
		err = cs.add(c)
		if err == nil && c.reserve != "" {
			if err = s.reserve(c.reserve, c.pid); err != nil {
				cs.drop(c)
			}
		}
	}
	cs.n.registry.mu.Unlock()
	if err != nil {
		return supervise.Program{}, err
	}
	env, err := cs.environ(c)
	if err != nil {
		close(c.ended)
		cs.forget(c)
		return supervise.Program{}, err
	}
	order := supervise.Order{
		PID: c.pid, Group: c.group, Parent: o.parent, Token: c.token,
		Path: o.Path, Name: o.name, Search: o.search, Args: o.Args, Directory: o.Directory,
		Input: o.input, Terminal: o.terminal, Reserve: o.reserve,
	}
	order.Follow = o.follow && sup.Streams
	order.Bound = o.bound && sup.Leases
	order.Processors, order.Turn = o.processors, o.turn
	for _, e := range env {
		if !slices.ContainsFunc(o.env, func(v []byte) bool { return sameVariable(string(v), e) }) {
			order.Env = append(order.Env, []byte(e))
		}
	}
	order.Env = append(order.Env, o.env...)
	p, err := sup.Start(bounded, order)
	if err != nil {
		close(c.ended)
		cs.forget(c)
		return p, cs.killLateStart(sup, c, err, bounded.Err() != nil)
	}
	cs.n.logs.Server.Info("program started", "pid", c.pid, "realpid", p.Real, "user", o.runAs.Name,
		"session", s.Name, "path", string(o.Path), "parent", o.parent.String(), "group", c.group)
	cs.n.wg.Go(func() { cs.follow(sup, c) })
	return p, nil
}

// killLateStart kills a program whose start was reported as failed because time ran out.
func (cs *children) killLateStart(sup *supervise.Client, c *child, err error, late bool) error {
	if !late {
		return err
	}
	cs.n.wg.Go(func() {
		ctx, stop := context.WithTimeout(cs.n.ctx, timeout.Control)
		defer stop()
		// Behind the order in the supervisor, or before it has begun; then again.
		for ctx.Err() == nil {
			if _, err := sup.Signal(ctx,
				supervise.SignalRequest{PID: c.pid, Signal: int(syscall.SIGKILL)}); err == nil {
				return
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	return code.New(code.Timeout,
		"start %s in session %q on node %q: there is no more time (%v); it is killed if it has begun",
		c.Path, c.session, cs.n.cfg.Name, err)
}

// outputCheckInterval is how often it is looked whether a program's output is kept.
const outputCheckInterval = 10 * time.Second

// follow notices the end of a session's program, and that its output is not kept.
func (cs *children) follow(sup *supervise.Client, c *child) {
	defer close(c.ended)
	defer cs.forget(c)
	missing := int64(0)
	for {
		again := time.After(outputCheckInterval)
		p, err := sup.Await(cs.n.ctx, supervise.AwaitRequest{PID: c.pid, For: outputCheckInterval})
		if err != nil {
			return // it has forgotten it, or is gone with all its programs, or we are
		}
		if p.Missing > missing && (missing == 0 || p.Ended) {
			cs.n.logs.Server.Warn("output of a program is not kept", "pid", c.pid, "session", c.session,
				"bytes", p.Missing, "of", p.Output, "why", p.Why)
			missing = p.Missing
		}
		if p.Ended {
			cs.n.logs.Server.Info("program ended", "pid", c.pid, "realpid", p.Real, "session", c.session,
				"status", p.Status, "signal", p.Signal)
			return
		}
		select { // a supervisor is its user's, and may answer at once
		case <-again:
		case <-sup.Done():
		case <-cs.n.ctx.Done():
		}
	}
}

// started reports whether a daemon of this node has had the supervisor start a program.
func (s *session) started(p supervise.Program) bool {
	return s.Key != "" && hmac.Equal([]byte(p.Token), []byte(s.token(p.PID)))
}

// readopt takes on a program that a daemon before this one has started.
func (cs *children) readopt(s *session, sup *supervise.Client, p supervise.Program) {
	if !s.started(p) {
		cs.n.logs.Server.Warn("a session's supervisor has a program that no daemon had it start",
			"session", s.Name, "pid", p.PID)
		return
	}
	c := newChild(order{
		parent: p.Parent, session: s.Name, runAs: s.account(), inSession: s, group: p.Group,
	})
	c.pid, c.token = p.PID, p.Token
	cs.n.registry.mu.Lock()
	var err error
	q := cs.n.registry.processes[p.PID]
	if here := q != nil && q.member != nil && q.member.s == s && q.member.noted == nil; here {
		// It came back first.
		c.real = q.cred.PID
		close(c.joined)
		q = nil
	}
	if q == nil && cs.byPID[p.PID] == nil { // it has joined, or ended once
		err = cs.add(c)
	} else {
		err = code.New(code.BadArg, "pid %d is another process's", p.PID)
	}
	cs.n.registry.mu.Unlock()
	if err != nil {
		cs.n.logs.Server.Warn("a program of a session is not known any more", "session", s.Name, "pid",
			p.PID, "err", err)
		return
	}
	s.reserveAgain(p)
	cs.n.wg.Go(func() { cs.follow(sup, c) })
}
