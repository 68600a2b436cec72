package vmmc

import (
	"fmt"

	"github.com/vmmc-go/vmmc/internal/hosts"
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
