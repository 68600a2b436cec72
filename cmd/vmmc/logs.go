package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/serve"
)

// stoppedStatus is the exit status of a command that goes on until it is stopped,
// and was.
const stoppedStatus = 130

func newLogs() *cobra.Command {
	var where ask.Flags
	o := logOptions{tail: tailFlag{-1}}
	var system systemLogFlags
	c := &cobra.Command{
		Use:   "logs [flags] SESSION [PID] | --system NODE server|driver",
		Short: "Print what processes of a session have printed, or a node's own logs",
		Long: `Print the output of the process with the logical pid as it is. Without a pid, print
that of all processes of the session, with [NODE.PID] before each line. What went to
standard error is printed there. With --follow go on until the process has ended, and
without a pid, also with those that begin later, until the session is deleted; or until
SIGINT or SIGTERM: then the exit status is 130. Output that is lost is said, and the
exit status is 1 then.

With --system, print what the node itself has logged: server has what concerns
sessions and processes, driver links, other nodes and the network. Only
administrators of the node may: root, the user that its daemon runs as, and those
whom "vmmcd --admin" names. With --follow go on until interrupted.
` + sessionStatus,
		Example: `  vmmc logs test 1000123
  vmmc logs --tail 20 --timestamps test
  vmmc logs -f test
  vmmc logs --system node1 -f -n 20 server`,
		Args: func(c *cobra.Command, args []string) error {
			if system.node != "" {
				return system.check(args)
			}
			return cobra.RangeArgs(1, 2)(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			if system.node != "" {
				if o.tail.n >= 0 || o.stamps {
					return serve.Usage("--tail and --timestamps are for sessions: with --system it is --lines, and lines have their time")
				}
				return system.print(ctx, &where, c.OutOrStdout(), args, o.follow)
			}
			if system.lines.set {
				return serve.Usage("--lines is for --system")
			}
			o.out = newStreams(c.OutOrStdout(), c.ErrOrStderr())
			var pid uint32
			var err error
			if len(args) == 2 {
				if pid, err = parsePID(args[1]); err != nil {
					return err
				}
			}
			a, err := where.Open(ctx)
			if err != nil {
				return err
			}
			defer a.Close()
			if pid == 0 {
				err = o.all(ctx, a, args[0])
			} else {
				var n *ask.Node
				if n, err = a.Having(ctx, args[0], pid); err == nil {
					err = o.one(ctx, n, args[0], pid, "")
				}
			}
			if ctx.Err() != nil { // the user interrupted it and knows
				return &serve.StatusError{Status: stoppedStatus}
			}
			return err
		},
	}
	c.Flags().BoolVarP(&o.follow, "follow", "f", false, "go on: with a pid until its end, else until interrupted")
	c.Flags().VarP(&o.tail, "tail", "", "begin with the last so many `lines` of each process (default: all)")
	c.Flags().BoolVar(&o.stamps, "timestamps", false, "the time before each line, as its node has read it")
	where.Add(c)
	system.add(c)
	c.ValidArgsFunction = system.orElse(where.OneSession(where.PIDs(false)))
	return c
}

// logOptions are how processes' output is to be printed.
type logOptions struct {
	follow bool
	stamps bool
	tail   tailFlag
	out    *streams
}

// tailFlag is a number of lines, or all.
type tailFlag struct{ n int }

func (f *tailFlag) String() string {
	if f.n < 0 {
		return "all"
	}
	return strconv.Itoa(f.n)
}

func (f *tailFlag) Type() string { return "lines" }

func (f *tailFlag) Set(s string) error {
	if s == "all" {
		f.n = -1
		return nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return errors.New("wanted a number of lines, or all")
	}
	f.n = n
	return nil
}

// one prints that of one process; name, if it is not empty, stands before each line.
func (o *logOptions) one(
	ctx context.Context, n *ask.Node, session string, pid uint32, name string,
) error {
	to, flush := o.out.plain(), func() error { return nil }
	if name != "" || o.stamps {
		to, flush = o.out.lined(name, o.stamps)
	}
	lost, err := n.CopyLog(ctx, session, pid, ask.CopyOptions{Follow: o.follow, Tail: o.tail.n}, to)
	return errors.Join(err, flush(), lost.Error(n.Name, pid))
}

// lookForMore is how soon processes that have begun meanwhile are followed too.
const lookForMore = 250 * time.Millisecond

// all prints those of all processes that the session has: one after the other, or with follow as
// they come, also of those that begin later, until ctx or the session ends.
func (o *logOptions) all(ctx context.Context, a *ask.Cluster, session string) error {
	what := fmt.Sprintf("print the output of session %q", session)
	rows, errs := a.Processes(ctx, []string{session}, false)
	if !o.follow {
		for _, p := range rows {
			if !kept(p) {
				continue
			}
			n, err := a.Find([]string{p.Node})
			if err != nil {
				return err
			}
			errs = append(errs, o.one(ctx, n[0], session, p.PID, fmt.Sprintf("%s.%d", p.Node, p.PID)))
		}
		return ask.Failure(what, errs)
	}
	if err := ask.Failure(what, errs); err != nil && len(rows) == 0 {
		return err
	}
	var mu sync.Mutex
	var nodes sync.WaitGroup
	for _, n := range a.Chosen {
		nodes.Go(func() {
			err := o.node(ctx, n, session)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	nodes.Wait()
	return ask.Failure(what, errs)
}

// node follows the processes of a session on one node, until there is no such session.
func (o logOptions) node(ctx context.Context, n *ask.Node, session string) error {
	var mu sync.Mutex
	var errs []error
	var each sync.WaitGroup
	var err error
	for newcomers := n.Newcomers(session); err == nil; {
		var rows []ask.Process
		if rows, err = newcomers.Next(ctx); err != nil {
			break
		}
		for _, p := range rows {
			if !kept(p) {
				continue
			}
			from := o
			each.Go(func() {
				err := from.one(ctx, n, session, p.PID, fmt.Sprintf("%s.%d", n.Name, p.PID))
				if errors.Is(err, code.NoSuchSession) && ctx.Err() == nil {
					err = nil // it was deleted
				}
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			})
		}
		o.tail.n = -1 // what begins from now on is shown as a whole
		more := time.NewTimer(lookForMore)
		select {
		case <-more.C:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		more.Stop()
	}
	each.Wait()
	if errors.Is(err, code.NoSuchSession) {
		err = nil
	}
	return errors.Join(append(errs, err)...)
}

// kept reports whether a process's output is the session's.
func kept(p ask.Process) bool { return p.State != "joined" && p.State != "left" }
