package unix

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	sys "golang.org/x/sys/unix"
)

// LockFile opens path and takes an exclusive record of it for as long as the
// returned file stays open; the kernel gives it back when the process dies. The file
// is opened by [OpenOwn].
func LockFile(path string) (*os.File, error) {
	f, err := OpenOwn(path, os.O_RDWR|os.O_CREATE, 0o600)
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

// Alive reports whether a process with this kernel pid exists.
func Alive(pid int) bool {
	err := sys.Kill(pid, 0)
	return err == nil || err == sys.EPERM
}

// exiting is the kernel's mark of a thread that is on its way out.
const exiting = 0x4

// bornPatience bounds how long Born waits for a process that executes a program.
const bornPatience = 5 * time.Second

// Born is when a process began, in the kernel's ticks since the machine did: with its number that
// names it for as long as the machine runs. 0 is of one that is there and of which this is not
// told. The error is [fs.ErrNotExist] if there is none of that number, or none whose program still
// runs.
func Born(pid int) (uint64, error) {
	if pid <= 0 { // of a namespace that is not seen from here
		return 0, nil
	}
	type read struct {
		b   []byte
		err error
	}
	got := make(chan read, 1)
	err := LookAt(pid, bornPatience, func() {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		got <- read{b, err}
	})
	if errors.Is(err, ErrExecuting) {
		return 0, fmt.Errorf("process %d: %w", pid, err)
	}
	var b []byte
	if err == nil {
		r := <-got
		b, err = r.b, r.err
	}
	if err != nil {
		if errors.Is(err, sys.EMFILE) || errors.Is(err, sys.ENFILE) || errors.Is(err, sys.ENOMEM) {
			return 0, fmt.Errorf("process %d: %w", pid, err) // which says nothing of it
		}
		if Alive(pid) { // /proc may hide other users' processes
			return 0, nil
		}
		return 0, fmt.Errorf("process %d: %w", pid, fs.ErrNotExist)
	}
	// After the name, which may have anything in it; the first is the third of proc(5).
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 20 {
		return 0, fmt.Errorf("process %d: /proc says %q", pid, b)
	}
	flags, _ := strconv.ParseUint(string(f[6]), 10, 64)
	threads, _ := strconv.Atoi(string(f[17]))
	dead := bytes.ContainsAny(f[0], "ZX") || flags&exiting != 0
	if dead && threads <= 1 { // the first thread may end before the others
		return 0, fmt.Errorf("process %d has ended: %w", pid, fs.ErrNotExist)
	}
	start, err := strconv.ParseUint(string(f[19]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("process %d: %w", pid, err)
	}
	return start, nil
}
