package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/serve"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// topOptions are the flags of the command.
type topOptions struct {
	where    ask.Flags
	interval time.Duration
	sort     string
	once     bool
	asJSON   bool
}

func newTop() *cobra.Command {
	var o topOptions
	c := &cobra.Command{
		Use:   "top",
		Short: "Show how fast links are, live",
		Long: `Show the links of all nodes, or of those that --node names, with their rates, until
q is pressed. The columns are those of "vmmc link ls", a second; what does not fit on
the terminal is left out, the least important first. STATE is that of the connection.
PROGRAM is the name of the program that the process ran when it joined; a process can
choose it.

Keys: m, b, n, g, a sort by messages, bytes, notifications, gets, atomics; i by the
time a link is idle; p by node and process; r turns the order around; q ends it.

With --once it waits for one interval, prints the rates, and ends.
` + linkSees,
		Example: `  vmmc top
  vmmc top --node n1 --sort bytes
  vmmc top --once --interval 5s
  vmmc top --json | jq '.links[] | .messages_per_second'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	o.where.Add(c)
	f := c.Flags()
	f.DurationVar(&o.interval, "interval", time.Second, "`time` between two looks")
	f.StringVar(&o.sort, "sort", "bytes", "`column` to sort by: "+sortNames())
	if err := c.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(sortKeys(), cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is defined two lines above
	}
	f.BoolVar(&o.once, "once", false, "print the rates of one interval and end")
	f.BoolVar(&o.asJSON, "json", false, "print JSON, once")
	return c
}

func (o *topOptions) run(c *cobra.Command) error {
	by := orderNamed(o.sort)
	switch {
	case by == nil:
		return serve.Usage("--sort %q: use one of %s", o.sort, sortNames())
	case o.interval < 100*time.Millisecond || o.interval > time.Hour:
		return serve.Usage("--interval %v: use 100ms to 1h", o.interval)
	}
	open, stop := context.WithTimeout(c.Context(), timeout.Control)
	a, err := o.where.Open(open)
	stop()
	if err != nil {
		return err
	}
	defer a.Close()
	if o.once || o.asJSON {
		return o.printOnce(c.Context(), a, c.OutOrStdout(), by)
	}
	in, okIn := c.InOrStdin().(*os.File)
	out := serve.OutputFile(c)
	if !okIn || out == nil || !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return serve.Usage("vmmc top wants a terminal: without one use --once or --json")
	}
	m := &topModel{ctx: c.Context(), a: a, every: o.interval, by: by}
	if _, err := tea.NewProgram(m, tea.WithContext(c.Context()), tea.WithInput(in), tea.WithOutput(out)).Run(); err != nil {
		return fmt.Errorf("show links: %w", err)
	}
	return nil
}

// printOnce prints the rates between two looks.
func (o *topOptions) printOnce(ctx context.Context, a *ask.Cluster, w io.Writer, by *order) error {
	var r rates
	first, _ := readLinks(ctx, a)
	r.update(first)
	select {
	case <-time.After(o.interval):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	second, errs := readLinks(ctx, a)
	rows := r.update(second)
	by.sort(rows, false)
	if o.asJSON {
		if err := printJSON(w, struct {
			Links []linkRate `json:"links"`
		}{rows}); err != nil {
			return err
		}
	} else if err := printTable(w, rateTable(rows)); err != nil {
		return err
	}
	return ask.Failure("look at links", errs)
}

func readLinks(ctx context.Context, a *ask.Cluster) ([]ask.Link, []error) {
	ctx, stop := context.WithTimeout(ctx, timeout.Control)
	defer stop()
	return a.Links(ctx)
}
