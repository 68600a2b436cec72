package guide

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// left are the processes in the lab's namespaces: pids and command lines.
func (l *lab) left(t *testing.T) map[int]string {
	t.Helper()
	var ours []os.FileInfo
	for _, ns := range l.net {
		st, err := os.Stat(filepath.Join("/run/netns", ns.Name))
		check(t, err)
		ours = append(ours, st)
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	check(t, err)
	out := map[int]string{}
	for _, dir := range all {
		st, err := os.Stat(filepath.Join(dir, "ns/net"))
		if err != nil {
			continue // it has just ended
		}
		for _, ns := range ours {
			if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && os.SameFile(st, ns) {
				b, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
				out[pid] = strings.ReplaceAll(string(b), "\x00", " ")
			}
		}
	}
	return out
}

// killLeft ends what a test that failed has left: supervisors and programs do not
// end with their node.
func (l *lab) killLeft(t *testing.T) {
	for range 100 { // they may start others meanwhile
		left := l.left(t)
		if len(left) == 0 {
			return
		}
		for pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	t.Errorf("processes %v cannot be ended", l.left(t))
}
