package cfgvmmc

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/ask"
)

// call is one call of a verb.
type call struct {
	*cobra.Command
	where *where
	node  string
	args  []string // behind the verb
}

// ask asks the node.
func (c *call) ask(bound time.Duration, f func(context.Context, *ask.Cluster) error) error {
	flags, err := c.where.flags(c.node)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(c.Context(), bound)
	defer stop()
	a, err := flags.Open(ctx)
	if err != nil {
		return err
	}
	defer a.Close()
	return f(ctx, a)
}

// slashes is a path of the manual as one of Linux.
func slashes(path string) string { return strings.ReplaceAll(path, `\`, "/") }
