package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/mount"
	"github.com/vmmc-go/vmmc/internal/supervise"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/trust"
)

// target is what the drive that is made for the session stands for.
func (r *record) target() string {
	if r.Mount != "" {
		return r.Mount
	}
	return r.Share
}

// mountMark is in the environment of mount(8), so that a daemon after this one
// finds it when this one dies meanwhile.
func (r *record) mountMark() string { return "mount-" + r.Marker }

// placeMount says where the session's share is mounted, if it is one of another
// machine.
func (s *session) placeMount() error {
	if !mount.IsRemote(s.Share) {
		return nil
	}
	dir := filepath.Join(s.n.cfg.State, "mounts")
	if err := trust.MkdirAll(dir, 0o711); err != nil {
		// Users get through, to what is mounted for them.
		return code.New(code.BadConfig, "make the directory of the mounts: %v", err)
	}
	// As the kernel names it, without a look at what is mounted in it.
	dir, err := filepath.EvalSymlinks(dir)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return code.New(code.BadConfig, "find the directory of the mounts: %v", err)
	}
	s.Mount = filepath.Join(dir, supervise.FileName(s.Name))
	return nil
}

// mountShare mounts the session's share, or leaves nothing.
func (s *session) mountShare(ctx context.Context, creds mount.Credentials) error {
	if s.Mount == "" {
		return nil
	}
	share, err := mount.Parse(s.Share)
	if err != nil {
		return err
	}
	// Without the mount no user can enter it: no program writes below it what belongs on the share.
	if err := os.MkdirAll(s.Mount, 0o700); err != nil {
		return code.New(code.BadConfig, "make the directory to mount a share at: %v", err)
	}
	o := mount.Order{
		Share: share, Credentials: creds, At: s.Mount, UID: s.UID, GID: s.GID,
		Mark: supervise.MarkerEnv + "=" + s.mountMark(),
	}
	if int(s.UID) == os.Getuid() {
		o.GID = uint32(os.Getgid())
	}
	if err := o.Mount(ctx); err != nil {
		return fmt.Errorf("node %q: %w", s.n.cfg.Name, err)
	}
	s.n.log.Info("share mounted", "session", s.Name, "share", share.Source, "at", s.Mount)
	return nil
}

// mountAgain mounts the share of a session that is older than the machine's
// start, or whose mount was removed. The credentials are not kept.
func (s *session) mountAgain(ctx context.Context) error {
	if s.Mount == "" {
		return nil
	}
	if s.Ending { // a supervisor would make its directories where nothing may be mounted
		return code.New(code.NoSuchSession, "session %q on node %q is being deleted", s.Name, s.n.cfg.Name)
	}
	is, err := mount.Mounted(s.Mount)
	if err != nil || is {
		return err
	}
	if s.Account {
		return code.New(code.BadConfig, "share %s of session %q on node %q is not mounted any more, "+
			"and its credentials are not kept: delete the session and make it again", s.Share, s.Name,
			s.n.cfg.Name)
	}
	return s.mountShare(ctx, mount.Credentials{})
}

// undoShare unmounts the share of a session that is not made after all. Where
// that cannot be done yet, the session stays, to be deleted later.
func (s *session) undoShare(ctx context.Context) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), timeout.Unmount)
	defer stop()
	s.Ending = true
	if _, err := s.dropShare(ctx); err != nil {
		return fmt.Errorf("session %q stays half made on node %q: %w", s.Name, s.n.cfg.Name, err)
	}
	return nil
}

// dropShare unmounts the session's share when nothing of the session runs any
// more. The notice says what others must know of how that went.
func (s *session) dropShare(ctx context.Context) (notice string, err error) {
	if s.Mount == "" {
		return "", nil
	}
	if s.Ending { // by a daemon that may have died while it was mounted
		if left := supervise.KillAll(-1, s.mountMark(), timeout.Stop); len(left) > 0 {
			return "", code.New(code.Timeout, "mount(8), processes %v, for the share of session %q on "+
				"node %q does not end, because the kernel waits for the server: delete the session again "+
				"when it answers", left, s.Name, s.n.cfg.Name)
		}
	}
	busy, err := mount.Unmount(ctx, s.Mount)
	if err != nil {
		return "", err
	}
	if busy != nil {
		notice = fmt.Sprintf("share %s of session %q on node %q is in use by processes that are not "+
			"the session's, or its server does not answer (%v): it was detached from %s, and is unmounted "+
			"when they let go", s.Share, s.Name, s.n.cfg.Name, busy, s.Mount)
		s.n.log.Warn("a session's share was busy and is detached", "session", s.Name, "share", s.Share,
			"at", s.Mount, "err", busy)
	}
	if err := os.Remove(s.Mount); err != nil && !errors.Is(err, os.ErrNotExist) {
		return notice, code.New(code.BadConfig, "remove what share %s was mounted at: %v: move away "+
			"what is in it, and delete the session again", s.Share, err)
	}
	return notice, nil
}
