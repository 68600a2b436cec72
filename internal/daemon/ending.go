package daemon

import (
	"context"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/supervise"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// endAll ends the session's processes and its supervisor, and waits until that is
// gone too: it has the base open. With the turn.
func (s *session) endAll(ctx context.Context) error {
	c := s.connected()
	if c == nil {
		var err error
		if c, err = s.connect(ctx); err != nil {
			return s.endRest(s.endAlone(ctx, err))
		}
	}
	supervisor, err := unix.WatchProcess(c.Real())
	if err != nil {
		return err
	}
	defer supervisor.Close()
	err = s.end(ctx)
	if err == nil && s.Cgroup == "" && !supervisor.Await(timeout.Stop) {
		err = code.New(code.Timeout, "the supervisor of session %q on node %q, process %d, does not end", s.Name, s.n.cfg.Name, c.Real())
	}
	return s.endRest(err)
}

// endRest ends what has got away from the supervisor, or from where it could not
// be ended by err: nothing leaves a cgroup.
func (s *session) endRest(err error) error {
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
