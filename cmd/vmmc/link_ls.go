package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// linkSees is the same in the help of both commands that look at links.
const linkSees = `
You see the links of your own processes; an administrator of a node sees all of its
links. Looking disturbs no process: the counters lie in memory that each shares with
its node.

Exit status: 0 all is well, 1 it failed, 2 it was called wrongly, 3 a node cannot be
reached, and the others are shown.`

func newLinkLs() *cobra.Command {
	var where ask.Flags
	var asJSON bool
	c := &cobra.Command{
		Use:   "ls",
		Short: "List links with what has gone over them",
		Long: `List the ends of links on all nodes, or on those that --node names. The end that
imports counts what it asks for, the end that exports what it was asked; on the
mapped way the latter has no part in messages and gets, and counts neither. PATH is
the way that data takes: mapped where importer and exporter share memory, which some
buffers do not let be, else stream, or stream+tls where the link is encrypted.
IDLE is since when nothing was counted, as far as the node has looked, which it does
every ten seconds and when it is asked. RESUMED is how often a broken connection was
made anew, RESENT how many messages were sent again. STATE is that of the connection,
as this end sees it: established; lost; reconnecting; retransmitting what had not
arrived before; draining, where the peer's end is known and the rest is received;
ended. PROGRAM is what the process runs, and PEERPROGRAM what its peer runs, if you
see the peer's end of the link too. On a terminal that is narrower than the table, some
columns are left out; --json has everything. Goroutines that send on one mapped link in the same instant may be
counted as one.
` + linkSees,
		Example: `  vmmc link ls
  vmmc link ls --node n1,n2
  vmmc link ls --json | jq '.links[] | select(.role == "imports")'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return where.Within(c.Context(), timeout.Control, func(ctx context.Context, a *ask.Cluster) error {
				rows, errs := a.Links(ctx)
				if err := printLinks(c.OutOrStdout(), columns(c), rows, asJSON); err != nil {
					return err
				}
				return ask.Failure("list links", errs)
			})
		},
	}
	where.Add(c)
	jsonFlag(c, &asJSON)
	return c
}

func printLinks(w io.Writer, width int, list []ask.Link, asJSON bool) error {
	if asJSON {
		return printJSON(w, struct {
			Links []ask.Link `json:"links"`
		}{list})
	}
	rows := [][]string{{"NODE", "PID", "USER", "ROLE", "PEER", "PATH", "MESSAGES", "BYTES", "NOTES", "GETS", "GOT", "ATOMICS", "ACKS", "RESUMED", "RESENT", "STATE", "IDLE", "BEGUN", "PROGRAM", "PEERPROGRAM"}}
	num := func(n uint64) string { return strconv.FormatUint(n, 10) }
	for _, l := range list {
		rows = append(rows, []string{
			l.Node, num(uint64(l.PID)), l.User, l.Role, peerOf(l), l.PathName(),
			num(l.Messages), num(l.Bytes), num(l.Notes), num(l.Gets), num(l.GetBytes), num(l.Atomics), num(l.Acks), num(l.Resumes), num(l.Resent),
			l.State, l.Idle.Round(time.Second).String(), when(l.Begun), l.Program, l.PeerProgram,
		})
	}
	return printFitting(w, rows, width, fit{
		spare:   []string{"BEGUN", "RESENT", "RESUMED", "ACKS", "ATOMICS", "NOTES", "GOT", "GETS", "USER", "IDLE", "PATH", "STATE", "MESSAGES"},
		shorten: []string{"PROGRAM", "PEERPROGRAM"},
		least:   8,
	})
}

func peerOf(l ask.Link) string { return fmt.Sprintf("%s/%d", l.PeerNode, l.PeerPID) }
