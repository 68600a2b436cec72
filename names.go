package vmmc

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode"
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
// Names in it are separated by blanks or commas. Without it they are all nodes,
// as [Process.AllHosts] has them. The variable is read when the process joins,
// and the list does not change after that; it is a copy that the caller may keep.
//
// The error is [ErrNoSuchNode] if VMMCHOSTS names a node that is not in the
// hosts file.
func (p *Process) SessionHosts() ([]NodeID, error) {
	if p.session.err != nil {
		return nil, p.session.err
	}
	return slices.Clone(p.session.hosts), nil
}

// hostChoice is what VMMCHOSTS said when the process joined.
type hostChoice struct {
	env   string // as it stood; programs that this one spawns get it too
	hosts []NodeID
	err   error
}

// chooseHosts reads VMMCHOSTS. What is wrong in it is an error for who asks for
// the nodes, and not for programs that never do.
func (p *Process) chooseHosts(env string) {
	p.session = hostChoice{env: env}
	words := strings.FieldsFunc(env, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	if len(words) == 0 {
		p.session.hosts = p.AllHosts()
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
