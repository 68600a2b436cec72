package daemon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/mount"
	"github.com/vmmc-go/vmmc/internal/trust"
)

// anyDrive asks for a drive that is free.
const anyDrive = "-"

func (n *Node) drives() string {
	if n.cfg.Drives != "" {
		return n.cfg.Drives
	}
	return filepath.Join(n.cfg.State, "drives")
}

// driveEntry is where a drive is, as programs see it.
func (n *Node) driveEntry(drive string) string {
	entry := filepath.Join(n.drives(), drive)
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
func (n *Node) takeDrive(r *record, keep func() error) error {
	dir := n.drives()
	if r.Share == "" {
		entry := filepath.Join(dir, r.Drive)
		st, err := os.Lstat(entry)
		if err != nil {
			return code.New(code.BadArg,
				"node %q has no drive %s in %s: name one that is there, or a share for it", n.cfg.Name, r.Drive,
				dir)
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
				"rename that directory, or name another drive", r.Drive, n.cfg.Name, r.Base)
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
		switch made, err := n.makeDrive(r, keep); {
		case err != nil:
			return err
		case made:
			return nil
		}
	}
	r.Drive = asked
	if r.Drive == anyDrive {
		return code.New(code.NoMem, "node %q has no free drive: all of A: to Z: are in %s", n.cfg.Name,
			dir)
	}
	return code.New(code.BufAlreadyExists, "node %q has a drive %s already: use it with an empty "+
		"share, or choose another, or \"-\" for one that is free", n.cfg.Name, r.Drive)
}

// makeDrive makes the record's drive, if that is free.
func (n *Node) makeDrive(r *record, keep func() error) (made bool, err error) {
	entry := filepath.Join(n.drives(), r.Drive)
	if !n.sessions.claimDrive(r.Drive, r.Name) {
		return false, nil
	}
	defer func() {
		if !made {
			r.Base = "" // an existing entry is not this session's
			n.sessions.releaseDrive(r)
		}
	}()
	if _, err := os.Lstat(entry); err == nil {
		return false, nil
	}
	r.Base = r.target()
	if err := keep(); err != nil {
		return false, err
	}
	if err := os.Symlink(r.target(), entry); err != nil && !errors.Is(err, fs.ErrExist) {
		return false, code.New(code.BadConfig, "make drive %s of node %q: %v", r.Drive, n.cfg.Name, err)
	} else if err != nil {
		return false, nil
	}
	return true, nil
}

// removeDrive removes a drive that takeDrive made, if it is still that.
func (n *Node) removeDrive(r *record) {
	if r.Share == "" || r.Base == "" {
		return
	}
	entry := filepath.Join(n.drives(), r.Drive)
	if to, err := os.Readlink(entry); err == nil && to == r.target() && n.sessions.claimDrive(r.Drive,
		r.Name) {
		_ = os.Remove(entry)
	}
	n.sessions.releaseDrive(r)
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

func (t *sessions) releaseDrive(r *record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.drives[r.Drive] == r.Name {
		delete(t.drives, r.Drive)
	}
}
