package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vmmc-go/vmmc/internal/cluster"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// prepare makes the files of a new cluster and records them.
func prepare(dir string, nodes int) (s *clusterState, err error) {
	s = &clusterState{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.note(), s.remove())
		}
	}()
	layout, err := cluster.Prepare(dir, nodes)
	if err != nil {
		return nil, err
	}
	if err := s.shorten(layout); err != nil {
		return nil, err
	}
	for i, n := range layout.Nodes {
		s.Nodes = append(s.Nodes, nodeState{
			Name: n.Name, Address: layout.Hosts[i].Control, Socket: n.Socket,
			State: n.State, Log: filepath.Join(dir, n.Name+".log"), Args: layout.Args(i),
		})
	}
	if err := s.note(); err != nil {
		return nil, err
	}
	return s, s.write()
}

// note lists what is in the directory, which was empty before, and will be.
func (s *clusterState) note() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("list the cluster's files: %w", err)
	}
	seen := map[string]bool{lockName: true}
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			s.Entries = append(s.Entries, name)
		}
	}
	for _, e := range entries {
		add(e.Name())
	}
	for _, n := range s.Nodes {
		add(filepath.Base(n.Log))
		add(filepath.Base(n.State))
		if filepath.Dir(n.Socket) == s.dir {
			add(filepath.Base(n.Socket))
			add(filepath.Base(n.Socket) + ".lock")
			add(filepath.Base(n.Socket) + ".roll")
			add(filepath.Base(nodeproto.BellPath(n.Socket)))
		}
	}
	return nil
}

// shorten gives the nodes sockets elsewhere if the directory's name is too long
// for them.
func (s *clusterState) shorten(l *cluster.Layout) (err error) {
	for i := range l.Nodes {
		if nodeproto.CheckPath(l.Nodes[i].Socket) == nil {
			continue
		}
		if s.Sockets == "" {
			if s.Sockets, err = os.MkdirTemp(env.TempDir(), "vmmc-"); err != nil {
				return fmt.Errorf("make a directory for the sockets: %w", err)
			}
		}
		l.Nodes[i].Socket = filepath.Join(s.Sockets, l.Nodes[i].Name+".sock")
	}
	return nil
}
