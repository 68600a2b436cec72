package vmmc

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// NodeID names a node of the cluster (the manual's vmmc_node_t). It is opaque,
// and == says whether two are the same node (vmmc_EqualNodes); it may be a map's
// key. The zero value names none, and equals no node's.
type NodeID struct{ name string }

// String is the node's name in the hosts file; [Process.NodeToName] also says
// whether there is such a node.
func (n NodeID) String() string { return n.name }

// MarshalText makes node ids usable in JSON and on command lines.
func (n NodeID) MarshalText() ([]byte, error) { return []byte(n.name), nil }

// UnmarshalText takes a node's name as it stands; whether there is such a node
// shows when it is used.
func (n *NodeID) UnmarshalText(b []byte) error {
	n.name = hosts.Canonical(string(b))
	return nil
}

// PID is a logical process id, given out by the node's daemon and unique in the
// cluster. It is not the kernel's.
type PID uint32

// ProcessID is the full name of a process.
type ProcessID struct {
	Node NodeID
	PID  PID
}

func (p ProcessID) String() string {
	return fmt.Sprintf("process %d on node %q", p.PID, p.Node.name)
}

// Node is this process's node (vmmc_MyNode).
func (p *Process) Node() NodeID { return NodeID{p.id.Node} }

// PID is this process's logical process id (vmmc_MyPid).
func (p *Process) PID() PID { return PID(p.id.PID) }

// ID is this process's full name.
func (p *Process) ID() ProcessID { return ProcessID{p.Node(), p.PID()} }

// AllHosts are the nodes of the cluster, in the order of the hosts file. The
// list does not change while the process runs (vmmc_AllHosts).
func (p *Process) AllHosts() []NodeID {
	out := make([]NodeID, len(p.hosts))
	for i, h := range p.hosts {
		out[i] = NodeID{h}
	}
	return out
}

// NameToNode finds a node by its name (vmmc_NameToNode), in whatever case. The error
// is [ErrNoSuchNode].
func (p *Process) NameToNode(name string) (NodeID, error) {
	canonical := hosts.Canonical(name)
	for _, h := range p.hosts {
		if h == canonical {
			return NodeID{h}, nil
		}
	}
	return NodeID{}, failf(fmt.Sprintf("find node %q", name), ErrNoSuchNode, "no node %q: the nodes are %v", name, p.hosts)
}

// HostName is the machine's own name (vmmc_MyHostName). It need not be the
// node's, which the hosts file gives: that is [Process.Node]. A machine that
// does not know its name is called by the node's.
func (p *Process) HostName() string {
	name, err := os.Hostname()
	if err != nil {
		return p.id.Node
	}
	return name
}

// NodeToName is the name of a node in the hosts file (vmmc_NodeToName). The
// error is [ErrNoSuchNode], also for the zero NodeID.
func (p *Process) NodeToName(n NodeID) (string, error) {
	if !slices.Contains(p.hosts, n.name) {
		return "", failf("name of a node", ErrNoSuchNode, "no node %q: the nodes are %v", n.name, p.hosts)
	}
	return n.name, nil
}

// SessionHosts are the nodes of this process's session (vmmc_SessionHosts):
// those that the environment variable VMMCHOSTS names, in its order, each once.
// Names in it are separated by blanks or commas. The variable is read when the
// process joins.
//
// Without the variable they are the nodes that have the session (vmmc session add),
// in the order in which it was made on them. A node that cannot be reached is among
// them if it was made a part of the session together with one that can. The first
// call asks the nodes, which takes up to two seconds if one does not answer. If this
// node has no session of that name, a session is a name only, and the nodes are all,
// as [Process.AllHosts] has them.
//
// The list does not change after the first call that succeeds; it is a copy that the
// caller may keep.
//
// Errors: [ErrClosed]; [ErrNoSuchNode] if VMMCHOSTS names a node that is not in the hosts file;
// without the variable [ErrNoSuchSession] if the session was deleted, and
// [ErrNoDaemon] or [ErrTimeout] if the node does not answer.
func (p *Process) SessionHosts() ([]NodeID, error) {
	if p.sessionHosts.err != nil {
		return nil, p.sessionHosts.err
	}
	p.sessionHosts.mu.Lock()
	defer p.sessionHosts.mu.Unlock()
	if p.sessionHosts.hosts == nil {
		hosts, err := p.askSessionHosts()
		if err != nil {
			return nil, fail(fmt.Sprintf("nodes of session %q", p.session), p.interrupted(p.ctx, err))
		}
		p.sessionHosts.hosts = hosts
	}
	return slices.Clone(p.sessionHosts.hosts), nil
}

// askSessionHosts asks the node for the nodes of the session. Those that joined the
// cluster after this process are not among the nodes that it knows.
func (p *Process) askSessionHosts() ([]NodeID, error) {
	ctx, stop := context.WithTimeout(p.ctx, timeout.Control)
	defer stop()
	if err := p.checkOpen(ctx); err != nil {
		return nil, err
	}
	a, fds, err := ask[nodeproto.SessionNodesAnswer](ctx, p, nodeproto.SessionNodes, nodeproto.Empty{}, nil)
	closeAll(fds)
	if err != nil {
		return nil, err
	}
	hosts := []NodeID{}
	for _, name := range a.Nodes {
		if slices.Contains(p.hosts, name) {
			hosts = append(hosts, NodeID{name})
		}
	}
	return hosts, nil
}

// sessionHostList is the process's list of its session's nodes.
type sessionHostList struct {
	env string // VMMCHOSTS when the process joined; spawned programs get it too
	err error  // what is wrong in env

	mu    sync.Mutex
	hosts []NodeID // nil: the node is to be asked. Guarded by mu.
}

// chooseHosts reads VMMCHOSTS. What is wrong in it is an error for a caller that asks
// for the nodes, and not for programs that never do.
func (p *Process) chooseHosts(env string, inSession bool) {
	p.sessionHosts.env = env
	words := strings.FieldsFunc(env, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	if len(words) == 0 {
		if !inSession {
			p.sessionHosts.hosts = p.AllHosts()
		}
		return
	}
	var unknown []string
	for _, w := range words {
		n := NodeID{w}
		switch {
		case !slices.Contains(p.hosts, w):
			unknown = append(unknown, w)
		case !slices.Contains(p.sessionHosts.hosts, n):
			p.sessionHosts.hosts = append(p.sessionHosts.hosts, n)
		}
	}
	if unknown != nil {
		p.sessionHosts.err = failf(fmt.Sprintf("nodes of the session (VMMCHOSTS=%q)", env), ErrNoSuchNode,
			"no node %q: the nodes are %v; names are separated by blanks or commas", unknown, p.hosts)
	}
}
