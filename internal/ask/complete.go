package ask

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/timeout"
)

// CompleteNodes completes the names of nodes, those of all arguments before left
// out.
func (f *Flags) CompleteNodes(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(c.Context()), timeout.Ping)
	defer stop()
	a, err := f.Open(ctx)
	if err != nil { // there is nobody to tell
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer a.Close()
	given := map[string]bool{}
	for _, n := range args {
		given[n] = true
	}
	var names []string
	for _, n := range a.All {
		if !given[n.Name] {
			names = append(names, n.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
