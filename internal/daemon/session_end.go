package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/vmmc-go/vmmc/internal/cgroup"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/names"
	"github.com/vmmc-go/vmmc/internal/supervise"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// delete ends a session and all that is in it. What fails can be tried
// again.
//
// The notice says what was not as usual.
func (s *session) delete(ctx context.Context) (notice string, err error) {
	select {
	case s.connectLock <- struct{}{}: // kept: no supervisor is needed after this
	case <-s.deletedCh:
		return "", code.New(code.NoSuchSession, "session %q on node %q is deleted already", s.Name,
			s.n.cfg.Name)
	case <-ctx.Done():
		return "", ctxCause(ctx, "delete session %q on node %q", s.Name, s.n.cfg.Name)
	}
	t := &s.n.sessions
	s.changeState(sessionDeleting)
	again := func(err error) (string, error) {
		s.keep()
		<-s.connectLock
		return "", err
	}
	r := s.Record
	r.Ending = true
	if err := t.dir.Write(r); err != nil {
		s.n.logs.Server.Warn("a session is deleted all the same", "session", s.Name, "err", err)
	}
	if _, err := os.Lstat(t.dir.Run(s.Name)); err == nil {
		if err := s.endAll(ctx); err != nil {
			return again(err)
		}
	} else if err := s.dropCgroup(); err != nil {
		return again(code.New(code.Timeout, "end session %q on node %q: %v", s.Name, s.n.cfg.Name, err))
	}
	if err := unix.RemoveTree(ctx, t.dir.Run(s.Name)); err != nil {
		return again(code.New(code.BadConfig,
			"remove the directory of session %q: %v; delete the session again", s.Name, err))
	}
	if notice, err = t.drives.DropShare(ctx, &s.Record); err != nil {
		return again(err)
	}
	t.drives.Remove(&s.Record)
	if err := t.dir.Remove(s.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return again(code.New(code.BadConfig, "remove the record of session %q: %v", s.Name, err))
	}
	// Before another session can have its name.
	s.n.names.DropReservations(names.Scope{User: s.User, Session: s.Name})
	t.remove(s)
	s.n.logs.Server.Info("session deleted", "session", s.Name, "user", s.User)
	return notice, nil
}

// endAll ends the session's processes and its supervisor, and waits until that is
// gone too: it has the base open. With the turn.
func (s *session) endAll(ctx context.Context) error {
	c := s.connected()
	if c == nil {
		var err error
		if c, err = s.connect(ctx); err != nil {
			return s.endEscaped(s.endWithoutSupervisor(ctx, err))
		}
	}
	supervisor, err := unix.WatchProcess(c.Real())
	if err != nil {
		return err
	}
	defer supervisor.Close()
	confined := s.Cgroup != "" && cgroup.Holds(s.Cgroup, c.Real()) // it may have to do without
	err = s.end(ctx)
	if err == nil && !confined && !supervisor.Await(timeout.Stop) {
		err = code.New(code.Timeout, "the supervisor of session %q on node %q, process %d, does not end",
			s.Name, s.n.cfg.Name, c.Real())
	}
	if err != nil && !confined {
		return err
	}
	return s.endEscaped(err)
}

// endEscaped ends what has got away from the supervisor, or from where it could not
// be ended by err: nothing leaves a cgroup.
func (s *session) endEscaped(err error) error {
	if s.Cgroup == "" {
		return err
	}
	if cerr := s.dropCgroup(); cerr != nil {
		return code.New(code.Timeout, "end session %q on node %q: %v", s.Name, s.n.cfg.Name, cerr)
	}
	if err == nil {
		return nil
	}
	s.hangUp() // the supervisor is gone
	if left := supervise.KillAll(-1, s.Marker, timeout.Stop); len(left) > 0 {
		return err
	}
	return nil
}

// end ends all of the session's processes and its supervisor. With the turn.
func (s *session) end(ctx context.Context) error {
	c := s.connected()
	if c == nil {
		var err error
		if c, err = s.connect(ctx); err != nil {
			return s.endWithoutSupervisor(ctx, err)
		}
	}
	left, err := s.askToEnd(ctx, c)
	if err == nil && len(left.Real) > 0 {
		// Programs that have become another user: the supervisor may not end them,
		// a daemon of root may.
		if stay := supervise.KillAll(c.Real(), s.Marker, timeout.Stop); len(stay) > 0 {
			return code.New(code.NoRights, "processes %v of session %q on node %q have become other "+
				"users' and cannot be ended by user %d: end them, and delete the session again", stay, s.Name,
				s.n.cfg.Name, os.Getuid())
		}
		left, err = s.askToEnd(ctx, c)
	}
	if err == nil && len(left.Real) > 0 {
		err = code.New(code.Timeout, "processes %v of session %q on node %q do not end", left.Real,
			s.Name, s.n.cfg.Name)
	}
	if err != nil && s.connected() != c {
		return s.endWithoutSupervisor(ctx, err) // it was killed meanwhile
	}
	if err != nil {
		return err
	}
	c.Close()
	// One that was left by a supervisor that died, and is another user's by now, is
	// not seen by the one that took its place.
	return s.endWithoutSupervisor(ctx, nil)
}

// askToEnd has the supervisor end. A program may have stopped it, or it may hang
// in a file system: then it is ended with what is below it.
func (s *session) askToEnd(ctx context.Context, c *supervise.Client) (supervise.Leftovers, error) {
	c.Wake()
	bounded, stop := context.WithTimeout(ctx, 2*timeout.Stop)
	defer stop()
	left, err := c.End(bounded)
	if bounded.Err() == nil || ctx.Err() != nil {
		return left, err
	}
	s.n.logs.Server.Warn("a session's supervisor does not answer and is killed", "session", s.Name,
		"realpid", c.Real())
	supervise.KillAll(c.Real(), s.Marker, timeout.Stop)
	c.Kill()
	return supervise.Leftovers{}, nil
}

// endWithoutSupervisor is end without a supervisor, where none can be had because of err: the
// session's base may be gone. Its processes are known by what is in their
// environment.
func (s *session) endWithoutSupervisor(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	if left := supervise.KillAll(-1, s.Marker, timeout.Stop); len(left) > 0 {
		return code.New(code.Timeout,
			"processes %v of session %q on node %q do not end, and it has no supervisor: %v", left, s.Name,
			s.n.cfg.Name, err)
	}
	return nil
}

// EndSessions ends and removes all sessions of a node that does not run.
func EndSessions(ctx context.Context, name, state string) error {
	n := newNode(ctx, Config{Name: name, State: state})
	n.logs.Open(n.cfg.Log, "")
	defer n.sessions.close()
	defer n.wg.Wait()
	defer n.cancel()
	if err := n.sessions.restore(); err != nil {
		return err
	}
	var all error
	for _, s := range n.sessions.after("") {
		if _, err := s.delete(ctx); err != nil && n.sessions.named(s.Name) != nil {
			all = errors.Join(all, fmt.Errorf("delete session %q: %w", s.Name, err))
		}
	}
	return all
}
