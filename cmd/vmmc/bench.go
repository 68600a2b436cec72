package main

import "github.com/spf13/cobra"

// newBench is the group of commands that measure.
func newBench() *cobra.Command {
	c := group("bench", "Measure what this machine does")
	c.Example = `  vmmc bench au`
	c.AddCommand(newBenchAU())
	return c
}
