package supervise

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// headlessEnv makes the test binary a process whose first thread has ended while
// the others go on: the kernel lists it as dead.
const headlessEnv = "VMMC_TEST_HEADLESS"

func init() {
	if os.Getenv(headlessEnv) == "" {
		return
	}
	runtime.LockOSThread() // init runs on the first thread
	go func() {
		_ = os.WriteFile(os.Getenv(headlessEnv), []byte(strconv.Itoa(os.Getpid())), 0o600)
		time.Sleep(time.Hour)
	}()
	for {
		if _, err := os.Stat(os.Getenv(headlessEnv)); err == nil {
			_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0) // of the thread alone
		}
		time.Sleep(time.Millisecond)
	}
}

func TestHeadlessProcessIsEnded(t *testing.T) {
	base := t.TempDir()
	s := newSession(t, base)
	mark := filepath.Join(base, "mark")
	s.sh("env -u " + MarkerEnv + " " + headlessEnv + "=" + mark + " setsid " + os.Args[0] + " & wait")
	pid := 0
	for deadline := time.Now().Add(bound); ; time.Sleep(time.Millisecond) {
		b, _ := os.ReadFile(mark)
		pid, _ = strconv.Atoi(string(b))
		b, _ = os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if pid > 0 && strings.Contains(string(b), ") Z ") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d does not lose its first thread: %s", pid, b)
		}
	}
	s.end()
	if err := syscall.Kill(pid, 0); err == nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		t.Errorf("process %d runs on", pid)
	}
}

// A process that forks and ends, over and over, is another one whenever the
// kernel's table is read.
func TestRunnerIsEnded(t *testing.T) {
	_, err := exec.LookPath("perl")
	testutil.Require(t, err == nil, "needs perl, which forks fast enough")
	base := t.TempDir()
	s := newSession(t, base)
	s.sh("exec env -u " + MarkerEnv + ` setsid perl -e 'use POSIX; my $late = time + 60; while (1) { POSIX::_exit(0) if fork; if ($i++ % 100 == 0) { open(F, ">runs"); close F; exit if -e "stop" || time > $late } }'`)
	runs := func() bool {
		_ = os.Remove(filepath.Join(base, "runs"))
		time.Sleep(50 * time.Millisecond) // many generations
		_, err := os.Stat(filepath.Join(base, "runs"))
		return err == nil
	}
	for !runs() {
		continue
	}
	s.end()
	if runs() {
		t.Error("it runs on")
		must(t, os.WriteFile(filepath.Join(base, "stop"), nil, 0o600))
	}
}
