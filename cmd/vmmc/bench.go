package main

import "github.com/spf13/cobra"

// newBench is the group of commands that measure.
func newBench() *cobra.Command {
	c := &cobra.Command{Use: "bench", Short: "Measure what this machine does"}
	c.AddCommand(newBenchAU())
	return c
}
