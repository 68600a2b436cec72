package peers

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// hostsFile is the list of nodes as a file has it, which may change while the node
// runs.
type hostsFile struct {
	mu     sync.Mutex     // one look at a time
	placed map[int]string // each node's place, while this daemon runs
	seen   os.FileInfo    // as it was looked at last; nil: it could not be
	taken  os.FileInfo    // as it was read last
	failed string         // why it could not be looked at
}

// Watch looks at the hosts file from now on.
func (c *Cluster) Watch() {
	if c.cfg.HostsFile == "" {
		return
	}
	c.cfg.Go(func() {
		t := time.NewTicker(timeout.HostsFile)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				c.reloadHosts(true)
			case <-c.cfg.Ctx.Done():
				return
			}
		}
	})
}

// Reload reads the file again, whether it has changed or not.
func (c *Cluster) Reload() {
	c.hostsFile.mu.Lock()
	c.hostsFile.taken = nil
	c.hostsFile.mu.Unlock()
	c.reloadHosts(false)
}

// reloadHosts takes the file up when it has changed; when settled is set, only if it
// is as it was at the look before: else it may still be being written.
func (c *Cluster) reloadHosts(settled bool) {
	f := &c.hostsFile
	f.mu.Lock()
	defer f.mu.Unlock()
	now, err := os.Stat(c.cfg.HostsFile)
	if err == nil && !now.Mode().IsRegular() { // a pipe may never have anything again
		err = errors.New("it is no plain file")
	}
	if err != nil {
		f.seen = nil
		if why := err.Error(); f.failed != why { // said once; it may be about to be replaced
			f.failed = why
			c.cfg.Logs.Server.Info("the hosts file cannot be read, the node list stays as it was",
				"file", c.cfg.HostsFile, "err", err)
		}
		return
	}
	f.failed = ""
	before := f.seen
	f.seen = now
	if f.taken != nil && sameFile(f.taken, now) || settled &&
		(before == nil || !sameFile(before, now)) {
		return
	}
	f.taken = now
	list, err := hosts.ReadFile(c.cfg.HostsFile)
	if err == nil {
		err = c.applyHosts(list)
	}
	if err != nil {
		c.logHostsKept(err)
	}
}

func (c *Cluster) logHostsKept(err error) {
	c.cfg.Logs.Server.Warn("the hosts file is refused, the node list stays as it was", "file",
		c.cfg.HostsFile, "err", err)
}

func sameFile(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// applyHosts makes a list of nodes that of this node, or says why not. With the
// hosts file's mu.
func (c *Cluster) applyHosts(list []hosts.Host) error {
	if len(list) == 0 {
		return code.New(code.BadConfig, "it names no node")
	}
	old := c.roster.Load()
	was := old.self(c.cfg.Node)
	is, _ := hosts.Lookup(list, c.cfg.Node)
	if is.Name != "" && (is.Control != was.Control || is.Data != was.Data) {
		return code.New(code.BadConfig,
			"the address of this node has changed from %s to %s: stop it and start it again", addresses(was),
			addresses(is))
	}
	r, err := c.newRoster(list, old)
	if err != nil {
		return err
	}
	if err := c.hostsFile.checkPlaces(r); err != nil {
		return err
	}
	c.roster.Store(r)
	if f := c.cfg.Changed; f != nil {
		f(c.NodeNames())
	}
	var added, removed, moved []string
	for name, p := range r.peers {
		switch o := old.peers[name]; {
		case o == nil:
			added = append(added, name)
		case o != p:
			moved = append(moved, name)
		default:
			p.lists.done.Store(false)
		}
	}
	for name, o := range old.peers {
		if r.peers[name] == nil {
			removed = append(removed, name)
		}
		if r.peers[name] != o {
			o.close() // what is asked meanwhile is answered
		}
	}
	for _, l := range [][]string{added, removed, moved} {
		slices.Sort(l)
	}
	c.cfg.Logs.Server.Info("the hosts file was read again", "nodes", names(r.hosts), "added",
		strings.Join(added, ", "), "removed", strings.Join(removed, ", "), "moved",
		strings.Join(moved, ", "))
	return nil
}

func addresses(h hosts.Host) string {
	if h.Data == h.Control {
		return h.Control
	}
	return fmt.Sprintf("%s and %s", h.Control, h.Data)
}

// checkPlaces refuses what would give two nodes one block of logical pids while
// processes of both may run: a place is a node's for as long as this daemon runs.
func (f *hostsFile) checkPlaces(r *Roster) error {
	places := r.places()
	for place, name := range f.placed {
		if now, there := places[place]; there && now != name {
			return code.New(code.BadConfig, "node %q has the place of node %q, and would give out its "+
				"logical pids again: keep the order, put a line \"-\" where a node was removed, and add "+
				"nodes at the end", now, name)
		}
	}
	known := map[string]int{}
	for place, name := range f.placed {
		known[name] = place
	}
	for place, name := range places {
		if was, there := known[name]; there && was != place {
			return code.New(code.BadConfig, "node %q has moved from place %d to %d, and with that its "+
				"logical pids: keep the order, put a line \"-\" where a node was removed, and add nodes at "+
				"the end", name, was+1, place+1)
		}
	}
	for place, name := range places {
		f.placed[place] = name
	}
	return nil
}

// IsMember reports whether p belongs to the cluster. It rereads the file for an unknown node, which
// may just have been added.
func (c *Cluster) IsMember(p cert.Peer) bool {
	if c.roster.Load().isMember(p) {
		return true
	}
	c.reloadHosts(false)
	return c.roster.Load().isMember(p)
}
