package supervise

import (
	"bytes"
	"errors"
	"os"
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
	return proc{pid: pid, parent: parent, started: started, dead: f[0][0] == 'Z' || f[0][0] == 'X'}, true
}

// Descendants are the living processes below one, and those that have the marker
// in the environment that they began with, wherever they are.
func Descendants(of int, marker string) []int {
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
	var out []int
	for pid, p := range all {
		if pid != of && !p.dead && (below(all, p, of) || marker != "" && marked(pid, marker)) {
			out = append(out, pid)
		}
	}
	slices.Sort(out)
	return out
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
		found := Descendants(of, marker)
		if len(found) == 0 || len(found) == stopped {
			break
		}
		stopped = len(found)
		for _, pid := range found {
			_ = unix.Kill(pid, int(syscall.SIGSTOP))
		}
	}
	for {
		found := Descendants(of, marker)
		if len(found) == 0 {
			return nil
		}
		denied := 0
		for _, pid := range found {
			if errors.Is(unix.Kill(pid, int(syscall.SIGKILL)), syscall.EPERM) {
				denied++
			}
		}
		if denied == len(found) || time.Now().After(deadline) {
			return found
		}
		time.Sleep(2 * time.Millisecond) // they are not children: there is nothing to wait for
	}
}
