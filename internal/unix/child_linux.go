package unix

import (
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
	watch *os.File // its pidfd, closed by Reap; nil where the kernel has none

	mu     sync.Mutex
	reaped bool // its number may be another's now
}

// starting has room for as many programs as may be started at once. Each takes a thread to itself until its
// first instruction, which on a slow file server may take long: some are to wait for none, and all together
// for no more threads than a process keeps idle (see [Threads]).
var starting = make(chan struct{}, 8)

// Start returns when the program's first instruction is about to run, or with
// the reason why it never will.
func Start(p Program) (*Child, error) {
	pidfd := -1
	attr := &syscall.SysProcAttr{Setpgid: !p.Apart && !p.Seat, Setsid: p.Apart || p.Seat, Setctty: p.Seat, PidFD: &pidfd}
	if p.As != nil {
		attr.Credential = &syscall.Credential{Uid: p.As.UID, Gid: p.As.GID, Groups: p.As.Groups}
	}
	starting <- struct{}{}
	defer func() { <-starting }()
	// A daemon that may switch users without being root has the right to in its
	// ambient set, which a change from one user to another leaves alone.
	if err := keepRights(); err != nil {
		return nil, err
	}
	defer runtime.UnlockOSThread()
	proc, err := os.StartProcess(p.Path, p.Args, &os.ProcAttr{Dir: p.Dir, Env: p.Env, Files: append(p.Files[:], p.Extra...), Sys: attr})
	if err != nil {
		return nil, err
	}
	c := &Child{p: proc}
	if pidfd >= 0 {
		// Non-blocking, so that the runtime's poller takes it and a child that is
		// waited for costs no thread.
		_ = sys.SetNonblock(pidfd, true)
		c.watch = os.NewFile(uintptr(pidfd), "pidfd")
	}
	return c, nil
}

// PID is the kernel's number of the program.
func (c *Child) PID() int { return c.p.Pid }

// Await returns when the program has ended. Until Reap its number, and with it
// its group's, is nobody else's.
func (c *Child) Await() {
	if c.watch != nil {
		if rc, err := c.watch.SyscallConn(); err == nil && rc.Read(ended) == nil {
			return
		}
	}
	for sys.Waitid(sys.P_PID, c.p.Pid, nil, sys.WEXITED|sys.WNOWAIT, nil) == sys.EINTR {
		continue
	}
}

// ended says whether the program of a pidfd has.
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
		_ = sys.Kill(-c.p.Pid, s)
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
		return err.Error() // somebody else has waited for it
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

// Release gives a program up: nobody may signal it or wait for it by c any more.
// Who reaps it is another's affair.
func (c *Child) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reaped = true
	if c.watch != nil {
		_ = c.watch.Close()
	}
	_ = c.p.Release()
}
