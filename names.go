package vmmc

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

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
	if p.session.err != nil {
		return nil, p.session.err
	}
	p.session.mu.Lock()
	defer p.session.mu.Unlock()
	if p.session.hosts == nil {
		hosts, err := p.askSessionHosts()
		if err != nil {
			return nil, fail(fmt.Sprintf("nodes of session %q", p.party), err)
		}
		p.session.hosts = hosts
	}
	return slices.Clone(p.session.hosts), nil
}

// askSessionHosts asks the node for the nodes of the session. Those that joined the
// cluster after this process are not among the nodes that it knows.
func (p *Process) askSessionHosts() ([]NodeID, error) {
	ctx, stop := context.WithTimeout(p.life, timeout.Control)
	defer stop()
	if err := p.usable(ctx); err != nil {
		return nil, err
	}
	a, fds, err := ask[local.SessionNodesAnswer](ctx, p, local.SessionNodes, local.Empty{}, nil)
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

// hostChoice says which nodes the process takes for those of its session.
type hostChoice struct {
	env string // VMMCHOSTS when the process joined; programs that this one spawns get it too
	err error  // what is wrong in it

	mu    sync.Mutex
	hosts []NodeID // nil: the node is to be asked. Guarded by mu.
}

// chooseHosts reads VMMCHOSTS. What is wrong in it is an error for a caller that asks
// for the nodes, and not for programs that never do.
func (p *Process) chooseHosts(env string, inSession bool) {
	p.session.env = env
	words := strings.FieldsFunc(env, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	if len(words) == 0 {
		if !inSession {
			p.session.hosts = p.AllHosts()
		}
		return
	}
	var unknown []string
	for _, w := range words {
		n := NodeID{w}
		switch {
		case !slices.Contains(p.hosts, w):
			unknown = append(unknown, w)
		case !slices.Contains(p.session.hosts, n):
			p.session.hosts = append(p.session.hosts, n)
		}
	}
	if unknown != nil {
		p.session.err = failf(fmt.Sprintf("nodes of the session (VMMCHOSTS=%q)", env), ErrNoSuchNode,
			"no node %q: the nodes are %v; names are separated by blanks or commas", unknown, p.hosts)
	}
}
