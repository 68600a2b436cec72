package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/timeout"
)

// completion is what a shell is offered. Nothing is no error: the cluster may be
// away, and the user typing.
type completion = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective)

// look asks the nodes for what can be offered.
func (f *askFlags) look(c *cobra.Command, want func(context.Context, *askAt) []cobra.Completion) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, stop := context.WithTimeout(c.Context(), timeout.Ping)
	defer stop()
	named := *f
	named.nodes = nil // which may be the very names that are being typed
	a, err := named.open(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer a.close()
	all := want(ctx, a)
	slices.Sort(all)
	return slices.Compact(all), cobra.ShellCompDirectiveNoFileComp
}

// nodeNames offers nodes, the last of those that commas separate.
func (f *askFlags) nodeNames(c *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	before := typed[:strings.LastIndexByte(typed, ',')+1]
	return f.look(c, func(_ context.Context, a *askAt) (out []cobra.Completion) {
		for _, n := range a.all {
			if !slices.Contains(strings.Split(before, ","), n.name) {
				out = append(out, before+n.name)
			}
		}
		return out
	})
}

// sessionNames offers sessions.
func (f *askFlags) sessionNames(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f.look(c, func(ctx context.Context, a *askAt) (out []cobra.Completion) {
		list, _ := a.sessions(ctx)
		for _, s := range list {
			out = append(out, s.Name)
		}
		return out
	})
}

// oneSession completes the arguments of a command on a session; what follows is
// whatever then says.
func (f *askFlags) oneSession(then completion) completion {
	return func(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return f.sessionNames(c, args, typed)
		}
		return then(c, args, typed)
	}
}

// pids offers the processes of the session that was typed.
func (f *askFlags) pids(running bool) completion {
	return func(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) != 1 {
			return cobra.NoFileCompletions(c, args, typed)
		}
		return f.look(c, func(ctx context.Context, a *askAt) (out []cobra.Completion) {
			rows, _ := a.processes(ctx, args, running)
			for _, p := range rows {
				out = append(out, cobra.CompletionWithDesc(strconv.FormatUint(uint64(p.PID), 10), fmt.Sprintf("%s: %s", p.Node, strings.Join(strings.Fields(p.Command), " "))))
			}
			return out
		})
	}
}

func signalNames(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return signals[1:], cobra.ShellCompDirectiveNoFileComp
}

// offer has a flag completed.
func offer(c *cobra.Command, flag string, f completion) {
	if err := c.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) // the flag is defined a few lines above
	}
}
