package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/serve"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

func parsePID(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n == 0 {
		return 0, serve.Usage("pid %q: wanted a logical pid, as \"vmmc ps\" lists them", s)
	}
	return uint32(n), nil
}

func newKill() *cobra.Command {
	var where ask.Flags
	var name string
	c := &cobra.Command{
		Use:   "kill [flags] SESSION [PID]",
		Short: "Signal a process of a session, or all of them",
		Long: `Send a signal to the process with the logical pid, and to what it has started in
its process group; without a pid, to all processes of the session. The session
stays.
` + sessionStatus,
		Example: `  vmmc kill test 1000123
  vmmc kill --signal KILL test`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			r := &nodev1.KillRequest{Session: args[0]}
			n, err := parseSignal(name)
			if err != nil {
				return err
			}
			r.Signal = int32(n)
			if len(args) == 2 {
				if r.Pid, err = parsePID(args[1]); err != nil {
					return err
				}
			}
			return where.Within(c.Context(), timeout.Control, func(ctx context.Context, a *ask.Cluster) error {
				return a.Kill(ctx, r)
			})
		},
	}
	c.Flags().StringVarP(&name, "signal", "s", "TERM", "`signal` to send, by name or number")
	where.Add(c)
	offer(c, "signal", signalNames)
	c.ValidArgsFunction = where.OneSession(where.PIDs(true))
	return c
}
