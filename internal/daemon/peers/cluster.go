package peers

import (
	"context"
	"crypto/tls"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/systemlog"
	"github.com/vmmc-go/vmmc/internal/hosts"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// Cluster is the node's view of the others: which there are, how they are reached, and whether they
// agree.
type Cluster struct {
	cfg       Config
	roster    atomic.Pointer[Roster]
	hostsFile hostsFile
}

// Config is what a Cluster needs of its node.
type Config struct {
	Node      string // its name
	Listen    string // its address, where there is no list of nodes
	HostsFile string // that the list is from, and that is looked at again; may be empty
	Certified bool   // it has a certificate, which it needs to talk to others
	ClientTLS func(node string) *tls.Config
	Logs      *systemlog.Logs
	Ping      func() *nodev1.PingResponse // what it says of itself
	Changed   func(nodes []string)        // is called when there is another list of nodes

	Ctx context.Context // ends with the node
	Go  func(func())    // starts a goroutine, which ends soon after Ctx, unless the node is stopping
}

// New returns the view of a node that knows no nodes yet.
func New(cfg Config) *Cluster {
	c := &Cluster{cfg: cfg}
	c.roster.Store(&Roster{})
	return c
}

// Begin takes the first list of nodes, from a file as it was read, or nil. No connection may be
// served before: one from a node that is not in the list rereads the file.
func (c *Cluster) Begin(list []hosts.Host, read os.FileInfo) error {
	r, err := c.newRoster(list, nil)
	if err != nil {
		return err
	}
	c.roster.Store(r)
	c.hostsFile.placed, c.hostsFile.taken = r.places(), read
	return nil
}

// Close closes the connections that no call uses.
func (c *Cluster) Close() {
	for _, p := range c.roster.Load().peers {
		p.close()
	}
}

// Roster returns the nodes as they are now.
func (c *Cluster) Roster() *Roster { return c.roster.Load() }

// Roster is the nodes of the cluster as this one knows them. It does not change:
// another hosts file is another roster.
type Roster struct {
	hosts []hosts.Host
	peers map[string]*Peer // the other nodes
	place int              // this node's, by which its pids differ from those of others
	only  bool             // no other node may ask: a file says which ones there are

	digest uint64 // of hosts
}

// Hosts returns the nodes, in the order of the hosts file.
func (r *Roster) Hosts() []hosts.Host { return r.hosts }

// Peer returns another node, or nil.
func (r *Roster) Peer(name string) *Peer { return r.peers[name] }

// Digest is of the nodes, for others to compare with theirs.
func (r *Roster) Digest() uint64 { return r.digest }

// String names the nodes, or the first of many.
func (r *Roster) String() string { return names(r.hosts) }

// maxNames bounds the names of all nodes, in bytes: each process that joins is told
// all of them in one packet, which other things are in too.
const maxNames = 32 << 10

// PIDBlock is how many logical pids a node has; each node's begin at its place in the hosts file,
// so they are unique in the cluster.
const PIDBlock = 1_000_000

// blocks is how many nodes can have a block of logical pids.
const blocks = math.MaxUint32 / PIDBlock

// newRoster makes a list of nodes this node's, if it can be. Peers of old that are
// what they were stay, with their connections.
func (c *Cluster) newRoster(list []hosts.Host, old *Roster) (*Roster, error) {
	r := &Roster{hosts: slices.Clone(list), peers: map[string]*Peer{}, only: c.cfg.HostsFile != ""}
	if len(list) == 0 {
		r.hosts = []hosts.Host{{Name: c.cfg.Node, Control: c.cfg.Listen, Data: c.cfg.Listen}}
		r.digest = hosts.Digest(r.hosts)
		return r, nil
	}
	self := slices.IndexFunc(r.hosts, func(h hosts.Host) bool { return h.Name == c.cfg.Node })
	if self < 0 {
		return nil, code.New(code.BadConfig,
			"node %q is not in the hosts file, which names %s: use one of them", c.cfg.Node,
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
	if !c.cfg.Certified && len(r.hosts) > 1 {
		return nil, code.New(code.BadConfig,
			"node %q has other nodes to talk to but no certificate: make one with `vmmc cert node`",
			c.cfg.Node)
	}
	r.place, r.digest = hosts.Place(r.hosts, self), hosts.Digest(r.hosts)
	for _, h := range r.hosts {
		if h.Name == c.cfg.Node {
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

func (r *Roster) self(name string) hosts.Host {
	h, _ := hosts.Lookup(r.hosts, name)
	return h
}

// isMember reports whether p may belong to the cluster. A user with a certificate may; a node must
// be in the hosts file, if there is one.
func (r *Roster) isMember(p cert.Peer) bool {
	if p.Kind != cert.Node || !r.only {
		return true
	}
	_, there := hosts.Lookup(r.hosts, p.Name)
	return there
}

// places gives the name of the node at each place.
func (r *Roster) places() map[int]string {
	out := map[int]string{}
	for i, h := range r.hosts {
		out[hosts.Place(r.hosts, i)] = h.Name
	}
	return out
}

// Peer finds another node.
func (c *Cluster) Peer(name string) (*Peer, error) {
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

// NodeNames returns the current nodes. A process keeps this list for its lifetime.
func (c *Cluster) NodeNames() []string {
	nodes := c.roster.Load().hosts
	hs := make([]string, len(nodes))
	for i, o := range nodes {
		hs[i] = o.Name
	}
	return hs
}

// Place is the node's place in the hosts file, which keeps its pids apart from those of other
// nodes. It does not change while the node runs.
func (c *Cluster) Place() int { return c.roster.Load().place }

// OwnPID reports whether this node gives out pid.
func (c *Cluster) OwnPID(pid uint32) bool {
	return pid%PIDBlock != 0 && int(pid/PIDBlock) == c.Place()
}

// Self returns this node as the hosts file has it.
func (c *Cluster) Self() hosts.Host { return c.roster.Load().self(c.cfg.Node) }

// ListenAddrs returns the addresses that this node listens on, of which addr is the first.
func (c *Cluster) ListenAddrs(addr string) []string {
	addrs := []string{addr}
	if self := c.Self(); self.Data != "" && self.Data != self.Control {
		addrs = append(addrs, self.Data)
	}
	return addrs
}

// DataAddress returns the address that importers dial, of a node that listens on addr.
func (c *Cluster) DataAddress(addr string) string {
	if self := c.Self(); self.Data != "" {
		if _, port, err := net.SplitHostPort(self.Data); err == nil && port != "0" {
			return self.Data
		}
	}
	return addr
}
