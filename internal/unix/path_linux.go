package unix

import (
	"fmt"
	"os"

	sys "golang.org/x/sys/unix"
)

// OwnerOf returns the owner of an open file, and how many names it has: 0 once it
// was removed.
func OwnerOf(f *os.File) (uid uint32, links uint64, err error) {
	rc, err := f.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var st sys.Stat_t
	var serr error
	if err := rc.Control(func(fd uintptr) { serr = sys.Fstat(int(fd), &st) }); err != nil {
		return 0, 0, err
	}
	if serr != nil {
		return 0, 0, fmt.Errorf("look at %s: %w", f.Name(), serr)
	}
	return st.Uid, uint64(st.Nlink), nil //nolint:unconvert // of 32 bits on some machines
}

// FileID is what tells an open file apart from all others that are there at the time.
func FileID(f *os.File) (dev, ino uint64) {
	rc, err := f.SyscallConn()
	if err != nil {
		return 0, 0
	}
	var st sys.Stat_t
	if rc.Control(func(fd uintptr) { err = sys.Fstat(int(fd), &st) }) != nil || err != nil {
		return 0, 0
	}
	return uint64(st.Dev), st.Ino //nolint:unconvert // of 32 bits on some machines
}

// OpenPath opens a directory to name things in it, and follows no link at its
// last name.
func OpenPath(dir string) (*os.File, error) {
	fd, err := sys.Open(dir, sys.O_PATH|sys.O_DIRECTORY|sys.O_NOFOLLOW|sys.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return os.NewFile(uintptr(fd), dir), nil
}

// OpenDirectory opens a directory to read it or to change its mode, and follows no
// link at its last name.
func OpenDirectory(dir string) (*os.File, error) {
	return os.OpenFile(dir, os.O_RDONLY|sys.O_DIRECTORY|sys.O_NOFOLLOW, 0)
}
