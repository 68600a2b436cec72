package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/users"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/supervise"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// order describes a program to start, and its parent.
type order struct {
	parent     nodeproto.ProcessID
	session    string
	runAs      users.Account
	inSession  *session // nil: the session is a name that programs share, and no more
	group      uint32   // run group, in a session; 0: a new one
	search     bool     // see supervise.Order, as the next two
	input      bool
	terminal   *supervise.Terminal
	name       []byte // argument 0, in a session; empty: the path
	follow     bool
	env        [][]byte // beside what the node sets
	reserve    string   // a name that is kept for it, in a session; empty: none
	bound      bool     // see supervise.Order, as the next two
	processors []int
	turn       int
	nodeproto.SpawnRequest
}

// child is a program that this node started, or that a process starts itself (expect). Its logical
// pid is allocated before it joins; the token in its environment identifies it when it joins.
type child struct {
	order
	pid     uint32
	token   string
	started chan error    // the result of the start; buffered
	joined  chan struct{} // closed when it has joined
	ended   chan struct{} // closed when it has ended or was never started

	// Guarded by registry.mu.
	proc      *unix.Child // nil until there is a child
	executed  bool        // it has executed the program
	real      int         // the kernel's pid of the process that joined
	cancelled bool        // the caller has given up
}

func newChild(o order) *child {
	return &child{
		order: o, token: rand.Text(),
		started: make(chan error, 1), joined: make(chan struct{}), ended: make(chan struct{}),
	}
}

// run starts a child and waits for its end.
func (cs *children) run(c *child) {
	defer close(c.ended)
	defer cs.forget(c)
	proc, err := cs.exec(c)
	if err != nil {
		c.started <- cs.explain(c, err)
		return
	}
	cs.n.registry.mu.Lock()
	c.proc = proc
	late := c.cancelled || cs.n.isStopping()
	cs.n.registry.mu.Unlock()
	if late {
		proc.Signal(syscall.SIGKILL)
	}
	if err := cs.awaitExec(proc); err != nil {
		proc.Signal(syscall.SIGKILL)
		c.started <- cs.explain(c, err)
		cs.reap(c, proc)
		return
	}
	cs.n.registry.mu.Lock()
	c.executed = true
	cs.wakeStarters()
	cs.n.registry.mu.Unlock()
	cs.n.logs.Server.Info("program started", "pid", c.pid, "realpid", proc.PID(), "user", c.runAs.Name,
		"session", c.session, "path", string(c.Path), "parent", c.parent.String())
	c.started <- nil
	if how, ended := cs.reap(c, proc); ended {
		cs.n.logs.Server.Info("program ended", "pid", c.pid, "realpid", proc.PID(), "how", how)
	}
}

// awaitExec waits until a child has executed its program.
func (cs *children) awaitExec(proc *unix.Child) error {
	ctx, stop := context.WithTimeoutCause(cs.n.ctx, timeout.Exec, supervise.ErrSlowExec)
	defer stop()
	return proc.Begun(ctx)
}

// reap waits for a child's end. A closed node does not wait for a child that cannot be killed,
// because the kernel waits for a file server: then ended is false.
func (cs *children) reap(c *child, proc *unix.Child) (how string, ended bool) {
	if !proc.AwaitOr(cs.n.stopWaiting) {
		proc.Release()
		cs.n.logs.Server.Warn("a program cannot be killed and is left behind", "pid", c.pid, "realpid",
			proc.PID(), "path", string(c.Path))
		return "", false
	}
	if cs.n.isStopping() { // else its process group would run on after the node
		proc.Signal(syscall.SIGKILL)
	}
	return proc.Reap(), true
}

func (cs *children) exec(c *child) (*unix.Child, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	env, err := cs.environ(c)
	if err != nil {
		return nil, err
	}
	args := []string{string(c.Path)}
	for _, a := range c.Args {
		args = append(args, string(a))
	}
	return unix.Begin(unix.Program{
		Path: string(c.Path), Args: args, Env: env, Dir: string(c.Directory),
		As: c.runAs.As, Files: [3]*os.File{null, null, null},
	})
}

// explain gives the kernel's reason a code, and says what may be meant by it.
func (cs *children) explain(c *child, err error) error {
	k, hint := code.BadArg, ""
	directory := unix.EntersDirectory(err)
	switch {
	case errors.Is(err, supervise.ErrSlowExec):
		k = code.Timeout
	case directory && errors.Is(err, syscall.ENOENT):
		return code.New(code.BadArg,
			"node %q has no directory %s, which is the caller's working directory", cs.n.cfg.Name,
			c.Directory)
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
	return code.New(k, "start %s in %s on node %q as user %q: %v%s", c.Path, c.Directory,
		cs.n.cfg.Name, c.runAs.Name, err, hint)
}

// maxStarting bounds the children of one user that have not executed their program yet, also because
// the kernel waits for a file server and they cannot be killed.
const maxStarting = 64

// children are the programs that a node has started and that still run, and those that it expects.
type children struct {
	n *Node

	// Guarded by registry.mu.
	byPID     map[uint32]*child
	byToken   map[string]*child
	startDone chan struct{} // closed and replaced when one has begun, or never will
}

// start adds a child and runs it, when fewer than maxStarting of the user's are about to
// begin.
func (cs *children) start(ctx context.Context, c *child) error {
	for {
		cs.n.registry.mu.Lock()
		if cs.n.isStopping() {
			cs.n.registry.mu.Unlock()
			return code.New(code.Unreachable, "node %q is stopping", cs.n.cfg.Name)
		}
		if cs.countStarting(c.runAs.UID) < maxStarting {
			c.pid = cs.n.registry.freePID()
			err := cs.add(c)
			if err == nil {
				cs.n.wg.Go(func() { cs.run(c) })
			}
			cs.n.registry.mu.Unlock()
			return err
		}
		begun := cs.startDone
		cs.n.registry.mu.Unlock()
		select {
		case <-begun:
		case <-ctx.Done():
			return code.New(code.Timeout, "start %s on node %q: %d programs of user %q are about to "+
				"begin, and their files or directories do not answer (%v)", c.Path, cs.n.cfg.Name, maxStarting,
				c.runAs.Name, context.Cause(ctx))
		}
	}
}

// countStarting counts a user's children that have not executed their programs. registry.mu is
// held.
func (cs *children) countStarting(uid uint32) (n int) {
	for _, o := range cs.byPID {
		if o.runAs.UID == uid && o.inSession == nil && !o.executed {
			n++
		}
	}
	return n
}

// wakeStarters wakes the waiters in start. registry.mu is held.
func (cs *children) wakeStarters() {
	if cs.startDone == nil { // none was added yet
		return
	}
	close(cs.startDone)
	cs.startDone = make(chan struct{})
}

func (cs *children) add(c *child) error {
	if cs.byPID == nil {
		cs.byPID, cs.byToken, cs.startDone = map[uint32]*child{}, map[string]*child{}, make(chan struct{})
	}
	same := 0
	for _, o := range cs.byPID {
		if o.runAs.UID == c.runAs.UID {
			same++
		}
	}
	if same >= nodeproto.MaxSpawned {
		return code.New(code.NoMem,
			"user %q has %d spawned or expected programs on this node, which is the most: let some end",
			c.runAs.Name, same)
	}
	cs.byPID[c.pid], cs.byToken[c.token] = c, c
	return nil
}

// drop is forget of a child that nothing waits for yet. registry.mu is held.
func (cs *children) drop(c *child) {
	delete(cs.byPID, c.pid)
	delete(cs.byToken, c.token)
	cs.wakeStarters()
}

// forget ends a child's claim to its logical pid, and to the name that is kept for it.
func (cs *children) forget(c *child) {
	cs.n.registry.mu.Lock()
	cs.drop(c)
	cs.n.registry.mu.Unlock()
	cs.n.endReservation(c.pid, nil)
}

// end ends all programs, with all that they started in their process
// groups: first they are asked to. The node is closed, so no new ones come.
func (cs *children) end() {
	cs.n.registry.mu.Lock()
	var running []*child
	for _, c := range cs.byPID {
		if c.proc != nil { // else it is killed as soon as it is there
			running = append(running, c)
			c.proc.Signal(syscall.SIGTERM)
		}
	}
	cs.n.registry.mu.Unlock()
	late := time.NewTimer(timeout.Terminate)
	defer late.Stop()
	for i, c := range running {
		select {
		case <-c.ended:
		case <-late.C:
			for _, c := range running[i:] {
				c.proc.Signal(syscall.SIGKILL)
			}
			return // Close waits for them as for all else, but not for ever
		}
	}
}
