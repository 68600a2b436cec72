package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

func newSessionDel() *cobra.Command {
	var where ask.Flags
	c := &cobra.Command{
		Use:   "del [flags] SESSION",
		Short: "End all that runs in a session, and remove it",
		Long: `End all processes of a session, with all that they have started, and remove the
session, on all nodes that have it or on those that --node names. Its output
stays.
` + sessionStatus,
		Example: `  vmmc session del test
  vmmc session del --node n2 test`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return where.Within(c.Context(), 6*timeout.Stop, func(ctx context.Context, a *ask.Cluster) error {
				return a.DeleteSession(ctx, args[0], c.ErrOrStderr())
			})
		},
	}
	where.Add(c)
	c.ValidArgsFunction = where.OneSession(cobra.NoFileCompletions)
	return c
}
