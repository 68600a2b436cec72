package main

import "github.com/spf13/cobra"

func newVia() *cobra.Command {
	c := group("via", "Look at the virtual interfaces of processes")
	c.Example = `  vmmc via ls
  vmmc via ls --node n1 --json`
	c.AddCommand(newViaLs())
	return c
}
