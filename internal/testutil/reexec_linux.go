package testutil

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the child when the thread that started it ends. The Go runtime
// keeps its threads, except that of a goroutine which ends while locked to it: do not start a child
// from such a goroutine.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
