package vmmctest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

// Role names what a child of [Child] does: f gets a Process that has joined the child's node, and
// the arguments. What f prints the test reads with [Proc.Line]; an error of f is printed, and ends
// the child with status 1. Call Role in an init function, or in TestMain before [Main].
//
// Experimental: it may change in any release.
func Role(name string, f func(ctx context.Context, p *vmmc.Process, args ...string) error) {
	testutil.RegisterRole(name, func() int {
		ctx := context.Background()
		p, err := vmmc.Open(ctx)
		if err == nil {
			fmt.Println(p.PID())
			err = f(ctx, p, testutil.Args()...)
			_ = p.Close()
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "vmmctest: role %q: %v\n", name, err)
			return 1
		}
		return 0
	})
}

// Proc is a child of a test: a process of its own, which runs a role.
//
// Experimental: it may change in any release.
type Proc struct {
	t     testing.TB
	what  string
	id    vmmc.ProcessID
	cmd   *exec.Cmd
	done  chan struct{} // Closed when it has ended and err is set.
	err   error
	known atomic.Bool // The test has ended it, or knows how it ended.

	read  chan struct{} // Closed when all lines are in lines.
	mu    sync.Mutex
	lines []string      // Printed, and not taken by Line. Guarded by mu.
	more  chan struct{} // Closed and replaced when there is another line. Guarded by mu.
}

// Child starts a process that runs a role on a node, and returns when it has joined the node. It is
// killed when the test ends.
//
// Experimental: it may change in any release.
func Child(t testing.TB, on *Node, role string, args ...string) *Proc {
	t.Helper()
	p := &Proc{
		t: t, what: fmt.Sprintf("child %q on node %s", role, on.name), cmd: testutil.Command(t, role, args...),
		done: make(chan struct{}), read: make(chan struct{}), more: make(chan struct{}),
	}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatalf("vmmctest: start %s: %v", p.what, err)
	}
	p.cmd.Env = append(p.cmd.Env, on.Environ()...)
	p.cmd.Stdout, p.cmd.Stderr = in, os.Stderr
	err = p.cmd.Start()
	_ = in.Close()
	if err != nil {
		_ = out.Close()
		t.Fatalf("vmmctest: start %s: %v", p.what, err)
	}
	go p.collect(out)
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.Kill()
		_ = out.Close() // a program that the child started may have the other end
		<-p.read
	})
	var pid vmmc.PID
	if _, err := fmt.Sscan(p.Line(), &pid); err != nil {
		t.Fatalf("vmmctest: %s: the role printed before its function ran: %v", p.what, err)
	}
	p.id = vmmc.ProcessID{Node: on.id, PID: pid}
	return p
}

// collect reads what the child prints, and closes out at its end: a test may start thousands of
// children.
func (p *Proc) collect(out io.ReadCloser) {
	defer close(p.read)
	defer out.Close()
	for r := bufio.NewReader(out); ; {
		s, err := r.ReadString('\n')
		if s != "" {
			p.mu.Lock()
			p.lines = append(p.lines, strings.TrimSuffix(strings.TrimSuffix(s, "\n"), "\r"))
			close(p.more)
			p.more = make(chan struct{})
			p.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// next takes the next line. Without one it returns the channel that tells of it.
func (p *Proc) next() (s string, ok bool, more <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.lines) == 0 {
		return "", false, p.more
	}
	s, p.lines = p.lines[0], p.lines[1:]
	return s, true, nil
}

// ID is the child's process.
//
// Experimental: it may change in any release.
func (p *Proc) ID() vmmc.ProcessID { return p.id }

// Line waits for the next line that the child prints, and fails the test if the child ends before.
//
// Experimental: it may change in any release.
func (p *Proc) Line() string {
	p.t.Helper()
	late := time.After(bound)
	for all := false; ; {
		s, ok, more := p.next()
		if ok {
			return s
		}
		over := p.read
		if all {
			over = p.done
		}
		select {
		case <-more:
		case <-over:
			if all {
				p.known.Store(true)
				p.t.Fatalf("vmmctest: %s printed no further line and ended: %v", p.what, status(p.err))
			}
			all = true
		case <-late:
			p.t.Fatalf("vmmctest: %s printed no further line within %v", p.what, bound)
		}
	}
}

// status is how a process ended.
func status(err error) string {
	if err == nil {
		return "status 0"
	}
	return err.Error()
}

// Wait waits until the child has ended by itself, and returns nil if its role did.
//
// Experimental: it may change in any release.
func (p *Proc) Wait() error {
	p.t.Helper()
	select {
	case <-p.done:
		p.known.Store(true)
	case <-time.After(bound):
		p.t.Fatalf("vmmctest: %s has not ended within %v", p.what, bound)
	}
	return p.err
}

// Kill ends the child at once, as kill -9 does, and returns when it has ended. The test fails if
// the child had ended by itself with an error, unless the test has waited for it.
//
// Experimental: it may change in any release.
func (p *Proc) Kill() {
	p.t.Helper()
	_ = p.cmd.Process.Kill() // fails if it has ended
	<-p.done
	ws, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if killed := ws.Signaled() && ws.Signal() == syscall.SIGKILL; p.err != nil &&
		!p.known.Load() && !killed {
		p.t.Errorf("vmmctest: %s ended by itself: %v", p.what, p.err)
	}
	p.known.Store(true)
}

// Stop stops the child where it is, as a debugger does, until [Proc.Continue]. It returns when none
// of the child's threads runs.
//
// Experimental: it may change in any release.
func (p *Proc) Stop() {
	p.t.Helper()
	p.signal(stopSignal)
	late := time.After(bound)
	for !stopped(p.cmd.Process.Pid) {
		select {
		case <-p.done:
			p.t.Fatalf("vmmctest: stop %s: it has ended: %s", p.what, status(p.err))
		case <-late:
			p.t.Fatalf("vmmctest: stop %s: a thread of it has not stopped within %v", p.what, bound)
		case <-time.After(time.Millisecond):
		}
	}
}

// Continue lets a stopped child go on.
//
// Experimental: it may change in any release.
func (p *Proc) Continue() {
	p.t.Helper()
	p.signal(continueSignal)
}

func (p *Proc) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("vmmctest: signal %v to %s: %v", s, p.what, err)
	}
}
