package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/mount"
	"github.com/vmmc-go/vmmc/internal/serve"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

func newSessionAdd() *cobra.Command {
	var where ask.Flags
	var credentials string
	r := &nodev1.AddSessionRequest{}
	c := &cobra.Command{
		Use:   "add [flags] SESSION",
		Short: "Make a session on the nodes of a cluster",
		Long: `Make a session on all nodes of the cluster, or on those that --node names; on all
of them or, if one fails, on none. The name may have any characters.

The drive is a letter and a colon, as in K:, and is an entry of each node's drive
directory; "-" takes one that is free, which need not be the same on all nodes.
With --share the drive is made for that directory of the node, and removed with
the session; without, it must be there. A share of another machine, //server/path
or \\server\path (CIFS) or server:/path (NFS), is mounted by each node, if that
may mount and has mount.cifs or mount.nfs, and unmounted with the session. Output of programs goes to the directory
--out in the drive, which is made if it is not there.

What the share's server asks for is read from the file --credentials, "-" for
standard input: the lines username=NAME, password=TEXT and perhaps domain=NAME, as
mount.cifs has them, or two lines, the user and the password. At a terminal "-"
asks for both. The nodes do not keep them.

The session's programs run as the user who makes it; root may name another one.
` + sessionStatus,
		Example: `  vmmc session add --share /home/guest --out /tmp test
  vmmc session add --drive K: --share /srv/jobs --out /out --node n1,n2 test
  vmmc session add --drive F: --out /tmp test
  vmmc session add --share //fs/guest --credentials ~/.fs --out /tmp test
  vmmc session add --share fs:/export/jobs --out /tmp test`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			r.Name = args[0]
			if credentials != "" {
				if !mount.IsRemote(r.Share) {
					return serve.Flag("credentials", credentials, errNoServer)
				}
				var err error
				if r.Credentials, err = readCredentials(credentials, c.InOrStdin(), c.ErrOrStderr()); err != nil {
					return serve.Flag("credentials", credentials, err)
				}
			}
			return where.Within(c.Context(), 2*timeout.Control+timeout.Mount, func(ctx context.Context, a *ask.Cluster) error {
				return blame(c, a.AddSession(ctx, r), "drive", "share", "out", "user")
			})
		},
	}
	f := c.Flags()
	f.StringVar(&r.Drive, "drive", "-", "`letter` and colon of the drive, or - for a free one")
	f.StringVar(&r.Share, "share", "", "`directory` on the nodes, or share of another machine, that the drive stands for")
	f.StringVar(&credentials, "credentials", "", "`file` with what the share's server asks for, or - for standard input")
	f.StringVar(&r.OutputDirectory, "out", "", "`directory` for output, absolute within the drive (needed)")
	f.StringVar(&r.User, "user", "", "`name` of the user that programs run as (default: the caller)")
	where.Add(c)
	return c
}

// blame has an error name the flag whose value it is about: the node that has refused that knows no
// flags.
func blame(c *cobra.Command, err error, flags ...string) error {
	if err == nil {
		return nil
	}
	for _, name := range flags {
		f := c.Flags().Lookup(name)
		if value := f.Value.String(); f.Changed && len(value) > 1 &&
			strings.Contains(err.Error(), value) {
			return serve.Flag(name, value, err)
		}
	}
	return err
}

// when is a time for a table.
func when(t time.Time) string {
	if time.Since(t) < 20*time.Hour {
		return t.Local().Format("15:04:05")
	}
	return t.Local().Format("2006-01-02")
}
