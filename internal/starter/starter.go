// Package starter starts the child processes that programs spawn. Threads of Go have most signals blocked in
// a program in C, and a child would begin so. The C library starts children itself.
package starter

import (
	"os"
	"os/exec"
	"sync/atomic"
)

var start atomic.Pointer[func(path string, args, env []string, dir string) (pid int, err error)]

// Use has f start children. They have the standard output and error of this program.
func Use(f func(path string, args, env []string, dir string) (pid int, err error)) { start.Store(&f) }

// Start starts a command, as its own Start does. Its Wait waits for the child.
func Start(c *exec.Cmd) error {
	f := start.Load()
	if f == nil {
		return c.Start()
	}
	if c.Err != nil {
		return c.Err
	}
	pid, err := (*f)(c.Path, c.Args, c.Environ(), c.Dir)
	if err != nil {
		return &os.PathError{Op: "start", Path: c.Path, Err: err}
	}
	c.Process, err = os.FindProcess(pid)
	return err
}
