package main

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/serve"
)

// stoppedStatus is the exit status of a command that goes on until it is stopped,
// and was.
const stoppedStatus = 130

func newLogs() *cobra.Command {
	var where ask.Flags
	var follow bool
	var system systemLogFlags
	c := &cobra.Command{
		Use:   "logs [flags] SESSION [PID] | --system NODE server|driver",
		Short: "Print what processes of a session have printed, or a node's own logs",
		Long: `Print the output of the process with the logical pid as it is. Without a pid, print
that of all processes of the session, with [NODE.PID] before each line. With
--follow go on until they have ended, or SIGINT or SIGTERM: then the exit status is
130.

With --system, print what the node itself has logged: server has what concerns
sessions and processes, driver links, other nodes and the network. Only
administrators of the node may: root, the user that its daemon runs as, and those
whom "vmmcd --admin" names. With --follow go on until interrupted.
` + sessionStatus,
		Example: `  vmmc logs test 1000123
  vmmc logs -f test
  vmmc logs --system node1 -f -n 20 server`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			if system.node != "" {
				return system.print(ctx, &where, c.OutOrStdout(), args, follow)
			}
			if system.lines.set {
				return serve.Usage("--lines is for --system")
			}
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
				err = allLogs(ctx, a, c.OutOrStdout(), args[0], follow)
			} else {
				var n *ask.Node
				if n, err = a.Having(ctx, args[0], pid); err == nil {
					err = n.CopyLog(ctx, c.OutOrStdout(), args[0], pid, follow)
				}
			}
			if ctx.Err() != nil { // who has asked for that knows it
				return &serve.StatusError{Status: stoppedStatus}
			}
			return err
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the end of the processes")
	where.Add(c)
	system.add(c)
	c.ValidArgsFunction = system.orElse(where.OneSession(where.PIDs(false)))
	return c
}

// allLogs prints those of all processes that the session has now: one after the
// other, or with follow as they come.
func allLogs(ctx context.Context, a *ask.Cluster, w io.Writer, session string, follow bool) error {
	rows, errs := a.Processes(ctx, []string{session}, false)
	var mu, emu sync.Mutex
	var all sync.WaitGroup
	for _, p := range rows {
		if p.State == "joined" || p.State == "left" {
			continue // its output is not kept
		}
		n, err := a.Find([]string{p.Node})
		if err != nil {
			return err
		}
		show := func() {
			l := &lines{mu: &mu, w: w, name: fmt.Sprintf("%s.%d", p.Node, p.PID)}
			err := n[0].CopyLog(ctx, l, session, p.PID, follow)
			if ferr := l.flush(); err == nil {
				err = ferr
			}
			emu.Lock()
			defer emu.Unlock()
			errs = append(errs, err)
		}
		if follow {
			all.Go(show)
		} else {
			show()
		}
	}
	all.Wait()
	return ask.Failure(fmt.Sprintf("print the output of session %q", session), errs)
}
