package main

import (
	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/ask"
)

func signalNames(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return signals[1:], cobra.ShellCompDirectiveNoFileComp
}

// offer has a flag completed.
func offer(c *cobra.Command, flag string, f ask.Completion) {
	if err := c.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) // the flag is defined a few lines above
	}
}
