package supervise

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// proc is a process.
type proc struct {
	pid int
	unix.ProcessStatus
	marked bool // it was found by the marker
}

func readProc(pid int) (proc, bool) {
	s, err := unix.Status(pid)
	return proc{pid: pid, ProcessStatus: s}, err == nil
}

// userOf is the user that a process was started by, or has become.
func userOf(pid int) (uint32, bool) {
	s, err := unix.Status(pid)
	return s.UID, err == nil
}

// Descendants are the living processes below one, and those that have the marker
// in the environment that they began with, wherever they are.
func Descendants(of int, marker string) []int { return pidsOf(descendants(of, marker)) }

func pidsOf(list []proc) (pids []int) {
	for _, p := range list {
		pids = append(pids, p.pid)
	}
	return pids
}

func descendants(of int, marker string) []proc {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	all := map[int]proc{}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if p, ok := readProc(pid); ok {
				all[pid] = p
			}
		}
	}
	var out []proc
	for pid, p := range all {
		if pid == of || p.Dead() {
			continue
		}
		if !below(all, p, of) {
			if marker == "" || !p.has(marker) {
				continue
			}
			p.marked = true
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b proc) int { return cmp.Compare(a.pid, b.pid) })
	return out
}

// signal goes to this very process, if it lives: another one may have its number
// by now.
func (p proc) signal(s syscall.Signal, marker string) error {
	h, err := os.FindProcess(p.pid) // a handle: from here on it is one process
	if err != nil {
		return err
	}
	defer h.Release() //nolint:errcheck // it is only a handle
	// What made it one of those to end is still so.
	if now, ok := readProc(p.pid); !ok || now.UID != p.UID || !p.marked && now.Parent != p.Parent ||
		p.marked && !p.has(marker) {
		return os.ErrProcessDone
	}
	return h.Signal(s)
}

// killChildren kills the children of this process. It is quick, because some of
// them may be gone in the time that the kernel's whole table takes: their own
// children are this process's then. forkMu is held, so that each pid is still that
// of the same process.
func killChildren() {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, l := range lists {
		b, _ := os.ReadFile(l)
		for _, f := range bytes.Fields(b) {
			if pid, err := strconv.Atoi(string(f)); err == nil && pid > 1 {
				_ = unix.Kill(pid, int(syscall.SIGKILL))
			}
		}
	}
}

func below(all map[int]proc, p proc, of int) bool {
	for range len(all) { // the table was not read at one moment: it may have circles
		if p.Parent == of {
			return true
		}
		next, ok := all[p.Parent]
		if !ok {
			return false
		}
		p = next
	}
	return false
}

// readWait bounds a look at a process's environment.
const readWait = 500 * time.Millisecond

// has reports whether the marker is in the environment that a process began with. The environment
// of a process that executes a program cannot be read, and what other users run only by root.
func (p proc) has(marker string) bool {
	if uid := os.Geteuid(); uid != 0 && int(p.UID) != uid && !unix.MaySwitchUsers() {
		return false
	}
	read := make(chan []byte, 1)
	if unix.LookAt(p.pid, readWait, func() {
		b, _ := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/environ")
		read <- b
	}) != nil {
		return false
	}
	return bytes.Contains(append([]byte{0}, <-read...), []byte("\x00"+MarkerEnv+"="+marker+"\x00"))
}

// KillAll ends all processes below one, and returns those that cannot be ended.
// They are stopped first, because a process that runs can start others faster
// than they are found.
func KillAll(of int, marker string, patience time.Duration) []int {
	deadline := time.Now().Add(patience)
	stopped := 0
	for round := 0; round < 16; round++ {
		found := descendants(of, marker)
		if len(found) == 0 || len(found) == stopped {
			break
		}
		stopped = len(found)
		for _, p := range found {
			_ = p.signal(syscall.SIGSTOP, marker)
		}
	}
	for {
		found := descendants(of, marker)
		if len(found) == 0 {
			return nil
		}
		denied := 0
		for _, p := range found {
			if errors.Is(p.signal(syscall.SIGKILL, marker), syscall.EPERM) {
				denied++
			}
		}
		if denied == len(found) || time.Now().After(deadline) {
			return pidsOf(found)
		}
		time.Sleep(2 * time.Millisecond) // they are not children: there is nothing to wait for
	}
}
