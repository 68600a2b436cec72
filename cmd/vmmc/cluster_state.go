package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/trust"
)

// stateFile marks a directory as a cluster's.
const stateFile = "cluster.json"

// clusterState is what the tool has to remember of a cluster.
type clusterState struct {
	// Entries are the names in the directory that "up" made: all that "down"
	// removes, whatever else is there by then.
	Entries []string    `json:"entries"`
	Sockets string      `json:"sockets,omitempty"` // directory of the sockets, if another
	Nodes   []nodeState `json:"nodes"`

	dir string
}

type nodeState struct {
	Name    string   `json:"name"`
	Address string   `json:"address"`
	Socket  string   `json:"socket"`
	Log     string   `json:"log"`
	State   string   `json:"state,omitempty"` // directory
	Args    []string `json:"args"`            // of vmmcd
	Process process  `json:"process"`
}

func readState(dir string) (*clusterState, error) {
	path := filepath.Join(dir, stateFile)
	// The record says which processes to end and what to remove.
	place, err := trust.Own().Directory(dir)
	if err == nil {
		var i os.FileInfo
		if i, err = os.Lstat(path); err == nil {
			err = place.Entry(stateFile, i)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the cluster's record: %w; --dir names its directory", err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the cluster's record: %w", err)
	}
	s := &clusterState{dir: dir}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("%s: %w; is this the directory of a cluster?", path, err)
	}
	// What is removed later must lie in the directory.
	for _, e := range s.Entries {
		if !filepath.IsLocal(e) || e != filepath.Base(e) || e == "." {
			return nil, fmt.Errorf("%s: entry %q is not the name of a file; is this the directory of a cluster?", path, e)
		}
	}
	return s, nil
}

// write replaces the record as a whole, so that a tool that is killed leaves
// the old one or the new one.
func (s *clusterState) write() error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("write the cluster's record: %w", err)
	}
	path := filepath.Join(s.dir, stateFile)
	if err := trust.WriteFile(path+".new", append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the cluster's record: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write the cluster's record: %w", err)
	}
	return nil
}

// running names the nodes whose processes live.
func (s *clusterState) running() []string {
	var names []string
	for _, n := range s.Nodes {
		if n.Process.alive() {
			names = append(names, n.Name)
		}
	}
	return names
}

// all gives the nodes, to be changed.
func (s *clusterState) all() []*nodeState {
	nodes := make([]*nodeState, len(s.Nodes))
	for i := range s.Nodes {
		nodes[i] = &s.Nodes[i]
	}
	return nodes
}

// dead names the nodes whose processes do not run.
func (s *clusterState) dead() []string {
	var names []string
	for _, n := range s.Nodes {
		if !n.Process.alive() {
			names = append(names, n.Name)
		}
	}
	return names
}

// command is what to type for the cluster.
func (s *clusterState) command(what string) string {
	line := "vmmc cluster " + what
	if usual, err := clusterDir(""); err != nil || s.dir != usual {
		line += " --dir " + shellWord(s.dir)
	}
	return line
}

// clusterWith is the cluster on this machine that a socket is a node's of, or nil.
func clusterWith(socket string) *clusterState {
	path, err := filepath.Abs(socket)
	if socket == "" || err != nil {
		return nil
	}
	dirs := []string{filepath.Dir(path)}
	if usual, err := clusterDir(""); err == nil { // its sockets may be elsewhere
		dirs = append(dirs, usual)
	}
	for _, dir := range dirs {
		s, err := readState(dir)
		if err == nil && slices.ContainsFunc(s.Nodes, func(n nodeState) bool { return n.Socket == path }) {
			return s
		}
	}
	return nil
}

// endSessions ends what outlives the nodes.
func (s *clusterState) endSessions() error {
	ctx, stop := context.WithTimeout(context.Background(), 4*timeout.Stop)
	defer stop()
	for _, n := range s.Nodes {
		if n.State == "" {
			continue
		}
		if err := daemon.EndSessions(ctx, n.Name, n.State); err != nil {
			return fmt.Errorf("end the sessions of node %q: %w; its files stay", n.Name, err)
		}
	}
	return nil
}

// remove deletes what "up" made, when the nodes have ended. The record goes last but for the
// directory, so that what is interrupted can be done again.
func (s *clusterState) remove() error {
	if err := s.endSessions(); err != nil {
		return err
	}
	if s.Sockets != "" {
		if err := os.RemoveAll(s.Sockets); err != nil {
			return fmt.Errorf("remove the cluster's sockets: %w", err)
		}
	}
	for _, e := range s.Entries {
		if err := os.RemoveAll(filepath.Join(s.dir, e)); err != nil {
			return fmt.Errorf("remove the cluster's files: %w", err)
		}
	}
	for _, f := range []string{stateFile + ".new", stateFile} {
		if err := os.RemoveAll(filepath.Join(s.dir, f)); err != nil {
			return fmt.Errorf("remove the cluster's record: %w", err)
		}
	}
	return nil
}
