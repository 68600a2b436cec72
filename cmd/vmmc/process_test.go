package main

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

func TestProcessIsItsStartTimeToo(t *testing.T) {
	testutil.Require(t, runtime.GOOS == "linux", "start times are read from /proc")
	me, err := findProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !me.alive() {
		t.Errorf("this process %+v counts as dead", me)
	}
	other := process{PID: me.PID, Started: me.Started + 1}
	if other.alive() {
		t.Errorf("%+v, which had this process's pid before it, counts as alive", other)
	}
	// The signal would end the test.
	if err := other.signal(syscall.SIGKILL); err != nil {
		t.Errorf("signal to a process that is gone: %v, wanted nil", err)
	}
}

func TestProcessThatNobodyWaitedForIsDead(t *testing.T) {
	testutil.Require(t, runtime.GOOS == "linux", "states are read from /proc")
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	p, err := findProcess(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if gone([]process{p}, 0) {
		t.Errorf("%+v runs and counts as gone", p)
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if !gone([]process{p}, patience) {
		t.Errorf("%+v was killed and counts as alive", p)
	}
}

func TestShellWord(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"/tmp/vmmc-1/n1.sock", "/tmp/vmmc-1/n1.sock"},
		{"/tmp/two words", "'/tmp/two words'"},
		{"it's", `'it'\''s'`},
		{"$HOME", "'$HOME'"},
	} {
		if got := shellWord(c.in); got != c.want {
			t.Errorf("shellWord(%q) = %s, wanted %s", c.in, got, c.want)
		}
	}
}
