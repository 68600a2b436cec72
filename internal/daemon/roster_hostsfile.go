package daemon

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

// watchHostsFile looks at the hosts file from now on.
func (n *Node) watchHostsFile() {
	if n.cfg.HostsFile == "" {
		return
	}
	n.wg.Go(func() {
		t := time.NewTicker(timeout.HostsFile)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				n.reloadHosts(true)
			case <-n.ctx.Done():
				return
			}
		}
	})
}

// Reload reads the hosts file and the certificate again, if there are any, whether
// they have changed or not. What cannot be taken changes nothing.
func (n *Node) Reload() {
	n.identity.renew(true)
	if n.cfg.HostsFile == "" {
		n.log.Info("there is no hosts file to read again", "node", n.cfg.Name)
		return
	}
	n.hostsFile.mu.Lock()
	n.hostsFile.taken = nil
	n.hostsFile.mu.Unlock()
	n.reloadHosts(false)
}

// reloadHosts takes the file up when it has changed; when settled is set, only if it
// is as it was at the look before: else it may still be being written.
func (n *Node) reloadHosts(settled bool) {
	f := &n.hostsFile
	f.mu.Lock()
	defer f.mu.Unlock()
	now, err := os.Stat(n.cfg.HostsFile)
	if err == nil && !now.Mode().IsRegular() { // a pipe may never have anything again
		err = errors.New("it is no plain file")
	}
	if err != nil {
		f.seen = nil
		if why := err.Error(); f.failed != why { // said once; it may be about to be replaced
			f.failed = why
			n.log.Info("the hosts file cannot be looked at, the nodes are those of before", "file",
				n.cfg.HostsFile, "err", err)
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
	list, err := hosts.ReadFile(n.cfg.HostsFile)
	if err == nil {
		err = n.applyHosts(list)
	}
	if err != nil {
		n.logHostsKept(err)
	}
}

func (n *Node) logHostsKept(err error) {
	n.log.Warn("the hosts file is not taken, the nodes are those of before", "file", n.cfg.HostsFile,
		"err", err)
}

func sameFile(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// applyHosts makes a list of nodes that of this node, or says why not. With the
// hosts file's mu.
func (n *Node) applyHosts(list []hosts.Host) error {
	if len(list) == 0 {
		return code.New(code.BadConfig, "it names no node")
	}
	old := n.roster.Load()
	was := old.self(n.cfg.Name)
	is, _ := hosts.Lookup(list, n.cfg.Name)
	if is.Name != "" && (is.Control != was.Control || is.Data != was.Data) {
		return code.New(code.BadConfig,
			"the address of this node has changed from %s to %s: stop it and start it again", addresses(was),
			addresses(is))
	}
	r, err := n.newRoster(list, old)
	if err != nil {
		return err
	}
	if err := n.hostsFile.checkPlaces(r); err != nil {
		return err
	}
	n.roster.Store(r)
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
	n.log.Info("the hosts file was read again", "nodes", names(r.hosts), "added", strings.Join(added,
		", "), "removed", strings.Join(removed, ", "), "moved", strings.Join(moved, ", "))
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
func (f *hostsFile) checkPlaces(r *roster) error {
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

// isMember reports whether p belongs to the cluster. It rereads the file for an unknown node, which
// may just have been added.
func (n *Node) isMember(p cert.Peer) bool {
	if n.roster.Load().isMember(p) {
		return true
	}
	n.reloadHosts(false)
	return n.roster.Load().isMember(p)
}
