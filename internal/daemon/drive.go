package daemon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/mount"
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
		return "", code.New(code.BadArg, "drive %q: a drive is a letter and a colon as in \"K:\", or \"-\" for one that is free", drive)
	}
	if mount.IsRemote(share) {
		_, err := mount.Parse(share)
		return d, err
	}
	switch {
	case share == "" && d == anyDrive:
		return "", code.New(code.BadArg, "drive \"-\" without a share: say which directory the free drive is to stand for, or name a drive that is there")
	case share == "":
	case !filepath.IsAbs(share):
		return "", code.New(code.BadArg, "share %q: a share is a directory of the node and begins with /", share)
	case strings.ContainsRune(share, 0):
		return "", code.New(code.BadArg, "share %q has a zero byte", share)
	}
	return d, nil
}

// takeDrive makes the session's drive, or finds the one that is there, and sets
// the base. Nothing is looked at through the drive here: that is done with the
// rights of the session's user.
func (n *Node) takeDrive(r *record) error {
	dir := n.drives()
	if r.Share == "" {
		entry := filepath.Join(dir, r.Drive)
		st, err := os.Lstat(entry)
		if err != nil {
			return code.New(code.BadArg, "node %q has no drive %s in %s: name one that is there, or a share for it", n.cfg.Name, r.Drive, dir)
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
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // users look their drives up there
		return code.New(code.BadConfig, "make the directory of the drives: %v", err)
	}
	letters := r.Drive
	if r.Drive == anyDrive {
		letters = "ZYXWVUTSRQPONMLKJIHGFEDCBA"
	} else {
		letters = letters[:1]
	}
	for _, l := range letters {
		err := os.Symlink(r.target(), filepath.Join(dir, string(l)+":"))
		if err == nil {
			r.Drive, r.Base = string(l)+":", r.target()
			return nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return code.New(code.BadConfig, "make drive %c: of node %q: %v", l, n.cfg.Name, err)
		}
	}
	if r.Drive == anyDrive {
		return code.New(code.NoMem, "node %q has no free drive: all of A: to Z: are in %s", n.cfg.Name, dir)
	}
	return code.New(code.BufAlreadyExists, "node %q has a drive %s already: use it with an empty share, or choose another, or \"-\" for one that is free", n.cfg.Name, r.Drive)
}

// giveDrive removes a drive that takeDrive made, if it is still that.
func (n *Node) giveDrive(r *record) {
	if r.Share == "" {
		return
	}
	entry := filepath.Join(n.drives(), r.Drive)
	if to, err := os.Readlink(entry); err == nil && to == r.target() {
		_ = os.Remove(entry)
	}
}
