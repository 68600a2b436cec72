package main

import "github.com/spf13/cobra"

func newNode() *cobra.Command {
	c := group("node", "Look at the nodes of a cluster")
	c.Example = `  vmmc node ls`
	c.AddCommand(newNodeLs())
	return c
}
