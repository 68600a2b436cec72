package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// startTime bounds how long new nodes have until all of them answer.
const startTime = 2 * timeout.Control

var errSlow = fmt.Errorf("not all nodes answer after %v", startTime)

// start runs the nodes and waits until all of them answer. What it has
// started is in s, also after an error.
func (s *clusterState) start(ctx context.Context) error {
	if runtime.GOOS != "linux" {
		return unix.ErrUnsupported
	}
	ctx, stop := context.WithTimeoutCause(ctx, startTime, errSlow)
	defer stop()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	// Until all nodes answer they die with this tool, however it dies: closing
	// leash, which the kernel does then, ends them. It is closed here in any case,
	// but after a success only once they were let go.
	hold, leash, err := os.Pipe()
	if err != nil {
		return err
	}
	defer hold.Close()
	defer leash.Close()
	for i := range s.Nodes {
		if err := s.startNode(ctx, &s.Nodes[i], hold, fail); err != nil {
			return fmt.Errorf("start node %q: %w", s.Nodes[i].Name, err)
		}
		// One by one, so that "down" can wait for their end.
		if err := s.write(); err != nil {
			return err
		}
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	if _, err := leash.Write(make([]byte, len(s.Nodes))); err != nil { // each reads one
		return fmt.Errorf("let the nodes go: %w", err)
	}
	return nil
}

// startNode runs this program again as vmmcd, in a session of its own so that
// it outlives this one's terminal. The node's early end is told to fail.
func (s *clusterState) startNode(ctx context.Context, n *nodeState, hold *os.File, fail context.CancelCauseFunc) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	log, err := os.OpenFile(n.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make its log: %w", err)
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	// With no other descriptor of this program's caller, who may wait until all have closed it.
	c, err := unix.Start(ctx, unix.Program{
		Path: exe, Args: append([]string{os.Args[0], "vmmcd", "--parent-pipe", "3"}, n.Args...), Env: env.All(),
		Dir:   "/", // holds no file system, nor a directory that is removed
		Files: [3]*os.File{null, log, log}, Extra: []*os.File{hold}, Apart: true,
	})
	if err != nil {
		return err
	}
	if n.Process, err = findProcess(c.PID()); err != nil {
		c.Signal(syscall.SIGKILL)
		c.Reap()
		return err
	}
	go func() { fail(ended(n, c.Reap())) }() // ends with the node or with this program
	return nil
}

// errPortTaken is why a node ended whose port another program was faster to bind.
var errPortTaken = errors.New("the port is taken")

// ended explains a node's early end by what it said last.
func ended(n *nodeState, how string) error {
	last := lastLine(n.Log)
	if strings.Contains(last, syscall.EADDRINUSE.Error()) {
		return fmt.Errorf("node %q ended: %w: %s", n.Name, errPortTaken, last)
	}
	return fmt.Errorf("node %q ended (%s): %s", n.Name, how, last)
}

// ready waits until the first node reaches all others. A node has its socket
// before it answers others, so that programs can use them all then.
func (s *clusterState) ready(ctx context.Context) error {
	for {
		err := reachesAll(ctx, s.Nodes[0].Socket)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, errSlow) {
				return cause // it knows better than err
			}
			return fmt.Errorf("%w: %w", errSlow, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func reachesAll(ctx context.Context, socket string) error {
	nodes, err := nodesAt(ctx, socket)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if n.State != stateUp {
			return fmt.Errorf("node %q is %s: %s", n.Name, n.State, n.Error)
		}
	}
	return nil
}

// lastLine is what a node said last, for an error.
func lastLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	b = bytes.TrimSpace(b)
	return string(b[bytes.LastIndexByte(b, '\n')+1:])
}
