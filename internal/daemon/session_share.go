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
func (n *Node) placeMount(r *record) error {
	if !mount.IsRemote(r.Share) {
		return nil
	}
	dir := filepath.Join(n.cfg.State, "mounts")
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
	r.Mount = filepath.Join(dir, supervise.FileName(r.Name))
	return nil
}

// mountShare mounts the session's share, or leaves nothing.
func (n *Node) mountShare(ctx context.Context, r *record, creds mount.Credentials) error {
	if r.Mount == "" {
		return nil
	}
	share, err := mount.Parse(r.Share)
	if err != nil {
		return err
	}
	// Without the mount no user can enter it: no program writes below it what belongs on the share.
	if err := os.MkdirAll(r.Mount, 0o700); err != nil {
		return code.New(code.BadConfig, "make the directory to mount a share at: %v", err)
	}
	o := mount.Order{
		Share: share, Credentials: creds, At: r.Mount, UID: r.UID, GID: r.GID,
		Mark: supervise.MarkerEnv + "=" + r.mountMark(),
	}
	if int(r.UID) == os.Getuid() {
		o.GID = uint32(os.Getgid())
	}
	if err := o.Mount(ctx); err != nil {
		return fmt.Errorf("node %q: %w", n.cfg.Name, err)
	}
	n.log.Info("share mounted", "session", r.Name, "share", share.Source, "at", r.Mount)
	return nil
}

// mountAgain mounts the share of a session that is older than the machine's
// start, or whose mount was removed. The credentials are not kept.
func (n *Node) mountAgain(ctx context.Context, r *record) error {
	if r.Mount == "" {
		return nil
	}
	if r.Ending { // a supervisor would make its directories where nothing may be mounted
		return code.New(code.NoSuchSession, "session %q on node %q is being deleted", r.Name, n.cfg.Name)
	}
	is, err := mount.Mounted(r.Mount)
	if err != nil || is {
		return err
	}
	if r.Account {
		return code.New(code.BadConfig, "share %s of session %q on node %q is not mounted any more, "+
			"and its credentials are not kept: delete the session and make it again", r.Share, r.Name,
			n.cfg.Name)
	}
	return n.mountShare(ctx, r, mount.Credentials{})
}

// undoShare unmounts the share of a session that is not made after all. Where
// that cannot be done yet, the session stays, to be deleted later.
func (n *Node) undoShare(ctx context.Context, s *session) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), timeout.Unmount)
	defer stop()
	s.Ending = true
	if _, err := n.dropShare(ctx, &s.record); err != nil {
		return fmt.Errorf("session %q stays half made on node %q: %w", s.Name, n.cfg.Name, err)
	}
	return nil
}

// dropShare unmounts the session's share when nothing of the session runs any
// more. The notice says what others must know of how that went.
func (n *Node) dropShare(ctx context.Context, r *record) (notice string, err error) {
	if r.Mount == "" {
		return "", nil
	}
	if r.Ending { // by a daemon that may have died while it was mounted
		if left := supervise.KillAll(-1, r.mountMark(), timeout.Stop); len(left) > 0 {
			return "", code.New(code.Timeout, "mount(8), processes %v, for the share of session %q on "+
				"node %q does not end, because the kernel waits for the server: delete the session again "+
				"when it answers", left, r.Name, n.cfg.Name)
		}
	}
	busy, err := mount.Unmount(ctx, r.Mount)
	if err != nil {
		return "", err
	}
	if busy != nil {
		notice = fmt.Sprintf("share %s of session %q on node %q is in use by processes that are not "+
			"the session's, or its server does not answer (%v): it was detached from %s, and is unmounted "+
			"when they let go", r.Share, r.Name, n.cfg.Name, busy, r.Mount)
		n.log.Warn("a session's share was busy and is detached", "session", r.Name, "share", r.Share,
			"at", r.Mount, "err", busy)
	}
	if err := os.Remove(r.Mount); err != nil && !errors.Is(err, os.ErrNotExist) {
		return notice, code.New(code.BadConfig, "remove what share %s was mounted at: %v: move away "+
			"what is in it, and delete the session again", r.Share, err)
	}
	return notice, nil
}
