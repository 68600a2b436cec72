package main

import "github.com/spf13/cobra"

func newLink() *cobra.Command {
	c := group("link", "Look at the links between processes")
	c.Long = `Look at the links between processes: the two ends of each link and its traffic.
"vmmc top" shows the rates.`
	c.Example = `  vmmc link ls
  vmmc link ls --node n1 --json`
	c.AddCommand(newLinkLs())
	return c
}
