package unix

import (
	"fmt"
	"syscall"

	sys "golang.org/x/sys/unix"
)

// BecomeSubreaper makes this process the parent of all descendants whose own
// parent ends, so that none gets out of its sight.
func BecomeSubreaper() error {
	if err := sys.Prctl(sys.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	return nil
}

// ReapAny takes one child that has ended, if there is one. It must not run while
// a child is being started: it would take what the starter waits for.
func ReapAny() (pid int, how Ending, ok bool) {
	var w sys.WaitStatus
	for {
		p, err := sys.Wait4(-1, &w, sys.WNOHANG, nil)
		if err == sys.EINTR {
			continue
		}
		if err != nil || p <= 0 {
			return 0, Ending{}, false
		}
		if w.Signaled() {
			return p, Ending{Status: -1, Signal: int(w.Signal())}, true
		}
		return p, Ending{Status: w.ExitStatus()}, true
	}
}

// Childless reports whether this process has no child, dead or alive. That of a
// subreaper is the kernel's word that it has no descendant either.
func Childless() bool {
	for {
		err := sys.Waitid(sys.P_ALL, 0, nil, sys.WEXITED|sys.WNOHANG|sys.WNOWAIT, nil)
		if err != sys.EINTR {
			return err == sys.ECHILD
		}
	}
}

// Kill sends a signal to one process. The caller knows that the number is still
// that of the one it means.
func Kill(pid, signal int) error { return sys.Kill(pid, syscall.Signal(signal)) }

// Wake has a stopped process go on.
func Wake(pid int) error { return sys.Kill(pid, sys.SIGCONT) }

// KillGroup sends a signal to a process group.
func KillGroup(pgid, signal int) error { return sys.Kill(-pgid, syscall.Signal(signal)) }
