package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"syscall"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/supervise"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// order is what a program is started with, and for whom.
type order struct {
	parent  local.ProcessID
	session string
	who     account
	in      *session // nil: the session is a name that programs share, and no more
	group   uint32   // run group, in a session; 0: a new one
	search  bool     // see supervise.Order, as the next two
	input   bool
	seat    *supervise.Terminal
	name    []byte // argument 0, in a session; empty: the path
	follow  bool
	env     [][]byte // beside what the node sets
	local.SpawnRequest
}

// child is a program that this node started. Its logical pid is given out before
// it joins; by the token in its environment it is known when it does.
type child struct {
	order
	pid     uint32
	token   string
	started chan error    // whether it was; has room for the answer
	joined  chan struct{} // closed when it did
	ended   chan struct{} // closed when it has, or never was started

	// With the node's mu.
	proc     *unix.Child // nil until there is a child
	begun    bool        // it has executed the program
	real     int         // the kernel's pid of who joined
	unwanted bool        // who asked for it has given up
}

func newChild(o order) *child {
	return &child{
		order: o, token: rand.Text(),
		started: make(chan error, 1), joined: make(chan struct{}), ended: make(chan struct{}),
	}
}

// run starts a child and stays with it to its end.
func (n *Node) run(c *child) {
	defer close(c.ended)
	defer n.forget(c)
	proc, err := n.begin(c)
	if err != nil {
		c.started <- n.explain(c, err)
		return
	}
	n.mu.Lock()
	c.proc = proc
	late := c.unwanted || n.closed
	n.mu.Unlock()
	if late {
		proc.Signal(syscall.SIGKILL)
	}
	if err := n.awaitExec(proc); err != nil {
		proc.Signal(syscall.SIGKILL)
		c.started <- n.explain(c, err)
		n.reap(c, proc)
		return
	}
	n.mu.Lock()
	c.begun = true
	n.children.began()
	n.mu.Unlock()
	n.log.Info("program started", "pid", c.pid, "realpid", proc.PID(), "user", c.who.name, "session", c.session, "path", string(c.Path), "parent", c.parent.String())
	c.started <- nil
	if how, ended := n.reap(c, proc); ended {
		n.log.Info("program ended", "pid", c.pid, "realpid", proc.PID(), "how", how)
	}
}

// awaitExec waits until a child has executed its program.
func (n *Node) awaitExec(proc *unix.Child) error {
	ctx, stop := context.WithTimeoutCause(n.ctx, timeout.Exec, supervise.ErrSlowExec)
	defer stop()
	return proc.Begun(ctx)
}

// reap waits for a child's end. A closed node does not wait for a child that cannot be killed, because the
// kernel waits for a file server: then ended is false.
func (n *Node) reap(c *child, proc *unix.Child) (how string, ended bool) {
	if !proc.AwaitOr(n.abandon) {
		proc.Release()
		n.log.Warn("a program cannot be killed and is left behind", "pid", c.pid, "realpid", proc.PID(), "path", string(c.Path))
		return "", false
	}
	n.mu.Lock()
	closed := n.closed
	n.mu.Unlock()
	if closed { // nobody would end what it leaves running
		proc.Signal(syscall.SIGKILL)
	}
	return proc.Reap(), true
}

func (n *Node) begin(c *child) (*unix.Child, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	env, err := n.environ(c)
	if err != nil {
		return nil, err
	}
	args := []string{string(c.Path)}
	for _, a := range c.Args {
		args = append(args, string(a))
	}
	return unix.Begin(unix.Program{
		Path: string(c.Path), Args: args, Env: env, Dir: string(c.Directory),
		As: c.who.as, Files: [3]*os.File{null, null, null},
	})
}

// explain gives the kernel's reason a code, and says what may be meant by it.
func (n *Node) explain(c *child, err error) error {
	k, hint := code.BadArg, ""
	directory := unix.EntersDirectory(err)
	switch {
	case errors.Is(err, supervise.ErrSlowExec):
		k = code.Timeout
	case directory && errors.Is(err, syscall.ENOENT):
		return code.New(code.BadArg, "node %q has no directory %s, which is the caller's working directory", n.cfg.Name, c.Directory)
	case directory && errors.Is(err, syscall.EACCES):
		hint = ": the user may not enter the directory"
	case errors.Is(err, syscall.ENOENT):
		hint = ": there is no such program there; of a script, there may be no such interpreter"
	case errors.Is(err, syscall.EACCES):
		hint = ": the user may not execute the program"
	case errors.Is(err, syscall.ENOEXEC):
		hint = ": it is no program for this machine; a script begins with #!"
	case errors.Is(err, syscall.EPERM):
		k, hint = code.NoRights, ": the daemon may not start programs as this user"
	}
	if h, is := unix.Scarce(err); is {
		k, hint = code.NoMem, h
	}
	var why syscall.Errno
	if errors.As(err, &why) { // the rest repeats the path
		err = why
	}
	return code.New(k, "start %s in %s on node %q as user %q: %v%s", c.Path, c.Directory, n.cfg.Name, c.who.name, err, hint)
}
