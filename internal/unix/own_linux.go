package unix

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	sys "golang.org/x/sys/unix"
)

// OpenOwn opens or makes a file that this user's programs alone keep, as a lock or a
// log, in a directory where other users may have put something under its name. It
// follows no link and waits at no pipe. What is there must be a regular file of this
// user with one name: a hard link would be another file of the user's.
func OpenOwn(path string, flag int, mode fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, flag|sys.O_NOFOLLOW|sys.O_NONBLOCK|sys.O_NOCTTY, mode)
	var st sys.Stat_t
	if err != nil && !errors.Is(err, fs.ErrNotExist) && sys.Lstat(path, &st) == nil {
		// The kernel itself keeps programs from others' files and links in shared directories.
		switch {
		case st.Mode&sys.S_IFMT == sys.S_IFLNK:
			return nil, fmt.Errorf("open %s: it is a symbolic link, which is not followed: remove it", path)
		case int(st.Uid) != os.Geteuid():
			return nil, notOwn(path, st.Uid)
		}
	}
	if err != nil {
		return nil, err
	}
	rc, err := f.SyscallConn()
	if err == nil {
		var serr error
		err = rc.Control(func(fd uintptr) { serr = sys.Fstat(int(fd), &st) })
		err = errors.Join(err, serr)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("look at %s: %w", path, err)
	case st.Mode&sys.S_IFMT != sys.S_IFREG:
		err = fmt.Errorf("open %s: it is no regular file: remove it", path)
	case int(st.Uid) != os.Geteuid():
		err = notOwn(path, st.Uid)
	case st.Nlink > 1:
		err = fmt.Errorf("open %s: it has %d names, so it is another file too: remove it", path, st.Nlink)
	default:
		return f, nil
	}
	_ = f.Close()
	return nil, err
}

func notOwn(path string, uid uint32) error {
	return fmt.Errorf("open %s: it belongs to user %d, want user %d: remove it: %w",
		path, uid, os.Geteuid(), fs.ErrPermission)
}

// ChmodSocket sets the mode of the socket at path, which this user has just bound.
// It follows no link, and changes nothing that is not such a socket.
func ChmodSocket(path string, mode fs.FileMode) error {
	fd, err := sys.Open(path, sys.O_PATH|sys.O_NOFOLLOW|sys.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = sys.Close(fd) }()
	var st sys.Stat_t
	if err := sys.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&sys.S_IFMT != sys.S_IFSOCK || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s was replaced after it was bound: %w", path, fs.ErrPermission)
	}
	// The descriptor's own name: chmod(2) of the path would follow a link.
	return os.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode)
}

// SetUmask sets which bits the modes of new files lack. It is the whole program's,
// and of what it starts, so only a program sets it that is a daemon and nothing else.
func SetUmask(mask fs.FileMode) { _ = sys.Umask(int(mask.Perm())) }
