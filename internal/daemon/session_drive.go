package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/mount"
	"github.com/vmmc-go/vmmc/internal/supervise"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/trust"
)

// anyDrive asks for a drive that is free.
const anyDrive = "-"

func (t *sessions) drivesDir() string {
	if t.n.cfg.Drives != "" {
		return t.n.cfg.Drives
	}
	return filepath.Join(t.n.cfg.State, "drives")
}

// driveEntry is where a drive is, as programs see it.
func (t *sessions) driveEntry(drive string) string {
	entry := filepath.Join(t.drivesDir(), drive)
	if abs, err := filepath.Abs(entry); err == nil {
		return abs
	}
	return entry
}

// checkDrive gives a drive its usual spelling.
func checkDrive(drive, share string) (string, error) {
	d := strings.ToUpper(drive)
	if d != anyDrive && (len(d) != 2 || d[0] < 'A' || d[0] > 'Z' || d[1] != ':') {
		return "", code.New(code.BadArg,
			"drive %q: a drive is a letter and a colon as in \"K:\", or \"-\" for one that is free", drive)
	}
	if mount.IsRemote(share) {
		_, err := mount.Parse(share)
		return d, err
	}
	switch {
	case share == "" && d == anyDrive:
		return "", code.New(code.BadArg, "drive \"-\" without a share: say which directory the free "+
			"drive is to stand for, or name a drive that is there")
	case share == "":
	case !filepath.IsAbs(share):
		return "", code.New(code.BadArg, "share %q: a share is a directory of the node and begins with /",
			share)
	case strings.ContainsRune(share, 0):
		return "", code.New(code.BadArg, "share %q has a zero byte", share)
	}
	return d, nil
}

// takeDrive makes the session's drive, or finds the one that is there, and sets the base. Nothing
// is looked at through the drive here: that is done with the rights of the session's user. Before a
// drive is made the record is kept, so that a daemon that dies then leaves no unrecorded drive.
func (s *session) takeDrive(keep func() error) error {
	dir := s.n.sessions.drivesDir()
	if s.Share == "" {
		entry := filepath.Join(dir, s.Drive)
		st, err := os.Lstat(entry)
		if err != nil {
			return code.New(code.BadArg,
				"node %q has no drive %s in %s: name one that is there, or a share for it", s.n.cfg.Name,
				s.Drive, dir)
		}
		s.Base = entry
		if st.Mode()&fs.ModeSymlink != 0 {
			if s.Base, err = os.Readlink(entry); err != nil {
				return code.New(code.BadConfig, "read drive %s: %v", s.Drive, err)
			}
			if !filepath.IsAbs(s.Base) {
				s.Base = filepath.Join(dir, s.Base)
			}
		}
		if !utf8.ValidString(s.Base) {
			return code.New(code.BadArg, "drive %s of node %q leads to %q, which is not valid UTF-8: "+
				"rename that directory, or name another drive", s.Drive, s.n.cfg.Name, s.Base)
		}
		return keep()
	}
	if err := trust.MkdirAll(dir, 0o755); err != nil { // users look their drives up there
		return code.New(code.BadConfig, "make the directory of the drives: %v", err)
	}
	asked, letters := s.Drive, s.Drive[:1]
	if asked == anyDrive {
		letters = "ZYXWVUTSRQPONMLKJIHGFEDCBA"
	}
	for _, l := range letters {
		s.Drive = string(l) + ":"
		switch made, err := s.makeDrive(keep); {
		case err != nil:
			return err
		case made:
			return nil
		}
	}
	s.Drive = asked
	if s.Drive == anyDrive {
		return code.New(code.NoMem, "node %q has no free drive: all of A: to Z: are in %s", s.n.cfg.Name,
			dir)
	}
	return code.New(code.BufAlreadyExists, "node %q has a drive %s already: use it with an empty "+
		"share, or choose another, or \"-\" for one that is free", s.n.cfg.Name, s.Drive)
}

// makeDrive makes the record's drive, if that is free.
func (s *session) makeDrive(keep func() error) (made bool, err error) {
	entry := filepath.Join(s.n.sessions.drivesDir(), s.Drive)
	if !s.n.sessions.claimDrive(s.Drive, s.Name) {
		return false, nil
	}
	defer func() {
		if !made {
			s.Base = "" // an existing entry is not this session's
			s.n.sessions.releaseDrive(s.Drive, s.Name)
		}
	}()
	if _, err := os.Lstat(entry); err == nil {
		return false, nil
	}
	s.Base = s.target()
	if err := keep(); err != nil {
		return false, err
	}
	if err := os.Symlink(s.target(), entry); err != nil && !errors.Is(err, fs.ErrExist) {
		return false, code.New(code.BadConfig, "make drive %s of node %q: %v", s.Drive, s.n.cfg.Name, err)
	} else if err != nil {
		return false, nil
	}
	return true, nil
}

// removeDrive removes a drive that takeDrive made, if it is still that.
func (s *session) removeDrive() {
	if s.Share == "" || s.Base == "" {
		return
	}
	entry := filepath.Join(s.n.sessions.drivesDir(), s.Drive)
	if to, err := os.Readlink(entry); err == nil && to == s.target() &&
		s.n.sessions.claimDrive(s.Drive, s.Name) {
		_ = os.Remove(entry)
	}
	s.n.sessions.releaseDrive(s.Drive, s.Name)
}

// claimDrive keeps a drive for one session; it says whether that has it.
func (t *sessions) claimDrive(drive, name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if has, taken := t.drives[drive]; taken {
		return has == name
	}
	t.drives[drive] = name
	return true
}

func (t *sessions) releaseDrive(drive, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.drives[drive] == name {
		delete(t.drives, drive)
	}
}

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
	s.n.logs.Server.Info("share mounted", "session", s.Name, "share", share.Source, "at", s.Mount)
	return nil
}

// mountAgain mounts the share of a session that is older than the machine's
// start, or whose mount was removed. The credentials are not kept.
func (s *session) mountAgain(ctx context.Context) error {
	if s.Mount == "" {
		return nil
	}
	if s.Ending { // a supervisor would make its directories where nothing may be mounted
		return code.New(code.NoSuchSession, "session %q on node %q is being deleted", s.Name,
			s.n.cfg.Name)
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
		s.n.logs.Server.Warn("a session's share was busy and is detached", "session", s.Name, "share",
			s.Share, "at", s.Mount, "err", busy)
	}
	if err := os.Remove(s.Mount); err != nil && !errors.Is(err, os.ErrNotExist) {
		return notice, code.New(code.BadConfig, "remove what share %s was mounted at: %v: move away "+
			"what is in it, and delete the session again", s.Share, err)
	}
	return notice, nil
}
