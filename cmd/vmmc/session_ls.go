package main

import (
	"context"
	"io"
	"strconv"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// sessionInfo is a session on a node.
type sessionInfo struct {
	Node      string `json:"node"`
	Name      string `json:"name"`
	User      string `json:"user"`
	Drive     string `json:"drive"`
	Share     string `json:"share,omitempty"`
	Base      string `json:"base"`
	Output    string `json:"output"`
	Processes int    `json:"processes"` // that run
	Cgroup    string `json:"cgroup,omitempty"`
	Error     string `json:"error,omitempty"`
}

func newSessionLs() *cobra.Command {
	var ask askFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "ls",
		Short: "List sessions",
		Long: `List your sessions on all nodes, or on those that --node names; root sees those of
all users.
` + sessionStatus,
		Example: `  vmmc session ls
  vmmc session ls --node n1 --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := context.WithTimeout(c.Context(), timeout.Control)
			defer stop()
			a, err := ask.open(ctx)
			if err != nil {
				return err
			}
			defer a.close()
			list, errs := a.sessions(ctx)
			if err := printSessions(c.OutOrStdout(), list, asJSON); err != nil {
				return err
			}
			return failure("list sessions", errs)
		},
	}
	ask.add(c)
	jsonFlag(c, &asJSON)
	return c
}

// sessions lists those of the chosen nodes, node by node.
func (a *askAt) sessions(ctx context.Context) ([]sessionInfo, []error) {
	found := make([][]sessionInfo, len(a.chosen))
	errs := a.each(func(i int, n *asked) error {
		for r := (&nodev1.ListSessionsRequest{}); ; {
			l, err := n.client.ListSessions(ctx, connect.NewRequest(r))
			if err != nil {
				return err
			}
			for _, s := range l.Msg.GetSessions() {
				r.After = s.GetName()
				found[i] = append(found[i], sessionInfo{
					Node: n.name, Name: s.GetName(), User: s.GetUser(), Drive: s.GetDrive(), Share: s.GetShare(), Base: s.GetBase(),
					Output: s.GetOutputDirectory(), Processes: int(s.GetProcesses()), Cgroup: s.GetCgroup(), Error: s.GetError(),
				})
			}
			if !l.Msg.GetMore() || len(l.Msg.GetSessions()) == 0 {
				return nil
			}
		}
	})
	all := []sessionInfo{} // none are [] in JSON
	for _, f := range found {
		all = append(all, f...)
	}
	return all, errs
}

func printSessions(w io.Writer, list []sessionInfo, asJSON bool) error {
	if asJSON {
		return printJSON(w, struct {
			Sessions []sessionInfo `json:"sessions"`
		}{list})
	}
	rows := [][]string{{"NODE", "SESSION", "USER", "DRIVE", "BASE", "OUTPUT", "PROCESSES", "ERROR"}}
	for _, s := range list {
		rows = append(rows, []string{s.Node, s.Name, s.User, s.Drive, s.Base, s.Output, strconv.Itoa(s.Processes), s.Error})
	}
	return printTable(w, rows)
}
