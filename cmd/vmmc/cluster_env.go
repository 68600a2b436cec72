package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/serve"
)

func newClusterEnv() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "env [NODE]",
		Short: "Print what a shell needs to use the cluster on this machine",
		Long: `Print the line that lets a shell, and the programs that it starts, join a node of the
cluster on this machine: the one that is named, or the first that runs. Another
shell than the one of "vmmc cluster up" runs eval "$(vmmc cluster env)".`,
		Example: `  eval "$(vmmc cluster env)"
  eval "$(vmmc cluster env n2)"`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			names := offeredNodes(dir, func(n *nodeState) bool { return len(args) == 0 && n.Process.alive() })
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			dir, err := clusterDir(dir)
			if err != nil {
				return err
			}
			s, err := existing(dir)
			if err != nil {
				return err
			}
			n, err := s.choose(args)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "export VMMC_SOCKET=%s\n", shellWord(n.Socket))
			return nil
		},
	}
	clusterDirFlag(c, &dir)
	return c
}

// choose is the node that is named, or the first that runs.
func (s *clusterState) choose(named []string) (*nodeState, error) {
	for i := range s.Nodes {
		n := &s.Nodes[i]
		switch {
		case len(named) == 1 && n.Name != hosts.Canonical(named[0]):
		case n.Process.alive():
			return n, nil
		case len(named) == 1:
			return nil, fmt.Errorf("node %q of the cluster in %s does not run: start it with %q",
				n.Name, s.dir, s.command("start "+n.Name))
		}
	}
	if len(named) == 1 {
		return nil, serve.Usage("no node %q in the cluster in %s", named[0], s.dir)
	}
	return nil, fmt.Errorf("no node of the cluster in %s runs: start them with %q",
		s.dir, s.command("start"))
}

// ownCluster tells a user without a daemon of the own cluster that runs, and one whose cluster has
// lost nodes how to start them.
func ownCluster(c *cobra.Command, err error) string {
	socket := nodeproto.FromEnv()
	if f := c.Flags().Lookup("socket"); f != nil && f.Changed {
		socket = f.Value.String()
	}
	var status *serve.StatusError
	partly := errors.As(err, &status) && status.Status == serve.Partly
	if s := clusterWith(socket); s != nil && (partly || errors.Is(err, code.NoDaemon)) {
		if dead := s.dead(); len(dead) > 0 {
			return fmt.Sprintf("Of the cluster in %s these do not run: %s. To start them: %s",
				s.dir, strings.Join(dead, ", "), s.command("start"))
		}
	}
	if !errors.Is(err, code.NoDaemon) || nodeproto.FromEnv() != "" {
		return ""
	}
	dir, err := clusterDir("")
	if err != nil {
		return ""
	}
	s, err := readState(dir)
	if err != nil || len(s.running()) == 0 {
		return ""
	}
	return `A cluster of yours runs. To use it in this shell: eval "$(vmmc cluster env)"`
}
