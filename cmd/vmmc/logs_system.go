package main

import (
	"context"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/serve"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// systemLogs are a node's own.
var systemLogs = map[string]nodev1.SystemLog{
	"server": nodev1.SystemLog_SYSTEM_LOG_SERVER,
	"driver": nodev1.SystemLog_SYSTEM_LOG_DRIVER,
}

// systemLogFlags say which of a node's own logs to print.
type systemLogFlags struct {
	node  string
	lines lineCount
}

func (f *systemLogFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.node, "system", "", "print a log of this `node` itself: server or driver")
	c.Flags().VarP(&f.lines, "lines", "n", "with --system, begin with so many of the last `lines` (default: all that are kept)")
}

// orElse completes the names of logs behind --system, and what else there is else.
func (f *systemLogFlags) orElse(other ask.Completion) ask.Completion {
	return func(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if f.node == "" {
			return other(c, args, typed)
		}
		if len(args) == 0 {
			return []cobra.Completion{"server", "driver"}, cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// check wants the name of one log.
func (f *systemLogFlags) check(args []string) error {
	if len(args) != 1 || systemLogs[args[0]] == nodev1.SystemLog_SYSTEM_LOG_UNSPECIFIED {
		return serve.Usage("--system %s %q: a node has the logs server and driver, name one of them", f.node, args)
	}
	return nil
}

func (f *systemLogFlags) print(
	ctx context.Context, where *ask.Flags, w io.Writer, args []string, follow bool,
) error {
	if len(where.Nodes) > 0 {
		return serve.Usage("--node and --system do not go together: --system names the node")
	}
	a, err := where.Open(ctx)
	if err != nil {
		return err
	}
	defer a.Close()
	n, err := a.Find([]string{f.node})
	if err != nil {
		return serve.Flag("system", f.node, err)
	}
	lines := int32(-1)
	if f.lines.set {
		lines = f.lines.n
	}
	err = n[0].CopySystemLog(ctx, w, systemLogs[args[0]], lines, follow)
	if follow && ctx.Err() != nil {
		return &serve.StatusError{Status: stoppedStatus} // the user has seen enough
	}
	return ask.Failure("print a log of node "+strconv.Quote(f.node), []error{err})
}

// lineCount is a flag that is a number of lines, or was not given.
type lineCount struct {
	n   int32
	set bool
}

func (l *lineCount) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return serve.Usage("%q is no number of lines", s)
	}
	l.n, l.set = int32(n), true
	return nil
}

func (l *lineCount) String() string {
	if !l.set {
		return ""
	}
	return strconv.Itoa(int(l.n))
}

func (*lineCount) Type() string { return "lines" }
