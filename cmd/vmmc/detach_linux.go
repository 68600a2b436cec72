package main

import (
	"os/exec"
	"syscall"
)

// detach takes the command out of this program's session, and with it out of
// reach of the terminal's signals.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
