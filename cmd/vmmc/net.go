package main

import "github.com/spf13/cobra"

func newNet() *cobra.Command {
	c := group("net", "Look at the network between the nodes")
	c.Example = `  vmmc net map`
	c.AddCommand(newNetMap())
	return c
}
