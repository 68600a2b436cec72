package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/serve"
)

// maxNodes keeps a slip of the finger from filling the machine.
const maxNodes = 64

// tries is how often a start is begun anew with other ports. Until a node binds
// the port that was found free for it, any program may be given it.
const tries = 3

func newClusterUp() *cobra.Command {
	var dir string
	var nodes int
	c := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster on this machine",
		Long: `Start nodes in the background, each with its own socket, log and certificates,
and wait until all of them answer. They run until "vmmc cluster down". The
directory must be empty or not exist. A program joins the node whose socket
VMMC_SOCKET names; copy one of the printed lines.

Everything works as on several machines: sessions, which are kept in the directory,
"vmmc run", "vmmc node", "vmmc net map". Users who have a certificate of the authority
in its directory ca need no socket.`,
		Example: `  vmmc cluster up --nodes 3
  vmmc cluster up --nodes 2 --dir /tmp/lab`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if nodes < 1 || nodes > maxNodes {
				return serve.Usage("--nodes %d: wanted 1 to %d", nodes, maxNodes)
			}
			dir, err := clusterDir(dir)
			if err != nil {
				return err
			}
			// An interrupted start stops what it has started.
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			s, err := up(ctx, dir, nodes)
			if err != nil {
				return fmt.Errorf("start a cluster in %s: %w", dir, err)
			}
			printSockets(c.OutOrStdout(), s.all())
			return nil
		},
	}
	c.Flags().IntVar(&nodes, "nodes", 2, "`number` of nodes")
	clusterDirFlag(c, &dir)
	return c
}

func up(ctx context.Context, dir string, nodes int) (*clusterState, error) {
	l, err := lockCluster(dir)
	if err != nil {
		return nil, err
	}
	defer l.release()
	if err := checkDirFree(dir); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		s, err := prepare(dir, nodes)
		if err != nil {
			return nil, err
		}
		if err = s.start(ctx, s.all()); err == nil {
			return s, nil
		}
		if err = errors.Join(err, s.stop()); try == tries || !errors.Is(err, errPortTaken) {
			return nil, err
		}
	}
}

// checkDirFree refuses a directory in which a cluster runs, or which holds anything
// but one that does not run any more, and removes that.
func checkDirFree(dir string) error {
	s, err := readState(dir)
	if err == nil {
		if running := s.running(); len(running) > 0 {
			start := ""
			if dead := s.dead(); len(dead) > 0 {
				start = fmt.Sprintf("start %s with %q, ", strings.Join(dead, ", "), s.command("start"))
			}
			return fmt.Errorf("one is up there already (%s): %sstop it with %q, or choose another directory with --dir",
				strings.Join(running, ", "), start, "vmmc cluster down --dir "+shellWord(dir))
		}
		err = s.remove()
	} else if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != lockName {
			return fmt.Errorf("the directory holds %s and no cluster: choose another with --dir", e.Name())
		}
	}
	return nil
}

func printSockets(w io.Writer, nodes []*nodeState) {
	for _, n := range nodes {
		fmt.Fprintf(w, "%s  %s  %s\n    export VMMC_SOCKET=%s\n",
			n.Name, n.Address, n.Socket, shellWord(n.Socket))
	}
}

// shellWord quotes what a shell would take apart.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("/._-@", r)
	}
	if strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
