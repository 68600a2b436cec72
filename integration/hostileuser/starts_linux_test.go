package hostileuser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// holdsDirty reports whether the daemon has a file of dirty open.
func (s *stage) holdsDirty() bool {
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", s.daemon.Process.Pid))
	for _, fd := range fds {
		if target, _ := os.Readlink(fd); strings.Contains(target, "/dirty-") {
			return true
		}
	}
	return false
}

// attackUntil runs one attack until it has had its effect, which takes it no more than 20 s. It
// then goes on.
func (s *stage) attackUntil(t *testing.T, effect func() bool, attack string, files *testutil.FUSE) *exec.Cmd {
	t.Helper()
	c := s.attacking(t, s.attacker, "attacker", attack, s.socket, s.vmmc, s.home(s.attacker), files.Dir, files.Dir)
	if _, err := c.StdinPipe(); err != nil { // its end would end the attack
		t.Fatal(err)
	}
	check(t, c.Start())
	t.Cleanup(func() {
		files.Answer() // a process that waits for the server cannot be killed
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	for end := time.Now().Add(20 * time.Second); !effect(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("attack %q has no effect", attack)
		}
	}
	return c
}

// A user keeps both of his closers of the daemon waiting, and then a file in its table of
// descriptors whose server does not answer a flush. Exec closes the copy of the file that a forked
// child has, but the daemon starts programs nevertheless.
func TestStartsBesideAFileThatDoesNotClose(t *testing.T) {
	s := newStage(t)
	attackerID, _ := ids(t, s.attacker)
	files := newDirtyFiles(t, attackerID)
	for d := filepath.Dir(files.Dir); len(d) > len(os.TempDir()); d = filepath.Dir(d) {
		check(t, os.Chmod(d, 0o755))
	}
	base := filepath.Join(s.home(s.victim), "base")
	check(t, os.Mkdir(base, 0o700))
	uid, gid := ids(t, s.victim)
	check(t, os.Chown(base, int(uid), int(gid)))
	session := func(args ...string) {
		t.Helper()
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
		defer stop()
		as := s.as(t, s.victim, "bomb")
		c := exec.CommandContext(ctx, s.vmmc, append([]string{"session"}, args...)...)
		c.Env, c.SysProcAttr, c.Dir, c.WaitDelay = as.Env, as.SysProcAttr, as.Dir, time.Second
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("vmmc session %v: %v (%v)\n%s", args, err, ctx.Err(), out)
		}
	}
	add := func(name string) { t.Helper(); session("add", "--share", base, "--out", "/out", name) }
	add("before")

	files.Hang("flush", "write", "release")
	sockets := s.attackUntil(t, func() bool { return s.closing() >= 2 }, "lingering sockets", files)
	check(t, sockets.Process.Signal(syscall.SIGSTOP)) // the far ends of the sockets stay
	s.attackUntil(t, s.holdsDirty, "dirty files", files)
	for _, name := range []string{"first", "second", "third"} {
		add(name)
		if !s.holdsDirty() || s.closing() < 2 {
			t.Fatal("the attack's effect has ended")
		}
	}
	files.Answer()
	add("after")
	for _, name := range []string{"before", "first", "second", "third", "after"} {
		session("del", name)
	}
	s.end(t)
}
