package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/serve"
)

// clusterNode is a node as "cluster ls" shows it.
type clusterNode struct {
	Name    string   `json:"name"`
	PID     int      `json:"pid"`
	Running bool     `json:"running"`
	Address string   `json:"address"`
	Socket  string   `json:"socket"`
	Log     string   `json:"log"`
	Args    []string `json:"args"`
}

func newClusterLs() *cobra.Command {
	var dir string
	var asJSON bool
	c := &cobra.Command{
		Use:   "ls",
		Short: "List the nodes of the cluster on this machine",
		Long: `List the nodes that "vmmc cluster up" started and whether their processes run.
"vmmc node ls" tells whether they reach each other.

Exit status: 0 all run, or there is no cluster, 3 some do not run.`,
		Example: `  vmmc cluster ls
  vmmc cluster ls --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := clusterDir(dir)
			if err != nil {
				return err
			}
			// Without the lock, so that it works beside "up" and "down"; the record
			// is replaced as a whole.
			s, err := readState(dir)
			switch {
			case err == nil:
			case !errors.Is(err, os.ErrNotExist):
				return err
			case asJSON:
				s = &clusterState{dir: dir}
			default:
				fmt.Fprintf(c.OutOrStdout(), "no cluster in %s\n", dir)
				return nil
			}
			return s.print(c.OutOrStdout(), columns(c), asJSON)
		},
	}
	clusterDirFlag(c, &dir)
	jsonFlag(c, &asJSON)
	return c
}

func (s *clusterState) print(w io.Writer, width int, asJSON bool) error {
	nodes := make([]clusterNode, len(s.Nodes))
	rows := [][]string{{"NAME", "PID", "STATE", "ADDRESS", "SOCKET"}}
	var down []string
	for i, n := range s.Nodes {
		alive := n.Process.alive()
		nodes[i] = clusterNode{n.Name, n.Process.PID, alive, n.Address, n.Socket, n.Log, n.Args}
		state := "running"
		if !alive {
			state = "dead"
			down = append(down, n.Name)
		}
		rows = append(rows, []string{n.Name, strconv.Itoa(n.Process.PID), state, n.Address, n.Socket})
	}
	var err error
	if asJSON {
		err = printJSON(w, struct {
			Dir   string        `json:"dir"`
			Nodes []clusterNode `json:"nodes"`
		}{s.dir, nodes})
	} else {
		err = printFitting(w, rows, width, fit{spare: []string{"PID", "ADDRESS"}, shorten: []string{"SOCKET"}})
	}
	if err == nil && len(down) > 0 {
		err = &serve.StatusError{
			Status: serve.Partly,
			Err: fmt.Errorf("%d of %d nodes do not run: %s; start them with %q; their logs are in %s",
				len(down), len(nodes), strings.Join(down, ", "), s.command("start"), s.dir),
		}
	}
	return err
}
