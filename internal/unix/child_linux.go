package unix

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	sys "golang.org/x/sys/unix"
)

// Child is a started program, which leads a process group of its own.
type Child struct {
	p     *os.Process
	pid   int      // p's, which Release forgets
	watch *os.File // its pidfd, closed by Reap; nil where the kernel has none

	program Program
	report  *os.File // the spawn helper's, closed by Begun; nil: there is no helper
	steps   []string // of the helper

	mu     sync.Mutex
	reaped bool // its number may be another's now
}

// starting has room for as many programs as may be started at once. Without a starter each takes a
// thread to itself until the spawn helper's first instruction: all together take no more than a
// process keeps idle (see [Threads]).
var starting = make(chan struct{}, 8)

// Start returns when the program's first instruction is about to run, or with the reason why it
// never will. When ctx ends before, the program is killed.
func Start(ctx context.Context, p Program) (*Child, error) {
	c, err := Begin(p)
	if err != nil {
		return nil, err
	}
	if err := c.Begun(ctx); err != nil {
		c.Signal(syscall.SIGKILL)
		if ctx.Err() != nil {
			go c.Reap() // the kernel may be waiting for a file server
		} else {
			c.Reap()
		}
		return nil, err
	}
	return c, nil
}

// Begin starts a child that becomes the program. It depends on no file but this process's own, and
// on no other process: it is quick. [Child.Begun] says what has become of the program, and must be
// called.
func Begin(p Program) (*Child, error) {
	files := append(append(make([]*os.File, 0, len(p.Files)+len(p.Extra)+3), p.Files[:]...), p.Extra...)
	if !canHelp {
		return begin(p, nil, &launch{files: files})
	}
	report, said, err := OutputPipe()
	if err != nil {
		return nil, err
	}
	defer said.Close()
	l, err := prepare(p, append(files, said))
	if err != nil {
		_ = report.Close()
		return nil, err
	}
	defer l.close()
	c, err := begin(p, report, l)
	if err != nil {
		_ = report.Close()
	}
	return c, err
}

func begin(p Program, report *os.File, l *launch) (*Child, error) {
	attr := &os.ProcAttr{
		Env: p.Env, Files: l.files,
		Sys: &syscall.SysProcAttr{Setpgid: !p.Apart && !p.Seat, Setsid: p.Apart || p.Seat, Setctty: p.Seat},
	}
	var raised []int
	path, args := p.Path, p.Args
	if l.image != nil {
		path = l.path()
		if p.As != nil && os.Geteuid() != 0 {
			raised = []int{sys.CAP_SETUID, sys.CAP_SETGID} // until it is that user
		}
	} else if err := p.direct(attr); err != nil {
		return nil, err
	}
	starting <- struct{}{}
	defer func() { <-starting }()
	proc, pidfd, err := startProcess(path, args, attr, raised)
	runtime.KeepAlive(l)
	if err != nil {
		return nil, err
	}
	c := &Child{p: proc, pid: proc.Pid, program: p, report: report, steps: l.steps}
	if pidfd >= 0 {
		// Non-blocking, so that the runtime's poller takes it and a child that is
		// waited for costs no thread.
		_ = sys.SetNonblock(pidfd, true)
		c.watch = os.NewFile(uintptr(pidfd), "pidfd")
	}
	return c, nil
}

// startProcess is os.StartProcess, by the starter if there is one, of a program that inherits caps.
// pidfd is -1 where the kernel has none.
func startProcess(
	path string, args []string, attr *os.ProcAttr, caps []int,
) (p *os.Process, pidfd int, err error) {
	if s := programStarter.Load(); s != nil && canHelp {
		sys := *attr.Sys
		own := &syscall.ProcAttr{Dir: attr.Dir, Env: attr.Env, Sys: &sys}
		pid, pidfd, err := s.start(path, args, own, attr.Files, caps)
		if err != nil {
			return nil, -1, &os.PathError{Op: "fork/exec", Path: path, Err: err}
		}
		p, err = os.FindProcess(pid) // it has not been waited for
		return p, pidfd, err
	}
	giveBack, err := lendRights(caps)
	if err != nil {
		return nil, -1, err
	}
	defer giveBack()
	pidfd = -1
	attr.Sys.PidFD = &pidfd
	p, err = os.StartProcess(path, args, attr)
	return p, pidfd, err
}

// Begun waits until the program's first instruction is about to run, or returns why it never will,
// or that ctx has ended: then the child is still there. A child that is killed before counts as a
// program that has begun. Begun is called once.
func (c *Child) Begun(ctx context.Context) error {
	if c.report == nil {
		return nil
	}
	defer c.report.Close()
	defer context.AfterFunc(ctx, func() { _ = c.report.SetReadDeadline(time.Unix(1, 0)) })()
	var b [reportSize]byte
	_, err := io.ReadFull(c.report, b[:])
	switch {
	case err == nil:
		return failure(b[:], c.program, c.steps)
	case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return nil // exec has closed the pipe
}

// PID is the kernel's number of the program.
func (c *Child) PID() int { return c.pid }

// Await returns when the program has ended. Until Reap the kernel gives its number, and with
// it its group's, to no other process.
func (c *Child) Await() {
	if c.watch != nil {
		if rc, err := c.watch.SyscallConn(); err == nil && rc.Read(ended) == nil {
			return
		}
	}
	AwaitEnd(c.pid)
}

// AwaitEnd returns when a child of this process has ended. It does not reap the child.
func AwaitEnd(pid int) {
	for sys.Waitid(sys.P_PID, pid, nil, sys.WEXITED|sys.WNOWAIT, nil) == sys.EINTR {
		continue
	}
}

// ended reports whether the program of a pidfd has.
func ended(fd uintptr) bool {
	p := []sys.PollFd{{Fd: int32(fd), Events: sys.POLLIN}}
	n, err := sys.Poll(p, 0)
	return err == nil && n > 0
}

// Signal sends a signal to all processes of the program's group, also when the
// program itself has ended.
func (c *Child) Signal(s syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reaped {
		_ = sys.Kill(-c.pid, s)
	}
}

// Reap waits for the end, gives the program's number back and says how it ended.
func (c *Child) Reap() string {
	c.Await()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reaped = true
	if c.watch != nil {
		_ = c.watch.Close()
	}
	state, err := c.p.Wait()
	if err != nil {
		return err.Error() // another caller has waited for it
	}
	return state.String()
}

// AwaitOr is Await that returns false when stop is closed first.
func (c *Child) AwaitOr(stop <-chan struct{}) bool {
	if c.watch == nil {
		over := make(chan struct{})
		go func() { // lasts as long as the program; kernels since 5.3 need none
			c.Await()
			close(over)
		}()
		select {
		case <-over:
			return true
		case <-stop:
			return false
		}
	}
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-stop:
			_ = c.watch.SetReadDeadline(time.Unix(1, 0))
		case <-over:
		}
	}()
	rc, err := c.watch.SyscallConn()
	return err == nil && rc.Read(ended) == nil
}

// Release gives a program up: c can neither signal it nor wait for it any more.
// Another part of the program, or another process, reaps it.
func (c *Child) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reaped = true
	if c.watch != nil {
		_ = c.watch.Close()
	}
	_ = c.p.Release()
}
