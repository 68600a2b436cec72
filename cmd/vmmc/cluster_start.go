package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/serve"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// startTime bounds how long new nodes have until all of them answer.
const startTime = 2 * timeout.Control

var errSlow = fmt.Errorf("not all nodes answer after %v", startTime)

func newClusterStart() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "start [NODE...]",
		Short: "Start nodes of the cluster on this machine that have died",
		Long: `Start those nodes of the cluster on this machine that do not run, or those of them that
are named, and wait until they reach the others. Sessions, certificates and addresses
are as they were; processes that run come back to their node by themselves. A node
that runs is left alone.`,
		Example: `  vmmc cluster start
  vmmc cluster start n2
  vmmc cluster start --dir /tmp/lab`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			dir, err := clusterDir(dir)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return startAgain(ctx, c.OutOrStdout(), dir, args)
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			names := offeredNodes(dir, func(n *nodeState) bool { return !n.Process.alive() && !slices.Contains(args, n.Name) })
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
	clusterDirFlag(c, &dir)
	return c
}

// offeredNodes completes the names of a cluster's nodes.
func offeredNodes(dir string, want func(*nodeState) bool) (names []cobra.Completion) {
	dir, err := clusterDir(dir)
	if err != nil {
		return nil
	}
	s, err := readState(dir)
	if err != nil {
		return nil
	}
	for _, n := range s.all() {
		if want(n) {
			names = append(names, n.Name)
		}
	}
	return names
}

// startAgain starts the nodes that have died, or those of them that are named.
func startAgain(ctx context.Context, w io.Writer, dir string, named []string) error {
	if _, err := existing(dir); err != nil { // before the lock makes the directory
		return err
	}
	l, err := lockCluster(dir)
	if err != nil {
		return err
	}
	defer l.release()
	s, err := existing(dir)
	if err != nil {
		return err
	}
	nodes := s.all()
	if len(named) > 0 {
		if nodes, err = s.pick(named); err != nil {
			return err
		}
	}
	var dead []*nodeState
	for _, n := range nodes {
		if n.Process.alive() {
			if len(named) > 0 {
				fmt.Fprintf(w, "%s runs already\n", n.Name)
			}
			continue
		}
		dead = append(dead, n)
	}
	if len(dead) == 0 {
		if len(named) == 0 {
			fmt.Fprintf(w, "all %d nodes in %s run already\n", len(nodes), dir)
		}
		return nil
	}
	if err := s.start(ctx, dead); err != nil {
		return fmt.Errorf("start nodes of the cluster in %s: %w", dir, errors.Join(err, s.end(dead)))
	}
	printSockets(w, dead)
	return nil
}

// existing is the record of a cluster that is there, if not running.
func existing(dir string) (*clusterState, error) {
	s, err := readState(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("no cluster in %s: start one with \"vmmc cluster up\"", dir)
	}
	return s, err
}

// pick gives the nodes of these names, each once.
func (s *clusterState) pick(names []string) (nodes []*nodeState, err error) {
	for _, name := range names {
		i := slices.IndexFunc(s.Nodes, func(n nodeState) bool { return n.Name == hosts.Canonical(name) })
		if i < 0 {
			return nil, serve.Usage("no node %q in the cluster in %s", name, s.dir)
		}
		if n := &s.Nodes[i]; !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
	}
	return nodes, nil
}

// start runs nodes and waits until they answer and reach the others that run. What it has
// started is in s, also after an error.
func (s *clusterState) start(ctx context.Context, nodes []*nodeState) error {
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
	for _, n := range nodes {
		if err := s.startNode(ctx, n, hold, fail); err != nil {
			return fmt.Errorf("start node %q: %w", n.Name, err)
		}
		// One by one, so that "down" can wait for their end.
		if err := s.write(); err != nil {
			return err
		}
	}
	if err := s.ready(ctx, nodes[0]); err != nil {
		return err
	}
	if _, err := leash.Write(make([]byte, len(nodes))); err != nil { // each reads one
		return fmt.Errorf("let the nodes go: %w", err)
	}
	return nil
}

// startNode runs this program again as vmmcd, in a session of its own so that
// it outlives this one's terminal. The node's early end is told to fail.
func (s *clusterState) startNode(
	ctx context.Context, n *nodeState, hold *os.File, fail context.CancelCauseFunc,
) error {
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
	// With no other descriptor of this program's caller, which may wait until all have closed it.
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

// ready waits until a node reaches all others that run. A node has its socket
// before it answers others, so that programs can use them all then.
func (s *clusterState) ready(ctx context.Context, n *nodeState) error {
	for {
		err := reachesAll(ctx, n.Socket, s.running())
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

// reachesAll reports what keeps the node at socket from reaching these. One that an administrator
// has taken down answers, and stays down.
func reachesAll(ctx context.Context, socket string, names []string) error {
	nodes, err := nodesAt(ctx, socket)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if n.State != stateUp && n.State != stateDown && slices.Contains(names, n.Name) {
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
