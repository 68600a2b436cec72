package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/serve"
)

func newCertInit() *cobra.Command {
	var dir, cluster string
	c := &cobra.Command{
		Use:   "init --dir DIR --cluster NAME",
		Short: "Make the authority of a new cluster",
		Long: `Make the authority of a new cluster: ca.pem, and ca-key.pem, with which its owner
can be any node or user. Keep that key off the nodes. Nothing is overwritten.`,
		Example: `  vmmc cert init --dir authority --cluster lab`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cert.CheckCluster(cluster); err != nil {
				return serve.Usage("--cluster %s: %w", cluster, err)
			}
			if err := cert.Init(dir, cluster); err != nil {
				return serve.Flag("dir", dir, err)
			}
			fmt.Fprintf(c.OutOrStdout(), "made the authority of cluster %q in %s\n", cluster, dir)
			return nil
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "`directory` for the authority; it is made if needed")
	c.Flags().StringVar(&cluster, "cluster", "", "`name` of the cluster")
	require(c, "dir", "cluster")
	return c
}
