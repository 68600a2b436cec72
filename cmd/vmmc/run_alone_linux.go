package main

import (
	"os/exec"
	"syscall"
)

// endWithTool has the kernel kill a program when the thread that starts it ends, and so this tool.
func endWithTool(c *exec.Cmd, ownGroup bool) {
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: ownGroup}
}
