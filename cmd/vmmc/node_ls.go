package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/serve"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// nodeInfo is a node as the one that was asked sees it. What that one does not
// tell is left out.
type nodeInfo struct {
	Name      string `json:"name"`
	Control   string `json:"control,omitempty"`
	Data      string `json:"data,omitempty"`
	Reachable bool   `json:"reachable"`
	RTT       int64  `json:"rtt_ns,omitempty"`
	Processes *int   `json:"processes,omitempty"`
	Version   string `json:"version,omitempty"`
	Error     string `json:"error,omitempty"`
}

func newNodeLs() *cobra.Command {
	var socket, remote, certs, node string
	var asJSON bool
	c := &cobra.Command{
		Use:   "ls",
		Short: "List the nodes of a cluster and whether they can be reached",
		Long: `List the nodes of a cluster, as one of them sees the others: this machine's, or
with --remote any node that is asked over mutual TLS.

Exit status: 0 all nodes are up, 3 some are not, 1 the node that was asked did
not answer.`,
		Example: `  vmmc node ls
  vmmc node ls --socket /run/vmmc/node.sock --json
  vmmc node ls --remote 10.0.0.1:7600 --node n1 --certs ~/.config/vmmc`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := context.WithTimeout(c.Context(), timeout.Control)
			defer stop()
			var nodes []nodeInfo
			var err error
			if remote != "" {
				nodes, err = nodesOver(ctx, remote, certs, node)
			} else {
				nodes, err = nodesAt(ctx, socket)
			}
			if err != nil {
				return err
			}
			return printNodes(c.OutOrStdout(), nodes, asJSON)
		},
	}
	f := c.Flags()
	f.StringVar(&socket, "socket", local.DefaultPath(), "`path` of the node's socket")
	f.StringVar(&remote, "remote", "", "`address` (host:port) of the node to ask instead")
	f.StringVar(&certs, "certs", "", "`directory` with the identity to ask with, a user's or a node's")
	f.StringVar(&node, "node", "", "`name` of the node at that address")
	c.MarkFlagsRequiredTogether("remote", "certs", "node")
	c.MarkFlagsMutuallyExclusive("remote", "socket")
	jsonFlag(c, &asJSON)
	return c
}

func printNodes(w io.Writer, nodes []nodeInfo, asJSON bool) error {
	rows := [][]string{{"NAME", "CONTROL", "STATE", "RTT", "PROCESSES", "VERSION", "ERROR"}}
	var down []string
	for _, n := range nodes {
		state, rtt, processes := "up", "", ""
		if !n.Reachable {
			state = "down"
			down = append(down, n.Name)
		}
		if n.RTT > 0 {
			rtt = time.Duration(n.RTT).Round(time.Microsecond).String()
		}
		if n.Processes != nil {
			processes = strconv.Itoa(*n.Processes)
		}
		rows = append(rows, []string{n.Name, n.Control, state, rtt, processes, n.Version, n.Error})
	}
	var err error
	if asJSON {
		err = printJSON(w, struct {
			Nodes []nodeInfo `json:"nodes"`
		}{nodes})
	} else {
		err = printTable(w, rows)
	}
	if err == nil && len(down) > 0 {
		err = &serve.StatusError{
			Status: serve.Partly,
			Err:    fmt.Errorf("%d of %d nodes cannot be reached: %s", len(down), len(nodes), strings.Join(down, ", ")),
		}
	}
	return err
}
