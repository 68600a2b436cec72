package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc"
)

type versions struct {
	Release string `json:"release"`
	API     string `json:"api"`
	Go      string `json:"go"`
	System  string `json:"system"`
}

func newVersion() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of vmmc, of its API and of Go",
		Example: `  vmmc version
  vmmc version --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			major, minor := vmmc.Version()
			v := versions{vmmc.Release, fmt.Sprintf("%d.%d", major, minor), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			if asJSON {
				return printJSON(c.OutOrStdout(), v)
			}
			fmt.Fprintf(c.OutOrStdout(), "vmmc %s (API %s, %s, %s)\n", v.Release, v.API, v.Go, v.System)
			return nil
		},
	}
	jsonFlag(c, &asJSON)
	return c
}
