package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/local"
)

// Child is the hidden command in which the tool runs itself.
const Child = "demo-child"

// family is the processes that the demo started. Each holds the read end of a
// pipe whose other end is here: the kernel closes it however the demo ends, and
// then they end too.
type family struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc
	log      io.Writer
	children []*child
	nodes    []*child
}

type child struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	killed atomic.Bool   // on purpose
	ended  chan struct{} // closed when it has ended, with err
	err    error
}

func newFamily(ctx context.Context, log io.Writer) *family {
	f := &family{log: log}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	return f
}

// start runs this executable with args. A child that fails ends the family's
// context: whoever waits for a word that it would have stored waits no longer.
func (f *family) start(extra []*os.File, args ...string) (*child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(f.ctx, exe, args...)
	cmd.Stderr, cmd.ExtraFiles = f.log, extra
	cmd.WaitDelay = time.Second
	ownGroup(cmd) // Ctrl-C is for the demo, which ends the others in order
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
	c := &child{cmd: cmd, in: in, out: bufio.NewReader(out), ended: make(chan struct{})}
	f.children = append(f.children, c)
	go func() {
		c.err = cmd.Wait()
		if c.err != nil && !c.killed.Load() {
			f.cancel(fmt.Errorf("a process of the demo (%s) ended: %w", strings.Join(args[:min(2, len(args))], " "), c.err))
		}
		close(c.ended)
	}()
	return c, nil
}

// node starts a node; its standard input is the pipe it ends with.
func (f *family) node(args []string) error {
	c, err := f.start(nil, append([]string{"vmmcd", "--log-level", "warn", "--parent-pipe", "0"}, args...)...)
	if err == nil {
		f.nodes = append(f.nodes, c)
	}
	return err
}

// answers waits until a node does.
func (f *family) answers(socket string) error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		c, err := local.Dial(f.ctx, socket)
		if err == nil {
			return c.Close()
		}
		if f.ctx.Err() != nil {
			return context.Cause(f.ctx)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("a node of the demo does not come up: %w", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// peer starts a process in a role on a node and gives its logical pid.
func (f *family) peer(role, socket string, args ...string) (*child, vmmc.PID, error) {
	c, err := f.start(nil, append([]string{Child, role, socket}, args...)...)
	if err != nil {
		return nil, 0, err
	}
	line, err := c.out.ReadString('\n')
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("process %q of the demo ended early", role), c.wait())
	}
	pid, err := strconv.ParseUint(strings.TrimSpace(line), 10, 32)
	return c, vmmc.PID(pid), err
}

func (c *child) signalKill() {
	c.killed.Store(true)
	_ = c.cmd.Process.Kill()
}

func (c *child) kill() {
	c.signalKill()
	_ = c.wait()
}

func (c *child) wait() error {
	<-c.ended
	return c.err
}

// finish waits for a child that ends by itself.
func (c *child) finish() error {
	if err := c.wait(); err != nil {
		return fmt.Errorf("a process of the demo failed: %w", err)
	}
	return nil
}

// end lets all go: their pipes close, and what does not end by itself is killed.
func (f *family) end() {
	defer f.cancel(nil)
	for _, c := range f.children {
		c.killed.Store(true)
		_ = c.in.Close()
		t := time.AfterFunc(3*time.Second, c.signalKill)
		_ = c.wait()
		t.Stop()
	}
}
