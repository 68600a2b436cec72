package daemon

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/supervise"
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
	proc     *unix.Child // nil until it is started
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
	proc, err := n.exec(c)
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
	n.log.Info("program started", "pid", c.pid, "realpid", proc.PID(), "user", c.who.name, "session", c.session, "path", string(c.Path), "parent", c.parent.String())
	c.started <- nil
	proc.Await()
	n.mu.Lock()
	closed := n.closed
	n.mu.Unlock()
	if closed { // nobody would end what it leaves running
		proc.Signal(syscall.SIGKILL)
	}
	n.log.Info("program ended", "pid", c.pid, "realpid", proc.PID(), "how", proc.Reap())
}

func (n *Node) exec(c *child) (*unix.Child, error) {
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
	return unix.Start(unix.Program{
		Path: string(c.Path), Args: args, Env: env, Dir: string(c.Directory),
		As: c.who.as, Files: [3]*os.File{null, null, null},
	})
}

// explain gives the kernel's reason a code, and says what may be meant by it.
func (n *Node) explain(c *child, err error) error {
	k, hint := code.BadArg, ""
	switch {
	case errors.Is(err, syscall.ENOENT):
		// The kernel has told the user that something is not there; which of the
		// two it is is no secret then.
		if _, serr := os.Stat(string(c.Directory)); errors.Is(serr, fs.ErrNotExist) {
			return code.New(code.BadArg, "node %q has no directory %s, which is the caller's working directory", n.cfg.Name, c.Directory)
		}
		hint = ": there is no such program there; of a script, there may be no such interpreter"
	case errors.Is(err, syscall.EACCES):
		hint = ": the user may not enter the directory, or not execute the program"
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
