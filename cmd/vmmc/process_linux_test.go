package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// headlessEnv makes the test binary a process whose first thread ends while the
// others go on.
const headlessEnv = "VMMC_TEST_HEADLESS"

func init() {
	if os.Getenv(headlessEnv) == "" {
		return
	}
	runtime.LockOSThread() // init runs on the first thread
	begun := make(chan struct{})
	go func() {
		close(begun)
		time.Sleep(time.Hour)
	}()
	<-begun
	_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0) // of the thread alone
}

// listedDead reports whether the kernel lists a process as one that has ended.
func listedDead(t *testing.T, pid int) bool {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(b, []byte(") Z "))
}

// The kernel lists such a process as dead. It has its sockets still.
func TestProcessWithoutItsFirstThreadIsAlive(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), headlessEnv+"=1")
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
	for deadline := time.Now().Add(patience); !listedDead(t, p.PID); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v does not lose its first thread", p)
		}
	}
	if !p.alive() {
		t.Errorf("%+v counts as dead while its threads go on", p)
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if !gone([]process{p}, patience) {
		t.Errorf("%+v was killed and counts as alive", p)
	}
}
