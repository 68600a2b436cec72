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
				"node %q has no drive %s in %s: name one that is there, or a share for it", s.n.cfg.Name, s.Drive,
				dir)
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
	if to, err := os.Readlink(entry); err == nil && to == s.target() && s.n.sessions.claimDrive(s.Drive, s.Name) {
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
