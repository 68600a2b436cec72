package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/env"
)

func newCluster() *cobra.Command {
	c := group("cluster", "Run a cluster on this machine")
	c.Long = `Run a cluster of several nodes on this machine, in the background: for trying
things out, and for tests. A directory holds all of it.`
	c.Example = `  vmmc cluster up --nodes 3
  eval "$(vmmc cluster env)"
  vmmc cluster ls
  vmmc cluster start n2    # after its daemon has died
  vmmc cluster down`
	c.AddCommand(newClusterUp(), newClusterStart(), newClusterDown(), newClusterLs(), newClusterEnv())
	return c
}

func clusterDirFlag(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "dir", "", "`directory` of the cluster (default: $XDG_STATE_HOME/vmmc/cluster or ~/.local/state/vmmc/cluster)")
}

// clusterDir is the directory that the flag or its default names. It is
// absolute, since the nodes run in another directory than the tool.
func clusterDir(flag string) (string, error) {
	if flag == "" {
		state, err := env.StateHome()
		if err != nil {
			return "", fmt.Errorf("find the cluster's directory: %w; give one with --dir", err)
		}
		flag = filepath.Join(state, "vmmc", "cluster")
	}
	dir, err := filepath.Abs(flag)
	if err != nil {
		return "", fmt.Errorf("find the cluster's directory: %w; give an absolute one with --dir", err)
	}
	return dir, nil
}
