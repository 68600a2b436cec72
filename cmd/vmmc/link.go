package main

import "github.com/spf13/cobra"

func newLink() *cobra.Command {
	c := group("link", "Look at the links between processes")
	c.Long = `Look at the links between processes: who has one with whom, and what has gone over
it. "vmmc top" shows how fast.`
	c.Example = `  vmmc link ls
  vmmc link ls --node n1 --json`
	c.AddCommand(newLinkLs())
	return c
}
