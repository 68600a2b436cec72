package unix

import (
	"fmt"
	"os"

	sys "golang.org/x/sys/unix"
)

// LockFile opens path and takes an exclusive record of it for as long as the
// returned file stays open; the kernel gives it back when the process dies.
func LockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	rc, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	var lerr error
	if err := rc.Control(func(fd uintptr) { lerr = sys.Flock(int(fd), sys.LOCK_EX|sys.LOCK_NB) }); err != nil {
		lerr = err
	}
	if lerr != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, lerr)
	}
	return f, nil
}

// Alive says whether a process with this kernel pid exists.
func Alive(pid int) bool {
	err := sys.Kill(pid, 0)
	return err == nil || err == sys.EPERM
}
