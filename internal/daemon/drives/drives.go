package drives

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/statedir"
	"github.com/vmmc-go/vmmc/internal/daemon/systemlog"
	"github.com/vmmc-go/vmmc/internal/mount"
	"github.com/vmmc-go/vmmc/internal/supervise"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/trust"
)

// anyDrive asks for a drive that is free.
const anyDrive = "-"

// Drives are the drives of a node.
type Drives struct {
	cfg Config
	dir string // of the drives

	mu      sync.Mutex
	claimed map[string]string // which session each is made for. Guarded by mu.
}

// Config is what Drives need of their node.
type Config struct {
	Node  string // its name
	Dir   string // of the drives; empty: one in State
	State string // the state directory, in which shares are mounted
	Logs  *systemlog.Logs
}

// New returns drives of which none is claimed.
func New(cfg Config) *Drives {
	d := &Drives{cfg: cfg, dir: cfg.Dir, claimed: map[string]string{}}
	if d.dir == "" {
		d.dir = filepath.Join(cfg.State, "drives")
	}
	return d
}

// Entry is where a drive is, as programs see it.
func (d *Drives) Entry(drive string) string {
	entry := filepath.Join(d.dir, drive)
	if abs, err := filepath.Abs(entry); err == nil {
		return abs
	}
	return entry
}

// Check gives a drive its usual spelling.
func Check(drive, share string) (string, error) {
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

// Take makes the session's drive, or finds the one that is there, and sets the base. Nothing
// is looked at through the drive here: that is done with the rights of the session's user. Before a
// drive is made the record is kept, so that a daemon that dies then leaves no unrecorded drive.
func (d *Drives) Take(r *statedir.Record, keep func() error) error {
	dir := d.dir
	if r.Share == "" {
		entry := filepath.Join(dir, r.Drive)
		st, err := os.Lstat(entry)
		if err != nil {
			return code.New(code.BadArg,
				"node %q has no drive %s in %s: name one that is there, or a share for it", d.cfg.Node,
				r.Drive, dir)
		}
		r.Base = entry
		if st.Mode()&fs.ModeSymlink != 0 {
			if r.Base, err = os.Readlink(entry); err != nil {
				return code.New(code.BadConfig, "read drive %s: %v", r.Drive, err)
			}
			if !filepath.IsAbs(r.Base) {
				r.Base = filepath.Join(dir, r.Base)
			}
		}
		if !utf8.ValidString(r.Base) {
			return code.New(code.BadArg, "drive %s of node %q leads to %q, which is not valid UTF-8: "+
				"rename that directory, or name another drive", r.Drive, d.cfg.Node, r.Base)
		}
		return keep()
	}
	if err := trust.MkdirAll(dir, 0o755); err != nil { // users look their drives up there
		return code.New(code.BadConfig, "make the directory of the drives: %v", err)
	}
	asked, letters := r.Drive, r.Drive[:1]
	if asked == anyDrive {
		letters = "ZYXWVUTSRQPONMLKJIHGFEDCBA"
	}
	for _, l := range letters {
		r.Drive = string(l) + ":"
		switch made, err := d.makeDrive(r, keep); {
		case err != nil:
			return err
		case made:
			return nil
		}
	}
	r.Drive = asked
	if r.Drive == anyDrive {
		return code.New(code.NoMem, "node %q has no free drive: all of A: to Z: are in %s", d.cfg.Node,
			dir)
	}
	return code.New(code.BufAlreadyExists, "node %q has a drive %s already: use it with an empty "+
		"share, or choose another, or \"-\" for one that is free", d.cfg.Node, r.Drive)
}

// makeDrive makes the record's drive, if that is free.
func (d *Drives) makeDrive(r *statedir.Record, keep func() error) (made bool, err error) {
	entry := filepath.Join(d.dir, r.Drive)
	if !d.Claim(r.Drive, r.Name) {
		return false, nil
	}
	defer func() {
		if !made {
			r.Base = "" // an existing entry is not this session's
			d.release(r.Drive, r.Name)
		}
	}()
	if _, err := os.Lstat(entry); err == nil {
		return false, nil
	}
	r.Base = target(r)
	if err := keep(); err != nil {
		return false, err
	}
	if err := os.Symlink(target(r), entry); err != nil && !errors.Is(err, fs.ErrExist) {
		return false, code.New(code.BadConfig, "make drive %s of node %q: %v", r.Drive, d.cfg.Node, err)
	} else if err != nil {
		return false, nil
	}
	return true, nil
}

// Remove removes a drive that Take made, if it is still that.
func (d *Drives) Remove(r *statedir.Record) {
	if r.Share == "" || r.Base == "" {
		return
	}
	entry := filepath.Join(d.dir, r.Drive)
	if to, err := os.Readlink(entry); err == nil && to == target(r) &&
		d.Claim(r.Drive, r.Name) {
		_ = os.Remove(entry)
	}
	d.release(r.Drive, r.Name)
}

// Claim keeps a drive for one session; it reports whether that session has it.
func (d *Drives) Claim(drive, name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if has, taken := d.claimed[drive]; taken {
		return has == name
	}
	d.claimed[drive] = name
	return true
}

func (d *Drives) release(drive, name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.claimed[drive] == name {
		delete(d.claimed, drive)
	}
}

// target is what the drive that is made for the session stands for.
func target(r *statedir.Record) string {
	if r.Mount != "" {
		return r.Mount
	}
	return r.Share
}

// mountMark is in the environment of mount(8), so that a daemon after this one
// finds it when this one dies meanwhile.
func mountMark(r *statedir.Record) string { return "mount-" + r.Marker }

// PlaceMount says where the session's share is mounted, if it is one of another
// machine.
func (d *Drives) PlaceMount(r *statedir.Record) error {
	if !mount.IsRemote(r.Share) {
		return nil
	}
	dir := filepath.Join(d.cfg.State, "mounts")
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

// Mount mounts the session's share, or leaves nothing.
func (d *Drives) Mount(
	ctx context.Context, r *statedir.Record, creds mount.Credentials,
) error {
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
		Mark: supervise.MarkerEnv + "=" + mountMark(r),
	}
	if int(r.UID) == os.Getuid() {
		o.GID = uint32(os.Getgid())
	}
	if err := o.Mount(ctx); err != nil {
		return fmt.Errorf("node %q: %w", d.cfg.Node, err)
	}
	d.cfg.Logs.Server.Info("share mounted", "session", r.Name, "share", share.Source, "at", r.Mount)
	return nil
}

// MountAgain mounts the share of a session that is older than the machine's
// start, or whose mount was removed. The credentials are not kept.
func (d *Drives) MountAgain(ctx context.Context, r *statedir.Record) error {
	if r.Mount == "" {
		return nil
	}
	if r.Ending { // a supervisor would make its directories where nothing may be mounted
		return code.New(code.NoSuchSession, "session %q on node %q is being deleted", r.Name,
			d.cfg.Node)
	}
	is, err := mount.Mounted(r.Mount)
	if err != nil || is {
		return err
	}
	if r.Account {
		return code.New(code.BadConfig, "share %s of session %q on node %q is not mounted any more, "+
			"and its credentials are not kept: delete the session and make it again", r.Share, r.Name,
			d.cfg.Node)
	}
	return d.Mount(ctx, r, mount.Credentials{})
}

// UndoShare unmounts the share of a session that is not made after all. Where
// that cannot be done yet, the session stays, to be deleted later.
func (d *Drives) UndoShare(ctx context.Context, r *statedir.Record) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), timeout.Unmount)
	defer stop()
	r.Ending = true
	if _, err := d.DropShare(ctx, r); err != nil {
		return fmt.Errorf("session %q stays half made on node %q: %w", r.Name, d.cfg.Node, err)
	}
	return nil
}

// DropShare unmounts the session's share when nothing of the session runs any
// more. The notice says what others must know of how that went.
func (d *Drives) DropShare(
	ctx context.Context, r *statedir.Record,
) (notice string, err error) {
	if r.Mount == "" {
		return "", nil
	}
	if r.Ending { // by a daemon that may have died while it was mounted
		if left := supervise.KillAll(-1, mountMark(r), timeout.Stop); len(left) > 0 {
			return "", code.New(code.Timeout, "mount(8), processes %v, for the share of session %q on "+
				"node %q does not end, because the kernel waits for the server: delete the session again "+
				"when it answers", left, r.Name, d.cfg.Node)
		}
	}
	busy, err := mount.Unmount(ctx, r.Mount)
	if err != nil {
		return "", err
	}
	if busy != nil {
		notice = fmt.Sprintf("share %s of session %q on node %q is in use by processes that are not "+
			"the session's, or its server does not answer (%v): it was detached from %s, and is unmounted "+
			"when they let go", r.Share, r.Name, d.cfg.Node, busy, r.Mount)
		d.cfg.Logs.Server.Warn("a session's share was busy and is detached", "session", r.Name, "share",
			r.Share, "at", r.Mount, "err", busy)
	}
	if err := os.Remove(r.Mount); err != nil && !errors.Is(err, os.ErrNotExist) {
		return notice, code.New(code.BadConfig, "remove what share %s was mounted at: %v: move away "+
			"what is in it, and delete the session again", r.Share, err)
	}
	return notice, nil
}
