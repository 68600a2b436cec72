package daemon

import (
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/hosts"
)

// cluster is the node's view of the others: which there are, how they are reached, and whether they
// agree.
type cluster struct {
	n         *Node
	roster    atomic.Pointer[roster]
	hostsFile hostsFile
}

// roster is the nodes of the cluster as this one knows them. It does not change:
// another hosts file is another roster.
type roster struct {
	hosts []hosts.Host
	peers map[string]*peer // the other nodes
	place int              // this node's, by which its pids differ from those of others
	only  bool             // no other node may ask: a file says which ones there are

	digest uint64 // of hosts, for other nodes to compare with theirs
}

// maxNames bounds the names of all nodes, in bytes: each process that joins is told
// all of them in one packet, which other things are in too.
const maxNames = 32 << 10

// blocks is how many nodes can have a block of logical pids.
const blocks = math.MaxUint32 / block

// newRoster makes a list of nodes this node's, if it can be. Peers of old that are
// what they were stay, with their connections.
func (c *cluster) newRoster(list []hosts.Host, old *roster) (*roster, error) {
	r := &roster{hosts: slices.Clone(list), peers: map[string]*peer{}, only: c.n.cfg.HostsFile != ""}
	if len(list) == 0 {
		r.hosts = []hosts.Host{{Name: c.n.cfg.Name, Control: c.n.cfg.Listen, Data: c.n.cfg.Listen}}
		r.digest = hosts.Digest(r.hosts)
		return r, nil
	}
	self := slices.IndexFunc(r.hosts, func(h hosts.Host) bool { return h.Name == c.n.cfg.Name })
	if self < 0 {
		return nil, code.New(code.BadConfig,
			"node %q is not in the hosts file, which names %s: use one of them", c.n.cfg.Name,
			names(r.hosts))
	}
	if last := hosts.Place(r.hosts, len(r.hosts)-1); last >= blocks {
		return nil, code.New(code.BadConfig, "the hosts file has %d places for nodes: at most %d", last+1,
			blocks)
	}
	size := 0
	for _, h := range r.hosts {
		size += len(h.Name) + len(`"",`)
	}
	if size > maxNames {
		return nil, code.New(code.BadConfig,
			"the names of the %d nodes in the hosts file take %d bytes: at most %d; use shorter names",
			len(r.hosts), size, maxNames)
	}
	if c.n.cfg.Identity == nil && len(r.hosts) > 1 {
		return nil, code.New(code.BadConfig,
			"node %q has other nodes to talk to but no certificate: make one with `vmmc cert node`",
			c.n.cfg.Name)
	}
	r.place, r.digest = hosts.Place(r.hosts, self), hosts.Digest(r.hosts)
	for _, h := range r.hosts {
		if h.Name == c.n.cfg.Name {
			continue
		}
		if old != nil {
			if p := old.peers[h.Name]; p != nil && p.host.Control == h.Control && p.host.Data == h.Data {
				r.peers[h.Name] = p
				continue
			}
		}
		r.peers[h.Name] = c.newPeer(h)
	}
	return r, nil
}

func (r *roster) self(name string) hosts.Host {
	h, _ := hosts.Lookup(r.hosts, name)
	return h
}

// isMember reports whether p may belong to the cluster. A user with a certificate may; a node must
// be in the hosts file, if there is one.
func (r *roster) isMember(p cert.Peer) bool {
	if p.Kind != cert.Node || !r.only {
		return true
	}
	_, there := hosts.Lookup(r.hosts, p.Name)
	return there
}

// places gives the name of the node at each place.
func (r *roster) places() map[int]string {
	out := map[int]string{}
	for i, h := range r.hosts {
		out[hosts.Place(r.hosts, i)] = h.Name
	}
	return out
}

// peer finds another node.
func (c *cluster) peer(name string) (*peer, error) {
	r := c.roster.Load()
	if p := r.peers[name]; p != nil {
		return p, nil
	}
	return nil, code.New(code.NoSuchNode, "no node %q: the nodes are %s", name, names(r.hosts))
}

// mostNamed is how many nodes errors and lines of a log name.
const mostNamed = 32

func names(hs []hosts.Host) string {
	var s []string
	for _, h := range hs[:min(len(hs), mostNamed)] {
		s = append(s, h.Name)
	}
	if len(hs) > mostNamed {
		s = append(s, fmt.Sprintf("... (%d in all)", len(hs)))
	}
	return strings.Join(s, ", ")
}

// nodeNames returns the current nodes. A process keeps this list for its lifetime.
func (c *cluster) nodeNames() []string {
	nodes := c.roster.Load().hosts
	hs := make([]string, len(nodes))
	for i, o := range nodes {
		hs[i] = o.Name
	}
	return hs
}

// place is the node's place in the hosts file, which keeps its pids apart from those of other
// nodes. It does not change while the node runs.
func (c *cluster) place() int { return c.roster.Load().place }

// ownPID reports whether this node gives out pid.
func (c *cluster) ownPID(pid uint32) bool { return pid%block != 0 && int(pid/block) == c.place() }

// listenAddrs returns the addresses that this node listens on.
func (c *cluster) listenAddrs() []string {
	addrs := []string{c.n.cfg.Listen}
	if self := c.roster.Load().self(c.n.cfg.Name); self.Data != "" && self.Data != self.Control {
		addrs = append(addrs, self.Data)
	}
	return addrs
}

// dataAddress returns the address that importers dial, of a node that listens on addr.
func (c *cluster) dataAddress(addr string) string {
	if self := c.roster.Load().self(c.n.cfg.Name); self.Data != "" {
		if _, port, err := net.SplitHostPort(self.Data); err == nil && port != "0" {
			return self.Data
		}
	}
	return addr
}
