// Package trust decides whether a directory, and what lies in it under a known
// name, can have been put there by another user. Programs believe the daemon that
// they find under a path, and a daemon writes to the files beside its socket; in a
// directory of an attacker, or through a link, both would be the attacker's.
package trust

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// SystemDir is the directory of the system's daemon's socket. Only root can make it. The
// daemon runs as the user that root gives it to.
const SystemDir = "/run/vmmc"

// maxLinks bounds how many links a path may lead over, as the kernel does.
const maxLinks = 40

// Users are the users whose files this process trusts.
type Users []uint32

// Own returns this user and root. They may prepare what this process itself makes.
func Own() Users { return Users{uint32(os.Geteuid()), 0} }

// Daemons are the users whose daemon this process believes: this user, root, and the
// user of the system's daemon.
func Daemons() Users {
	u := Own()
	if uid, ok := SystemUser(); ok && !slices.Contains(u, uid) {
		u = append(u, uid)
	}
	return u
}

// SystemUser returns the user that root has given [SystemDir] to.
func SystemUser() (uid uint32, ok bool) {
	above, err := os.Lstat(filepath.Dir(SystemDir))
	if err != nil || above.Mode().Perm()&0o022 != 0 {
		return 0, false
	}
	top, err := os.Lstat("/") // root's, in user namespaces where root is not number 0 too
	if err != nil {
		return 0, false
	}
	own, known := unix.Owner(above)
	root, _ := unix.Owner(top)
	dir, err := os.Lstat(SystemDir)
	if err != nil || !dir.IsDir() || !known || own != 0 && own != root {
		return 0, false
	}
	return unix.Owner(dir)
}

// Place is a directory that belongs to one of the users.
type Place struct {
	Path   string // without a link at its end
	users  Users
	shared bool // others can write there too
}

// Directory looks at dir. A link is followed only if one of the users made it, in a
// directory of one of the users: any other user who could have made it may be an
// attacker. The error is [fs.ErrNotExist] if there is no such directory.
func (u Users) Directory(dir string) (Place, error) {
	for range maxLinks {
		i, err := os.Lstat(dir)
		if err != nil {
			return Place{}, err
		}
		if err := u.owns(dir, i); err != nil {
			return Place{}, err
		}
		switch {
		case i.IsDir():
			return Place{dir, u, i.Mode().Perm()&0o022 != 0}, nil
		case i.Mode()&fs.ModeSymlink == 0:
			return Place{}, fmt.Errorf("%s is no directory", dir)
		}
		if _, err := u.Directory(filepath.Dir(dir)); err != nil {
			return Place{}, fmt.Errorf("follow the link %s: %w", dir, err)
		}
		to, err := os.Readlink(dir)
		if err != nil {
			return Place{}, err
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(dir), to)
		}
		dir = filepath.Clean(to)
	}
	return Place{}, fmt.Errorf("%s leads over more than %d links", dir, maxLinks)
}

// Make is Directory of one that is made, with its mode whatever the umask is, if it
// is not there. Directories above it are made with the same mode.
func (u Users) Make(dir string, mode fs.FileMode) (Place, error) {
	if err := MkdirAll(dir, mode); err != nil {
		return Place{}, err
	}
	return u.Directory(dir)
}

// Entry looks at what lies in the directory under a name. Where none but the users
// can write, one of them has put it there, and the entry's owner does not matter.
func (p Place) Entry(name string, i fs.FileInfo) error {
	path := filepath.Join(p.Path, name)
	if i.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%s is a symbolic link, which is not followed", path)
	}
	if !p.shared {
		return nil
	}
	return p.users.owns(path, i)
}

// owns reports in its error that a file is of none of the users.
func (u Users) owns(path string, i fs.FileInfo) error {
	uid, known := unix.Owner(i)
	if !known { // no Linux: there is no daemon either
		return nil
	}
	if slices.Contains(u, uid) {
		return nil
	}
	kind := "it"
	switch {
	case i.IsDir():
		kind = "the directory"
	case i.Mode()&fs.ModeSymlink != 0:
		kind = "the link"
	case i.Mode()&fs.ModeSocket != 0:
		kind = "the socket"
	}
	return fmt.Errorf("%s %s belongs to user %d, want user %d or root: %w",
		kind, path, uid, u[0], fs.ErrPermission)
}

// MkdirAll makes a directory, and those above it that are not there, with a mode that
// the umask has no part in. One that is there keeps its mode.
func MkdirAll(dir string, mode fs.FileMode) error {
	i, err := os.Stat(dir)
	switch {
	case err == nil && i.IsDir():
		return nil
	case err == nil:
		return fmt.Errorf("%s is no directory", dir)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if up := filepath.Dir(dir); up != dir {
		if err := MkdirAll(up, mode); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, mode&0o700); err != nil { // no other user gets in before the mode is set
		if errors.Is(err, fs.ErrExist) {
			return nil // made meanwhile, and a dangling link is seen when it is looked at
		}
		return err
	}
	return setMode(dir, mode)
}

// Create makes a file anew, and removes what lies under its name: another user's link there would
// have this process write elsewhere.
func Create(path string, mode fs.FileMode) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
}

// WriteFile is [os.WriteFile] to a file that [Create] makes.
func WriteFile(path string, b []byte, mode fs.FileMode) error {
	f, err := Create(path, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// setMode changes the mode of a directory that was just made, and of nothing that has
// taken its place.
func setMode(dir string, mode fs.FileMode) error {
	f, err := unix.OpenDirectory(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	i, err := f.Stat()
	if err != nil {
		return err
	}
	if uid, known := unix.Owner(i); known && int(uid) != os.Geteuid() {
		return fmt.Errorf("%s was replaced after it was made: %w", dir, fs.ErrPermission)
	}
	return f.Chmod(mode)
}
