package main

import (
	"context"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/serve"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

func newNameLs() *cobra.Command {
	var where ask.Flags
	var asJSON bool
	c := &cobra.Command{
		Use:   "ls [PATTERN]",
		Short: "List names with their processes and buffers",
		Long: `List the names under which processes have published buffers, on all nodes, or on
those that --node names. A PATTERN is as for files: "*" is any characters, "?" is one,
"[a-c]" one of some; "/*" lists names of the whole cluster alone, which NAME shows with
the "/". Names that begin with a dot, which packages use, are listed if the pattern
begins with one. SET says that other processes may share the name. PROGRAM is what the
process runs.

You see the names of your own processes in all sessions; an administrator of a node
sees all of its names.

Exit status: 0 all is well, 1 it failed, 2 it was called wrongly, 3 a node cannot be
reached, and the others are shown.`,
		Example: `  vmmc name ls
  vmmc name ls 'queue*' --node n1,n2
  vmmc name ls --json | jq '.names[] | select(.user == "ada")'`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: where.Names,
		RunE: func(c *cobra.Command, args []string) error {
			pattern := strings.Join(args, "")
			if _, err := path.Match(pattern, ""); err != nil || len(args) > 0 && pattern == "" {
				return serve.Usage("%q is no pattern", pattern)
			}
			return where.Within(c.Context(), timeout.Control, func(ctx context.Context, a *ask.Cluster) error {
				rows, errs := a.PublishedNames(ctx, pattern)
				if err := printNames(c.OutOrStdout(), columns(c), rows, asJSON); err != nil {
					return err
				}
				return ask.Failure("list names", errs)
			})
		},
	}
	where.Add(c)
	jsonFlag(c, &asJSON)
	return c
}

func printNames(w io.Writer, width int, list []ask.Name, asJSON bool) error {
	if asJSON {
		return printJSON(w, struct {
			Names []ask.Name `json:"names"`
		}{list})
	}
	rows := [][]string{{"NODE", "NAME", "USER", "SESSION", "PID", "BUFFER", "SIZE", "SET", "PROGRAM"}}
	for _, n := range list {
		set := ""
		if n.Set {
			set = "set"
		}
		rows = append(rows, []string{
			n.Node, n.Name, n.User, n.Session, strconv.FormatUint(uint64(n.PID), 10),
			strconv.FormatUint(uint64(n.Buffer), 10), strconv.FormatUint(n.Size, 10), set, n.Program,
		})
	}
	return printFitting(w, rows, width, fit{
		spare:   []string{"SET", "SIZE", "SESSION", "USER"},
		shorten: []string{"PROGRAM", "NAME"},
		least:   8,
	})
}
