package main

import "github.com/spf13/cobra"

func newName() *cobra.Command {
	c := group("name", "Look at the names under which processes publish buffers")
	c.Example = `  vmmc name ls
  vmmc name ls 'queue*' --node n1 --json`
	c.AddCommand(newNameLs())
	return c
}
