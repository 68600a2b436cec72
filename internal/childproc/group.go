// Package childproc starts child processes of a command of the tool that end with it, however it
// ends.
package childproc

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// Group is a set of child processes. Each holds the read end of a pipe whose write end is in this
// process: the kernel closes it however this process ends, and then the children end too.
type Group struct {
	ctx      context.Context
	of       string // name of the command, for errors
	cancel   context.CancelCauseFunc
	log      io.Writer
	children []*Child
	nodes    []*Child
}

// Child is one child process. Out is its standard output.
type Child struct {
	Out    *bufio.Reader
	cmd    *exec.Cmd
	in     io.WriteCloser
	killed atomic.Bool   // on purpose
	ended  chan struct{} // closed when it has ended, with err
	err    error
}

// New returns an empty group for the named command; log gets the children's standard error.
func New(ctx context.Context, of string, log io.Writer) *Group {
	f := &Group{of: of, log: log}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	return f
}

// Context returns a context that ends when a child fails, with the reason as its cause.
func (f *Group) Context() context.Context { return f.ctx }

// Nodes returns the children that are nodes.
func (f *Group) Nodes() []*Child { return f.nodes }

// Start runs this executable with args. A child that fails ends the group's context, so that waits
// for words that it would have stored end.
func (f *Group) Start(extra []*os.File, args ...string) (*Child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(f.ctx, exe, args...)
	cmd.Stderr, cmd.ExtraFiles = f.log, extra
	cmd.WaitDelay = time.Second
	ownGroup(cmd) // Ctrl-C is for this process, which ends the others in order
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	c := &Child{cmd: cmd, in: in, Out: bufio.NewReader(out), ended: make(chan struct{})}
	f.children = append(f.children, c)
	go func() {
		c.err = cmd.Wait()
		if c.err != nil && !c.killed.Load() {
			f.cancel(fmt.Errorf("a process of the %s (%s) ended: %w", f.of, strings.Join(args[:min(2, len(args))], " "), c.err))
		}
		close(c.ended)
	}()
	return c, nil
}

// node starts a node; its standard input is the pipe it ends with.
func (f *Group) node(args []string) error {
	c, err := f.Start(nil, append([]string{"vmmcd", "--log-level", "warn", "--parent-pipe", "0"}, args...)...)
	if err == nil {
		f.nodes = append(f.nodes, c)
	}
	return err
}

// awaitAnswer waits until a node answers at socket.
func (f *Group) awaitAnswer(socket string) error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		c, err := nodeproto.Dial(f.ctx, socket)
		if err == nil {
			return c.Close()
		}
		if f.ctx.Err() != nil {
			return context.Cause(f.ctx)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("a node of the %s does not come up: %w", f.of, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// KillGroup kills the child and does not wait.
func (c *Child) KillGroup() {
	c.killed.Store(true)
	_ = c.cmd.Process.Kill()
}

// Kill kills it and waits for its end.
func (c *Child) Kill() {
	c.KillGroup()
	_ = c.Wait()
}

// Wait waits for its end.
func (c *Child) Wait() error {
	<-c.ended
	return c.err
}

// Finish waits for a child that ends by itself.
func (c *Child) Finish() error {
	if err := c.Wait(); err != nil {
		return fmt.Errorf("a process that was started failed: %w", err)
	}
	return nil
}

// End closes the children's pipes, and kills children that do not end by themselves.
func (f *Group) End() {
	defer f.cancel(nil)
	for _, c := range f.children {
		c.killed.Store(true)
		_ = c.in.Close()
		t := time.AfterFunc(3*time.Second, c.KillGroup)
		_ = c.Wait()
		t.Stop()
	}
}
