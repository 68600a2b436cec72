package main

import "github.com/spf13/cobra"

func newNode() *cobra.Command {
	c := group("node", "Look at the nodes of a cluster, take them down and bring them up")
	c.Long = `Look at the nodes of a cluster, and, as their administrator, take them down and
bring them up again.`
	c.Example = `  vmmc node ls
  vmmc node down n2 --reason "new network card"
  vmmc node up n2`
	c.AddCommand(newNodeLs(), newNodeDown(), newNodeUp())
	return c
}
