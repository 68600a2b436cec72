package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

func newSessionAdd() *cobra.Command {
	var where ask.Flags
	r := &nodev1.AddSessionRequest{}
	c := &cobra.Command{
		Use:   "add [flags] SESSION",
		Short: "Make a session on the nodes of a cluster",
		Long: `Make a session on all nodes of the cluster, or on those that --node names; on all
of them or, if one fails, on none. The name may have any characters.

The drive is a letter and a colon, as in K:, and is an entry of each node's drive
directory; "-" takes one that is free, which need not be the same on all nodes.
With --share the drive is made for that directory of the node, and removed with
the session; without, it must be there. Output of programs goes to the directory
--out in the drive, which is made if it is not there.

The session's programs run as the user who makes it; root may name another one.
` + sessionStatus,
		Example: `  vmmc session add --share /home/guest --out /tmp test
  vmmc session add --drive K: --share /srv/jobs --out /out --node n1,n2 test
  vmmc session add --drive F: --out /tmp test`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			r.Name = args[0]
			ctx, stop := context.WithTimeout(c.Context(), 2*timeout.Control)
			defer stop()
			a, err := where.Open(ctx)
			if err != nil {
				return err
			}
			defer a.Close()
			return a.AddSession(ctx, r)
		},
	}
	f := c.Flags()
	f.StringVar(&r.Drive, "drive", "-", "`letter` and colon of the drive, or - for a free one")
	f.StringVar(&r.Share, "share", "", "`directory` on the nodes that the drive stands for")
	f.StringVar(&r.OutputDirectory, "out", "", "`directory` for output, absolute within the drive (needed)")
	f.StringVar(&r.User, "user", "", "`name` of the user that programs run as (default: who asks)")
	where.Add(c)
	return c
}

// when is a time for a table.
func when(t time.Time) string {
	if time.Since(t) < 20*time.Hour {
		return t.Local().Format("15:04:05")
	}
	return t.Local().Format("2006-01-02")
}
