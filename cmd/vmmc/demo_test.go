package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// children are the processes whose parent is pid.
func children(t *testing.T, pid int) []int {
	t.Helper()
	var out []int
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range stats {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // it has just ended
		}
		s := string(b)
		fields := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
		if fields[1] == strconv.Itoa(pid) && fields[0] != "Z" {
			n, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, n)
		}
	}
	return out
}

// eventually polls, with a bound.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// A demo that is interrupted, or killed, in the middle of a file leaves neither
// processes nor files behind.
func TestDemoLeavesNothing(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			tmp := t.TempDir()
			vmmc, err := exec.LookPath("vmmc")
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(vmmc, "demo", "--json", "--size", strconv.Itoa(1<<40))
			cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
			cmd.Stderr = os.Stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var kids []int
			eventually(t, "two nodes and a receiver", func() bool {
				kids = children(t, cmd.Process.Pid)
				left, err := os.ReadDir(tmp)
				return err == nil && len(kids) == 3 && len(left) == 0
			})
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			werr := cmd.Wait()
			var exit *exec.ExitError
			if sig != syscall.SIGKILL && (!errors.As(werr, &exit) || exit.ExitCode() != 128+int(sig)) {
				t.Errorf("ended with %v, want exit status %d", werr, 128+int(sig))
			}
			for _, k := range kids {
				eventually(t, fmt.Sprintf("the end of child %d", k), func() bool {
					b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", k))
					return err != nil || !strings.Contains(string(b), "vmmc")
				})
			}
			if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
				t.Errorf("left in the temporary directory: %v, %v", left, err)
			}
		})
	}
}
