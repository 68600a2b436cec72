package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/manual"
)

type versions struct {
	Release string `json:"release"`
	Commit  string `json:"commit,omitempty"`
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
			major, minor := manual.Version()
			v := versions{vmmc.Release, commit(), fmt.Sprintf("%d.%d", major, minor), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			if asJSON {
				return printJSON(c.OutOrStdout(), v)
			}
			of := ""
			if v.Commit != "" {
				of = "commit " + v.Commit + ", "
			}
			fmt.Fprintf(c.OutOrStdout(),
				"vmmc %s (%sAPI %s, %s, %s)\n", v.Release, of, v.API, v.Go, v.System)
			return nil
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

// commit is what the program was built of, as the go command has noted it; "" if it
// was built outside of a checkout, or without -buildvcs.
func commit() string {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return commitIn(b.Settings)
}

func commitIn(settings []debug.BuildSetting) string {
	revision, changed := "", ""
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+changes"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + changed
}
