package integration

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/mount"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

// fence is a cgroup of a test's own, of whichever version the machine has the controller in.
type fence struct {
	dir     string
	unified bool // version 2
}

// fenced makes one that lasts as long as the test. Processes that are in it then are killed.
func fenced(t *testing.T, controller string) fence {
	t.Helper()
	points, err := mount.Points()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range points {
		f := fence{filepath.Join(p.At, "vmmc-test-"+strings.ToLower(rand.Text()[:10])), p.Type == "cgroup2"}
		if !f.unified && (p.Type != "cgroup" || !slices.Contains(strings.Split(filepath.Base(p.At), ","), controller)) {
			continue
		}
		if os.Mkdir(f.dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { f.remove(t) })
		if !f.unified || f.given(t, p.At, controller) {
			return f
		}
	}
	testutil.Require(t, false, "needs root and a cgroup with the "+controller+" controller")
	return fence{}
}

// given reports whether a fence of version 2 has the controller, which its parent may have to give
// it.
func (f fence) given(t *testing.T, parent, controller string) bool {
	t.Helper()
	has := func() bool { _, err := os.Stat(filepath.Join(f.dir, controller+".max")); return err == nil }
	// Only the root of the whole hierarchy may give it while it has processes itself, and no other
	// cgroup becomes another kind by that.
	if _, err := os.Stat(filepath.Join(parent, "cgroup.type")); !has() && os.IsNotExist(err) {
		_ = os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+"+controller), 0)
	}
	return has()
}

func (f fence) remove(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		dirs, _ := filepath.Glob(filepath.Join(f.dir, "vmmc-*")) // of sessions
		err := error(nil)
		for _, dir := range append(dirs, f.dir) {
			b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			for _, pid := range strings.Fields(string(b)) {
				if n, err := strconv.Atoi(pid); err == nil && n > 0 {
					_ = syscall.Kill(n, syscall.SIGKILL)
				}
			}
			err = os.Remove(dir)
		}
		if err == nil || time.Now().After(end) {
			if err != nil {
				t.Error(err)
			}
			return
		}
	}
}

// around is a program that begins in the fence and goes on as exe: what a daemon finds to be its
// cgroup is the fence.
func (f fence) around(t *testing.T, exe string) string {
	t.Helper()
	text := "#!/bin/sh\necho $$ >" + f.dir + "/cgroup.procs && exec " + exe + ` "$@"` + "\n"
	if err := os.WriteFile(exe+".sh", []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return exe + ".sh"
}

// enter puts a process with all its threads into the fence.
func (f fence) enter(t *testing.T, pid int) {
	t.Helper()
	f.set(t, "cgroup.procs", strconv.Itoa(pid))
}

func (f fence) set(t *testing.T, file, value string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, file), []byte(value), 0); err != nil {
		t.Fatal(err)
	}
}

func (f fence) get(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(f.dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
