package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/timeout"
)

func newClusterDown() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "down",
		Short: "Stop the cluster on this machine",
		Long: `Stop the nodes that "vmmc cluster up" started, end all their sessions with the
programs in them, and remove the files it made. When there is nothing to stop, that
is fine too.`,
		Example: `  vmmc cluster down
  vmmc cluster down --dir /tmp/lab`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := clusterDir(dir)
			if err != nil {
				return err
			}
			return down(c.OutOrStdout(), dir)
		},
	}
	clusterDirFlag(c, &dir)
	return c
}

func down(w io.Writer, dir string) error {
	// Looking first, because the lock would make the directory.
	_, err := readState(dir)
	if err == nil {
		var l *clusterLock
		if l, err = lockCluster(dir); err != nil {
			return err
		}
		defer l.release()
	}
	s, err := readState(dir)
	if errors.Is(err, os.ErrNotExist) {
		fmt.Fprintf(w, "no cluster in %s\n", dir)
		return nil
	}
	if err != nil {
		return err
	}
	n := len(s.running())
	if err := s.stop(); err != nil {
		return err
	}
	fmt.Fprintf(w, "stopped %d of %d nodes in %s\n", n, len(s.Nodes), dir)
	return nil
}

// stop ends all nodes and removes the cluster's files.
func (s *clusterState) stop() error {
	if err := s.end(s.all()); err != nil {
		return err
	}
	return s.remove()
}

// end ends nodes.
func (s *clusterState) end(nodes []*nodeState) error {
	ps := make([]process, len(nodes))
	for i, n := range nodes {
		ps[i] = n.Process
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		for _, p := range ps {
			if err := p.signal(sig); err != nil {
				return err
			}
		}
		if gone(ps, timeout.Stop) {
			return nil
		}
	}
	return fmt.Errorf("nodes %v in %s do not end, not even by SIGKILL: their files stay; try again later", s.running(), s.dir)
}
