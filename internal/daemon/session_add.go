package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"os"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/mount"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// create makes a session with a supervisor that runs, or nothing.
func (t *sessions) create(
	ctx context.Context, r record, creds mount.Credentials,
) (_ *session, err error) {
	r.Marker, r.Key, r.Account = rand.Text(), rand.Text(), creds != mount.Credentials{}
	s := t.newSession(r)
	if err := t.reserve(s); err != nil {
		return nil, err
	}
	kept := true // reports whether a session is left, which can be deleted
	defer func() {
		if kept {
			s.keep()
		} else {
			t.remove(s)
		}
	}()
	s.placeCgroup()
	if err := s.placeMount(); err != nil {
		kept = false
		return nil, err
	}
	undo := func() {
		s.hangUp()
		_ = s.dropCgroup()
		late, stop := context.WithTimeout(context.WithoutCancel(ctx), timeout.Stop)
		defer stop()
		_ = unix.RemoveTree(late, t.dir(r.Name))
		if derr := s.undoShare(ctx); derr != nil {
			err = errors.Join(err, derr)
			return
		}
		s.removeDrive()
		_ = os.Remove(t.file(r.Name))
		kept = false
	}
	// A daemon that dies meanwhile leaves a session that the next one deletes.
	err = s.takeDrive(func() error {
		half := s.record
		half.Ending = true
		return t.write(half)
	})
	if err == nil {
		err = s.makeRun(ctx)
	}
	if err == nil {
		err = s.mountShare(ctx, creds)
	}
	if err != nil {
		undo()
		return nil, err
	}
	c, err := s.reach(ctx)
	if err == nil {
		if err = t.write(s.record); err == nil && ctx.Err() != nil {
			err = ctxCause(ctx, "make session %q on node %q", r.Name, t.n.cfg.Name)
		}
		if err != nil {
			_, _ = c.End(context.WithoutCancel(ctx))
		}
	}
	if err != nil {
		undo()
		return nil, err
	}
	t.n.log.Info("session made", "session", r.Name, "user", r.User, "drive", s.Drive, "base", c.Base,
		"output", r.Output)
	return s, nil
}

// makeRun makes the directory that is the user's.
func (s *session) makeRun(ctx context.Context) error {
	dir := s.n.sessions.dir(s.Name)
	if err := unix.RemoveTree(ctx, dir); err != nil { // of a session that a crash left half made
		return code.New(code.BadConfig, "remove what is left of a session %q: %v", s.Name, err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return code.New(code.BadConfig, "make the directory of session %q: %v", s.Name, err)
	}
	if int(s.UID) == os.Getuid() {
		return nil
	}
	if err := os.Lchown(dir, int(s.UID), int(s.GID)); err != nil {
		return code.New(code.BadConfig, "give the directory of session %q to user %q: %v", s.Name, s.User,
			err)
	}
	return nil
}
