package unix

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	sys "golang.org/x/sys/unix"
)

// Secret makes a file that has no name in any file system and cannot be changed,
// for a program that this one starts. Only a program that is handed it explicitly inherits it.
func Secret(content []byte) (*os.File, error) {
	fd, err := sys.MemfdCreate("secret", sys.MFD_CLOEXEC|sys.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "secret")
	err = sys.Fchmod(fd, 0o400)
	if err == nil {
		_, err = f.Write(content)
	}
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	if err == nil {
		_, err = sys.FcntlInt(uintptr(fd), sys.F_ADD_SEALS, sys.F_SEAL_SHRINK|sys.F_SEAL_GROW|sys.F_SEAL_WRITE|sys.F_SEAL_SEAL)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("write a memfd: %w", err)
	}
	return f, nil
}

// Detach takes what is mounted at a path out of the tree. It waits neither for
// processes that still use it nor for a server.
func Detach(path string) error {
	if err := sys.Unmount(path, sys.MNT_DETACH|sys.UMOUNT_NOFOLLOW); err != nil {
		return &os.PathError{Op: "umount", Path: path, Err: err}
	}
	return nil
}

// Watch is an eye on a process that need not be a child.
type Watch struct {
	fd   int // its pidfd; -1: there can be none
	pid  int
	born uint64
}

// watchPause is between looks at a process that has no pidfd.
const watchPause = 2 * time.Millisecond

// WatchProcess begins to watch a process. The caller knows that the number is
// still that of the one it means.
func WatchProcess(pid int) (*Watch, error) {
	fd, err := sys.PidfdOpen(pid, 0)
	if err == nil {
		return &Watch{fd: fd}, nil
	}
	w := &Watch{fd: -1, pid: pid}
	if pid <= 0 || !errors.Is(err, sys.ENOSYS) && !errors.Is(err, sys.EPERM) {
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	// Linux before 5.3, or a filter of system calls that is older: the process is known by its
	// beginning.
	if w.born, err = Born(pid); err != nil {
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	return w, nil
}

// Close ends the watch.
func (w *Watch) Close() {
	if w.fd >= 0 {
		_ = sys.Close(w.fd)
	}
}

// Await reports whether the process ends within a time.
func (w *Watch) Await(patience time.Duration) bool {
	deadline := time.Now().Add(patience)
	for w.fd < 0 {
		born, err := Born(w.pid)
		switch {
		case errors.Is(err, fs.ErrNotExist), err == nil && born != w.born:
			return true
		case time.Now().After(deadline):
			return false
		}
		time.Sleep(watchPause)
	}
	for {
		p := []sys.PollFd{{Fd: int32(w.fd), Events: sys.POLLIN}}
		n, err := sys.Poll(p, max(0, int(time.Until(deadline).Milliseconds())))
		if err != sys.EINTR {
			return err == nil && n > 0
		}
	}
}
