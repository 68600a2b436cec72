package testutil

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Lease takes a write lease on a file until the returned function or the end of the test gives it
// back: the kernel lets no process open the file meanwhile, for as long as
// /proc/sys/fs/lease-break-time (45 s). The file's owner may do that; no process has it open.
func Lease(t testing.TB, path string) (giveBack func()) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	const setLease = 1024 // F_SETLEASE
	rc, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var e syscall.Errno
	err = rc.Control(func(fd uintptr) {
		_, _, e = syscall.Syscall(syscall.SYS_FCNTL, fd, setLease, syscall.F_WRLCK)
	})
	giveBack = func() { _ = f.Close() }
	t.Cleanup(giveBack)
	if err != nil {
		t.Fatal(err)
	}
	Require(t, e != syscall.EINVAL, "the file system of "+filepath.Dir(path)+" has no leases: set "+
		"TMPDIR to a directory of one that has, as ext4")
	if e != 0 {
		t.Fatalf("take a lease on %s: %v", path, e)
	}
	return giveBack
}

// CopyProgram copies a program of the machine into a directory.
func CopyProgram(t testing.TB, program, dir string) (path string) {
	t.Helper()
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, filepath.Base(program))
	if err := os.WriteFile(path, b, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}
