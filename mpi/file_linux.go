package mpi

import (
	"errors"
	"os"
	"syscall"
)

// preallocate takes room for the first n bytes of a file.
func preallocate(f *os.File, n int64) error {
	if n == 0 {
		return nil // the system call refuses it
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	for {
		var failed error
		if err := conn.Control(func(fd uintptr) { failed = syscall.Fallocate(int(fd), 0, 0, n) }); err != nil {
			return err
		}
		switch {
		case errors.Is(failed, syscall.EINTR):
		case errors.Is(failed, syscall.EOPNOTSUPP), errors.Is(failed, syscall.ENOSYS):
			return fill(f, n) // the file system has no such call
		default:
			return failed
		}
	}
}
