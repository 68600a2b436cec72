package ask

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/timeout"
)

// Completion is what a shell is offered. Nothing is no error: the cluster may be
// away, and the user typing.
type Completion = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective)

// complete asks the nodes for what can be offered.
func (f *Flags) complete(
	c *cobra.Command, want func(context.Context, *Cluster) []cobra.Completion,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, stop := context.WithTimeout(c.Context(), timeout.Ping)
	defer stop()
	named := *f
	named.Nodes = nil // which may be the very names that are being typed
	a, err := named.Open(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer a.Close()
	all := want(ctx, a)
	slices.Sort(all)
	return slices.Compact(all), cobra.ShellCompDirectiveNoFileComp
}

// NodeNames offers nodes, the last of those that commas separate.
func (f *Flags) NodeNames(
	c *cobra.Command, _ []string, typed string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	before := typed[:strings.LastIndexByte(typed, ',')+1]
	return f.complete(c, func(_ context.Context, a *Cluster) (out []cobra.Completion) {
		for _, n := range a.All {
			if !slices.Contains(strings.Split(before, ","), n.Name) {
				out = append(out, before+n.Name)
			}
		}
		return out
	})
}

// CompleteNodes offers nodes for arguments, those of the arguments before left out.
func (f *Flags) CompleteNodes(
	c *cobra.Command, args []string, _ string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f.complete(c, func(_ context.Context, a *Cluster) (out []cobra.Completion) {
		for _, n := range a.All {
			if !slices.Contains(args, n.Name) {
				out = append(out, n.Name)
			}
		}
		return out
	})
}

// sessionNames offers sessions.
func (f *Flags) sessionNames(
	c *cobra.Command, _ []string, _ string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f.complete(c, func(ctx context.Context, a *Cluster) (out []cobra.Completion) {
		list, _ := a.Sessions(ctx)
		for _, s := range list {
			out = append(out, s.Name)
		}
		return out
	})
}

// OneSession completes the arguments of a command on a session; what follows is
// whatever then says.
func (f *Flags) OneSession(then Completion) Completion {
	return func(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return f.sessionNames(c, args, typed)
		}
		return then(c, args, typed)
	}
}

// PIDs offers the processes of the session that was typed.
func (f *Flags) PIDs(running bool) Completion {
	return func(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) != 1 {
			return cobra.NoFileCompletions(c, args, typed)
		}
		return f.complete(c, func(ctx context.Context, a *Cluster) (out []cobra.Completion) {
			rows, _ := a.Processes(ctx, args, running)
			for _, p := range rows {
				out = append(out, cobra.CompletionWithDesc(strconv.FormatUint(uint64(p.PID), 10), fmt.Sprintf("%s: %s", p.Node, strings.Join(strings.Fields(p.Command), " "))))
			}
			return out
		})
	}
}

// Names offers published names.
func (f *Flags) Names(
	c *cobra.Command, args []string, typed string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return cobra.NoFileCompletions(c, args, typed)
	}
	return f.complete(c, func(ctx context.Context, a *Cluster) (out []cobra.Completion) {
		rows, _ := a.PublishedNames(ctx, "")
		for _, n := range rows {
			out = append(out, n.Name)
		}
		return out
	})
}
