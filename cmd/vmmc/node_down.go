package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// administrators is the same in the help of both commands.
const administrators = `
Administrators of a node are root, the user whom its daemon runs as, and those
that "vmmcd --admin" names.

Exit status: 0 it is done, 1 it failed, 2 the command was called wrongly, 3 a node
cannot be reached.`

func newNodeDown() *cobra.Command {
	var where ask.Flags
	var reason string
	var asJSON bool
	c := &cobra.Command{
		Use:   "down NODE...",
		Short: "End the links of nodes with all others",
		Long: `Take nodes down: all links between their processes and those of other nodes end
with an error that says so, and new imports fail at once, until "vmmc node up".
That lasts over restarts of the daemon. It is what the manual's MCPStop does.

All else goes on: the daemons answer, links within a node, sessions and their
programs, output, starting programs. Links are the processes' own: a process that
does not answer its daemon keeps its links, and is named.
` + administrators,
		Example: `  vmmc node down n2
  vmmc node down --reason "new network card" n2 n3
  vmmc node down --hosts vmmc-hosts.txt --certs ~/.config/vmmc n2`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: where.CompleteNodes,
		RunE: func(c *cobra.Command, args []string) error {
			where.Nodes = args
			return takeDown(c.Context(), &where, reason, asJSON, c.OutOrStdout())
		},
	}
	where.AddConnectFlags(c)
	c.Flags().StringVar(&reason, "reason", "", "`text` that programs see in their errors")
	jsonFlag(c, &asJSON)
	return c
}

// downInfo is what came of taking a node down.
type downInfo struct {
	Node   string   `json:"node"`
	Links  uint32   `json:"links"`            // that ended
	Silent []uint32 `json:"silent,omitempty"` // processes that did not answer
	Untold []string `json:"untold,omitempty"` // nodes that did not hear why
	Error  string   `json:"error,omitempty"`
}

func takeDown(
	ctx context.Context, where *ask.Flags, reason string, asJSON bool, w io.Writer,
) error {
	return where.Within(ctx, timeout.Control, func(ctx context.Context, a *ask.Cluster) error {
		done := make([]downInfo, len(a.Chosen))
		errs := a.Each(func(i int, n *ask.Node) error {
			done[i].Node = n.Name
			r, err := n.Cluster.TakeDown(ctx, connect.NewRequest(&nodev1.TakeDownRequest{Reason: reason}))
			if err != nil {
				return err
			}
			d := r.Msg
			done[i].Links, done[i].Silent, done[i].Untold = d.GetLinks(), d.GetSilent(), d.GetUntold()
			return nil
		})
		for i := range done {
			if errs[i] != nil {
				done[i].Error = errs[i].Error()
				continue
			}
			errs[i] = incomplete(&done[i])
		}
		var err error
		if asJSON {
			err = printJSON(w, struct {
				Nodes []downInfo `json:"nodes"`
			}{done})
		} else {
			for _, d := range done {
				if d.Error == "" {
					fmt.Fprintf(w, "%s is down, %d links ended\n", d.Node, d.Links)
				}
			}
		}
		return errors.Join(err, ask.Failure("take nodes down", errs))
	})
}

// incomplete says what was not reached of a node that is down.
func incomplete(d *downInfo) error {
	if len(d.Silent) > 0 {
		return code.New(code.Timeout, "processes %v of node %q do not answer their daemon and may have kept their links: end them", d.Silent, d.Node)
	}
	if len(d.Untold) > 0 {
		return code.New(code.Unreachable, "node %q is down, but could not tell nodes %q: processes there do not hear why their links end", d.Node, d.Untold)
	}
	return nil
}

func newNodeUp() *cobra.Command {
	var where ask.Flags
	c := &cobra.Command{
		Use:   "up NODE...",
		Short: "Let nodes that were taken down have links again",
		Long: `Bring nodes up that "vmmc node down" has taken down. Programs import again; links
that have ended do not come back.
` + administrators,
		Example: `  vmmc node up n2
  vmmc node up --hosts vmmc-hosts.txt --certs ~/.config/vmmc n2`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: where.CompleteNodes,
		RunE: func(c *cobra.Command, args []string) error {
			where.Nodes = args
			return where.Within(c.Context(), timeout.Control, func(ctx context.Context, a *ask.Cluster) error {
				return ask.Failure("bring nodes up", a.Each(func(_ int, n *ask.Node) error {
					_, err := n.Cluster.BringUp(ctx, connect.NewRequest(&nodev1.BringUpRequest{}))
					return err
				}))
			})
		},
	}
	where.AddConnectFlags(c)
	return c
}
