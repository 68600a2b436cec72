package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

func newSessionDel() *cobra.Command {
	var ask askFlags
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
			ctx, stop := context.WithTimeout(c.Context(), 6*timeout.Stop)
			defer stop()
			a, err := ask.open(ctx)
			if err != nil {
				return err
			}
			defer a.close()
			return a.delSession(ctx, args[0], c.ErrOrStderr())
		},
	}
	ask.add(c)
	c.ValidArgsFunction = ask.oneSession(cobra.NoFileCompletions)
	return c
}

func (a *askAt) delSession(ctx context.Context, name string, notices io.Writer) error {
	said := make([]string, len(a.chosen))
	errs := a.each(func(i int, n *asked) error {
		d, err := n.client.DeleteSession(ctx, connect.NewRequest(&nodev1.DeleteSessionRequest{Name: name}))
		if err == nil {
			said[i] = d.Msg.GetNotice()
		}
		return err
	})
	for _, s := range said {
		if s != "" {
			fmt.Fprintln(notices, "vmmc:", s)
		}
	}
	return failure(fmt.Sprintf("delete session %q", name), a.somewhere(errs, code.NoSuchSession))
}

// somewhere makes no error of what is missing on some nodes, if it was there on
// one and the nodes were not named.
func (a *askAt) somewhere(errs []error, missing code.Code) []error {
	var out []error
	found := false
	var none error
	for _, err := range errs {
		switch {
		case err == nil:
			found = true
		case errors.Is(err, missing):
			none = err
			if a.named {
				out = append(out, err)
			}
		default:
			out = append(out, err)
		}
	}
	if !found && out == nil && none != nil {
		out = append(out, none)
	}
	return out
}
