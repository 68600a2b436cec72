package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

func newPs() *cobra.Command {
	var where ask.Flags
	var asJSON, running bool
	c := &cobra.Command{
		Use:   "ps [SESSION]",
		Short: "List the processes of sessions",
		Long: `List the processes of a session, or of all your sessions, on all nodes or on those
that --node names: first those that run, then those that have ended, with their exit
status or the signal that ended them. "lost" has ended and its exit status is unknown;
"joined" was started from a shell, and "left" is such a one that is gone. PID is
the logical pid, which is unique in the cluster. On a terminal that is narrower than the
table, commands are shortened and some columns are left out; --json has everything.
` + sessionStatus,
		Example: `  vmmc ps
  vmmc ps --running test
  vmmc ps --json --node n1 test`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return where.Within(c.Context(), timeout.Control, func(ctx context.Context, a *ask.Cluster) error {
				rows, errs := a.Processes(ctx, args, running)
				slices.SortStableFunc(rows, func(p, q ask.Process) int { return cmp.Compare(over(p), over(q)) })
				if err := printProcesses(c.OutOrStdout(), columns(c), rows, asJSON); err != nil {
					return err
				}
				return ask.Failure("list processes", errs)
			})
		},
	}
	where.Add(c)
	c.ValidArgsFunction = where.OneSession(cobra.NoFileCompletions)
	c.Flags().BoolVar(&running, "running", false, "only those that run")
	jsonFlag(c, &asJSON)
	return c
}

// over is what processes that have ended are listed behind others by.
func over(p ask.Process) int {
	if p.Ended != nil {
		return 1
	}
	return 0
}

func printProcesses(w io.Writer, width int, list []ask.Process, asJSON bool) error {
	if asJSON {
		return printJSON(w, struct {
			Processes []ask.Process `json:"processes"`
		}{list})
	}
	rows := [][]string{{"NODE", "SESSION", "PID", "REALPID", "GROUP", "STATE", "STATUS", "BEGUN", "COMMAND"}}
	lost := slices.ContainsFunc(list, func(p ask.Process) bool { return p.Missing > 0 })
	if lost {
		rows[0] = append(rows[0], "OUTPUT NOT KEPT")
	}
	num := func(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
	for _, p := range list {
		status := ""
		switch {
		case p.Status != nil:
			status = strconv.Itoa(*p.Status)
		case p.Signal != 0:
			status = syscall.Signal(p.Signal).String()
		}
		rows = append(rows, []string{p.Node, p.Session, num(p.PID), num(p.RealPID), num(p.Group), p.State, status, when(p.Begun), p.Command})
		if p.Missing > 0 {
			rows[len(rows)-1] = append(rows[len(rows)-1], fmt.Sprintf("%d bytes of %d: %s", p.Missing, p.Output, p.Why))
		}
	}
	f := fit{spare: []string{"REALPID", "GROUP", "BEGUN"}, shorten: []string{"COMMAND"}}
	if lost {
		f.remarks = 3
	}
	return printFitting(w, rows, width, f)
}
