package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/serve"
)

func newNodeLs() *cobra.Command {
	var socket, remote, certs, node string
	var asJSON bool
	c := &cobra.Command{
		Use:   "ls",
		Short: "List the nodes of a cluster with their state and load",
		Long: `List the nodes of a cluster, as one of them sees the others: this machine's, or
with --remote any node that is asked over mutual TLS.

A node is up; down, if an administrator has taken it down ("vmmc node down");
starting or stopping, while its daemon does; or unreachable. RTT is from the node
that was asked to this one and back, EXPORTED what its processes export, LOAD that
of its machine over a minute, PATH how it was reached. ERROR also tells how a node's
hosts file differs from that of the node that was asked. On a terminal that is narrower
than the table, some columns are left out, and errors stand below.

Exit status: 0 all nodes are up, 3 some are not, or have the nodes in other places
of their hosts file, 1 the node that was asked did not answer.`,
		Example: `  vmmc node ls
  vmmc node ls --socket /run/vmmc/node.sock --json
  vmmc node ls --remote 10.0.0.1:7411 --node n1 --certs ~/.config/vmmc`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx := c.Context() // each page of the list has its time
			var nodes []nodeInfo
			var err error
			if remote != "" {
				nodes, err = nodesOver(ctx, remote, certs, node)
			} else {
				if nodes, err = nodesAt(ctx, socket); err != nil && c.Flags().Changed("socket") {
					err = serve.Flag("socket", socket, err)
				}
			}
			if err != nil {
				return err
			}
			return printNodes(c.OutOrStdout(), columns(c), nodes, asJSON)
		},
	}
	f := c.Flags()
	f.StringVar(&socket, "socket", nodeproto.DefaultPath(), "`path` of the node's socket")
	f.StringVar(&remote, "remote", "", "`address` (host:port) of the node to ask instead")
	f.StringVar(&certs, "certs", "", "`directory` with the identity to ask with, a user's or a node's")
	f.StringVar(&node, "node", "", "`name` of the node at that address")
	c.MarkFlagsRequiredTogether("remote", "certs", "node")
	c.MarkFlagsMutuallyExclusive("remote", "socket")
	jsonFlag(c, &asJSON)
	return c
}

func printNodes(w io.Writer, width int, nodes []nodeInfo, asJSON bool) error {
	if asJSON {
		if err := printJSON(w, struct {
			Nodes []nodeInfo `json:"nodes"`
		}{nodes}); err != nil {
			return err
		}
	} else if err := printFitting(w, nodeRows(nodes), width, nodesFit); err != nil {
		return err
	}
	away := map[string][]string{}
	for _, n := range nodes {
		if n.State != stateUp {
			away[n.State] = append(away[n.State], n.Name)
		}
	}
	var says, conflict []string
	for _, state := range slices.Sorted(maps.Keys(away)) {
		says = append(says, fmt.Sprintf("%d of %d nodes %s: %s", len(away[state]), len(nodes), stateSays(state), strings.Join(away[state], ", ")))
	}
	for _, n := range nodes {
		if n.Conflict {
			conflict = append(conflict, n.Name)
		}
	}
	if len(conflict) > 0 {
		says = append(says, fmt.Sprintf("%d of %d nodes have another hosts file, and give out the logical pids of other nodes: %s",
			len(conflict), len(nodes), strings.Join(conflict, ", ")))
	}
	if len(says) == 0 {
		return nil
	}
	return &serve.StatusError{Status: serve.Partly, Err: errors.New(strings.Join(says, "; "))}
}

var nodesFit = fit{
	remarks: 1,
	spare:   []string{"PATH", "VERSION", "UPTIME", "EXPORTED", "SESSIONS", "PROCESSES", "LOAD", "RTT"},
}

func stateSays(state string) string {
	switch state {
	case stateUnreachable:
		return "cannot be reached"
	case stateDown:
		return "were taken down"
	}
	return "are " + state
}

func nodeRows(nodes []nodeInfo) [][]string {
	rows := [][]string{{"NAME", "CONTROL", "STATE", "RTT", "PROCESSES", "SESSIONS", "EXPORTED", "LOAD", "UPTIME", "VERSION", "PATH", "ERROR"}}
	for _, n := range nodes {
		row := []string{n.Name, n.Control, n.State, roundTrip(n.RTT), "", "", "", "", "", n.Version, n.Path, cmp.Or(n.Error, n.Differs)}
		if n.Processes != nil {
			row[4], row[5] = strconv.FormatUint(uint64(*n.Processes), 10), strconv.FormatUint(uint64(*n.Sessions), 10)
			row[6], row[7] = sized(*n.Exported), strconv.FormatFloat(*n.Load, 'f', 2, 64)
			row[8] = time.Duration(n.Uptime).Round(time.Second).String()
		}
		rows = append(rows, row)
	}
	return rows
}

func roundTrip(ns int64) string {
	if ns <= 0 {
		return ""
	}
	return time.Duration(ns).Round(time.Microsecond).String()
}

// sized writes bytes for people.
func sized(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for ; v >= 1024 && i < len(units)-1; i++ {
		v /= 1024
	}
	if i == 0 {
		return strconv.FormatUint(n, 10) + "B"
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + units[i]
}
