package daemon

import (
	"context"
	"os"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/supervise"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// end ends all of the session's processes and its supervisor. With the turn.
func (s *session) end(ctx context.Context) error {
	c := s.connected()
	if c == nil {
		var err error
		if c, err = s.connect(ctx); err != nil {
			return s.endAlone(ctx, err)
		}
	}
	left, err := s.askToEnd(ctx, c)
	if err == nil && len(left.Real) > 0 {
		// Programs that have become another user: the supervisor may not end them,
		// a daemon of root may.
		if stay := supervise.KillAll(c.Real(), s.Marker, timeout.Stop); len(stay) > 0 {
			return code.New(code.NoRights, "processes %v of session %q on node %q have become other users' and cannot be ended by user %d: end them, and delete the session again", stay, s.Name, s.n.cfg.Name, os.Getuid())
		}
		left, err = s.askToEnd(ctx, c)
	}
	if err == nil && len(left.Real) > 0 {
		err = code.New(code.Timeout, "processes %v of session %q on node %q do not end", left.Real, s.Name, s.n.cfg.Name)
	}
	if err != nil && s.connected() != c {
		return s.endAlone(ctx, err) // it was killed meanwhile
	}
	if err != nil {
		return err
	}
	c.Close()
	// One that was left by a supervisor that died, and is another user's by now, is
	// not seen by the one that took its place.
	return s.endAlone(ctx, nil)
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
	s.n.log.Warn("a session's supervisor does not answer and is killed", "session", s.Name, "realpid", c.Real())
	supervise.KillAll(c.Real(), s.Marker, timeout.Stop)
	c.Kill()
	return supervise.Leftovers{}, nil
}

// endAlone is end without a supervisor, where none can be had because of err: the
// session's base may be gone. Its processes are known by what is in their
// environment.
func (s *session) endAlone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	if left := supervise.KillAll(-1, s.Marker, timeout.Stop); len(left) > 0 {
		return code.New(code.Timeout, "processes %v of session %q on node %q do not end, and it has no supervisor: %v", left, s.Name, s.n.cfg.Name, err)
	}
	return nil
}
