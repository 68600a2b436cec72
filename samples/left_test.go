package samples

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// processes are those of a program ("" for all) that have an argument ("" for any).
func (l *lab) processes(name, arg string) []int {
	exes, _ := filepath.Glob("/proc/[0-9]*/exe") // the pattern is well formed
	var out []int
	for _, e := range exes {
		to, err := os.Readlink(e)
		if err != nil || !strings.HasPrefix(to, filepath.Join(l.bin, name)) {
			continue
		}
		line, err := os.ReadFile(filepath.Join(filepath.Dir(e), "cmdline"))
		if err != nil || arg != "" && !slices.Contains(strings.Split(string(line), "\x00"), arg) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(e))); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// eventually polls until cond holds: no event tells this process what others do.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v there is still no end to waiting for %s", patience, what)
		}
	}
}

// nothingLeft waits for the end of all processes of the programs: a spawned one
// leaves its node, of which the master knows, a moment before it ends.
func (l *lab) nothingLeft(t *testing.T) {
	t.Helper()
	eventually(t, "the end of all processes", func() bool { return len(l.processes("", "")) == 0 })
}
