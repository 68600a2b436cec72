package main

import (
	"context"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

func newSessionLs() *cobra.Command {
	var where ask.Flags
	var asJSON bool
	c := &cobra.Command{
		Use:   "ls",
		Short: "List sessions",
		Long: `List your sessions on all nodes, or on those that --node names; root sees those of
all users. STATE is "supervised", "unsupervised" while no supervisor can be reached, or
"deleting". On a terminal that is narrower than the table, paths are shortened, some
columns are left out, and errors stand below; --json has everything.
` + sessionStatus,
		Example: `  vmmc session ls
  vmmc session ls --node n1 --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return where.Within(c.Context(), timeout.Control, func(ctx context.Context, a *ask.Cluster) error {
				list, errs := a.Sessions(ctx)
				if err := printSessions(c.OutOrStdout(), columns(c), list, asJSON); err != nil {
					return err
				}
				return ask.Failure("list sessions", errs)
			})
		},
	}
	where.Add(c)
	jsonFlag(c, &asJSON)
	return c
}

func printSessions(w io.Writer, width int, list []ask.Session, asJSON bool) error {
	if asJSON {
		return printJSON(w, struct {
			Sessions []ask.Session `json:"sessions"`
		}{list})
	}
	rows := [][]string{{"NODE", "SESSION", "USER", "DRIVE", "BASE", "OUTPUT", "PROCESSES", "STATE", "ERROR"}}
	for _, s := range list {
		rows = append(rows, []string{s.Node, s.Name, s.User, s.Drive, s.Base, s.Output, strconv.Itoa(s.Processes), s.State, s.Error})
	}
	return printFitting(w, rows, width, fit{remarks: 2, spare: []string{"STATE", "DRIVE", "USER"}, shorten: []string{"BASE", "OUTPUT"}})
}
