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

// proc is a line of the kernel's table of processes.
type proc struct {
	pid, parent int
	started     uint64 // in clock ticks since the machine started
	dead        bool   // and not waited for yet
}

func readProc(pid int) (proc, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return proc{}, false
	}
	// The name stands in parentheses and may have some itself.
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 20 {
		return proc{}, false
	}
	parent, _ := strconv.Atoi(string(f[1]))
	started, _ := strconv.ParseUint(string(f[19]), 10, 64)
	// One whose first thread has ended is listed as a zombie too, and goes on.
	dead := f[0][0] == 'X' || f[0][0] == 'Z' && string(f[17]) <= "1"
	return proc{pid: pid, parent: parent, started: started, dead: dead}, true
}

// userOf is the user that a process was started by, or has become.
func userOf(pid int) (uint32, bool) {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	for line := range bytes.Lines(b) {
		if f := bytes.Fields(line); len(f) > 1 && string(f[0]) == "Uid:" {
			uid, err := strconv.ParseUint(string(f[1]), 10, 32)
			return uint32(uid), err == nil
		}
	}
	return 0, false
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
		if pid != of && !p.dead && (below(all, p, of) || marker != "" && marked(pid, marker)) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b proc) int { return cmp.Compare(a.pid, b.pid) })
	return out
}

// signal goes to this very process, if it lives: another one may have its number
// by now.
func (p proc) signal(s syscall.Signal) error {
	h, err := os.FindProcess(p.pid) // a handle: from here on it is one process
	if err != nil {
		return err
	}
	defer h.Release() //nolint:errcheck // it is only a handle
	if now, ok := readProc(p.pid); !ok || now.started != p.started {
		return os.ErrProcessDone
	}
	return h.Signal(s)
}

// killChildren kills the children of this process. It is quick, because some of
// them may be gone in the time that the kernel's whole table takes: their own
// children are this process's then. With fork, so that each number is still
// whose it was.
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
		if p.parent == of {
			return true
		}
		next, ok := all[p.parent]
		if !ok {
			return false
		}
		p = next
	}
	return false
}

func marked(pid int, marker string) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return err == nil && bytes.Contains(append([]byte{0}, b...), []byte("\x00"+MarkerEnv+"="+marker+"\x00"))
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
			_ = p.signal(syscall.SIGSTOP)
		}
	}
	for {
		found := descendants(of, marker)
		if len(found) == 0 {
			return nil
		}
		denied := 0
		for _, p := range found {
			if errors.Is(p.signal(syscall.SIGKILL), syscall.EPERM) {
				denied++
			}
		}
		if denied == len(found) || time.Now().After(deadline) {
			return pidsOf(found)
		}
		time.Sleep(2 * time.Millisecond) // they are not children: there is nothing to wait for
	}
}
