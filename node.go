package vmmc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/nodeconn"
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
	return NodeID{}, failf(fmt.Sprintf("find node %q", name), ErrNoSuchNode,
		"no node %q: the nodes are %v", name, p.hosts)
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
// them if it was made a part of the session together with one that can. If this
// node has no session of that name, a session is a name only, and the nodes are all,
// as [Process.AllHosts] has them.
//
// The first call asks the nodes, which takes up to two seconds if one does not answer,
// and at most ten if this node's daemon does not. It ends with [Process.Close]. Calls
// that are made meanwhile wait for it.
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
	a, fds, err := nodeconn.Ask[nodeproto.SessionNodesAnswer](ctx, &p.node, nodeproto.SessionNodes, nodeproto.Empty{}, nil)
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
	hosts []NodeID // nil: the node is to be asked. Guarded by mu once Open has set it.
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

// handleLogged handles a request of the daemon and logs it.
func (p *Process) handleLogged(
	ctx context.Context, m nodeproto.Method, body []byte, fds []int,
) (any, []int, error) {
	start := time.Now()
	out, outFDs, err := p.handleRequest(ctx, m, body, fds)
	p.logDaemonRequest(m, time.Since(start), err)
	return out, outFDs, err
}

// handleRequest answers the daemon. It owns fds.
func (p *Process) handleRequest(
	_ context.Context, m nodeproto.Method, body []byte, fds []int,
) (any, []int, error) {
	switch m {
	case nodeproto.Offer:
		r, err := nodeproto.Decode[nodeproto.OfferRequest](body)
		if err != nil {
			closeAll(fds)
			return nil, nil, err
		}
		return p.importers.handleOffer(r, fds)
	case nodeproto.Accept:
		r, err := nodeproto.Decode[nodeproto.AcceptRequest](body)
		if err != nil {
			closeAll(fds)
			return nil, nil, err
		}
		return p.importers.handleAccept(r, fds)
	case nodeproto.Handover:
		r, err := nodeproto.Decode[nodeproto.HandoverRequest](body)
		if err != nil || len(fds) != 1 {
			closeAll(fds)
			return nil, nil, code.New(code.Protocol, "handover with %d descriptors: %v", len(fds), err)
		}
		foreign.Own(fds[0]) // the node has accepted it
		return nodeproto.Empty{}, nil, p.importers.handleHandover(r, fds[0])
	case nodeproto.Withdraw:
		r, err := nodeproto.Decode[nodeproto.ReleaseRequest](body)
		closeAll(fds)
		if err == nil {
			p.importers.handleWithdraw(r.Importer, r.Handle)
		}
		return nodeproto.Empty{}, nil, err
	case nodeproto.Sever:
		r, err := nodeproto.Decode[nodeproto.SeverRequest](body)
		closeAll(fds)
		if err != nil {
			return nil, nil, err
		}
		return nodeproto.Severed{Links: p.handleSever(r)}, nil, nil
	case nodeproto.LoseName:
		r, err := nodeproto.Decode[nodeproto.LoseNameRequest](body)
		closeAll(fds)
		if err == nil {
			p.loseNames([]nodeproto.PublishRequest{r.PublishRequest}, []nodeproto.LostName{{Taken: &r.Taken}},
				"after a change of the list of nodes")
		}
		return nodeproto.Empty{}, nil, err
	}
	closeAll(fds)
	return nil, nil, code.New(code.NotImplemented,
		"unknown request %d: the daemon is newer than this program's vmmc", m)
}

// handleSever ends links with other nodes because this node or the other one was taken down, and
// returns their number. Exports stay: importers import again later.
func (p *Process) handleSever(r nodeproto.SeverRequest) int {
	// ErrGone, as for every end of a link that this process did not choose, with the reason.
	why := link.Down("%w", code.New(code.Unreachable, "%s", r.Why))
	p.associations.recordSever(r, why)
	responders, links := p.importers.severed(r), p.exporters.severed(r, why)
	for _, responder := range responders {
		if responder.ExpectEnd(why); !r.Soon {
			responder.Sever(why)
		}
	}
	for _, l := range links {
		if l.requester.ExpectEnd(why); !r.Soon {
			l.requester.Sever(why)
		}
	}
	return len(responders) + len(links)
}

// hasDeparted asks the node whether a process is known to have ended. An error says why that is not
// known.
func (m *member) hasDeparted(ctx context.Context, id nodeproto.ProcessID) (bool, error) {
	ctx, stop := context.WithTimeout(ctx, timeout.Control)
	defer stop()
	d, fds, err := nodeconn.Ask[nodeproto.Departure](ctx, &m.node, nodeproto.Departed, id, nil)
	closeAll(fds)
	return err == nil && d.Departed, err
}

// forgetLink tells the node that a dialled link has ended, so that it accepts no more dials for it.
func (m *member) forgetLink(l uint64) {
	if l == 0 {
		return
	}
	m.begin(func() {
		ctx, stop := context.WithTimeout(m.ctx, timeout.Control)
		defer stop()
		_, fds, err := nodeconn.Ask[nodeproto.Empty](ctx, &m.node, nodeproto.Forget, nodeproto.ForgetRequest{Link: l}, nil)
		closeAll(fds)
		if err != nil {
			m.log.Debug("the node was not told of a link's end", "link", l, "err", err)
		}
	})
}

// rejoin identifies this process to a new daemon and announces its exports and its links.
func (p *Process) rejoin(ctx context.Context, c *nodeproto.Conn) (rejoined func(), err error) {
	p.importers.dropUnlinked()
	p.memory.mu.Lock()
	r := nodeproto.RejoinRequest{Version: nodeproto.Version, Process: p.id, Pass: p.rejoinToken}
	for _, peer := range p.importers.byID {
		r.Order = max(r.Order, peer.order)
	}
	p.memory.mu.Unlock()
	counters, err := p.engine.Counters()
	if err != nil {
		return nil, err
	}
	defer closeAll([]int{counters})
	w, fds, err := nodeproto.Ask[nodeproto.Welcome](ctx, c, nodeproto.Rejoin, r, []int{counters})
	closeAll(fds)
	switch {
	case errors.Is(err, code.NoDaemon) && !c.Alive(), errors.Is(err, code.InProgress):
		return nil, err // a daemon that hung up may have given its reason on an earlier connection
	case err != nil:
		return nil, p.node.Refused(err)
	case w.Process != p.id:
		return nil, p.node.Refused(code.New(code.Protocol, "it takes process %v for %v", p.id, w.Process))
	}
	p.linksWithImport.Store(w.Introduces)
	p.daemonNames.Store(w.Names)
	exports, a := p.announcements()
	if n := len(a.Names); n > 0 && !w.Names {
		p.log.Warn("the daemon is older than names: those of this process are not known until the next one", "names", n)
		a.Names = nil
	}
	for _, e := range exports {
		if len(e.permit) > 0 { // its permissions may fill a packet by themselves
			if fds, err = c.Call(ctx, nodeproto.Export, e.announcement(), nil, nil); err != nil {
				return nil, err
			}
			closeAll(fds)
		}
	}
	for !a.Last {
		part := nodeproto.AgainRequest{}
		part.Exports, a.Exports = takeBatch(a.Exports, nodeproto.AgainEntries/2)
		part.Links, a.Links = takeBatch(a.Links, nodeproto.AgainEntries/2)
		if len(part.Exports)+len(part.Links) == 0 { // names may fill a packet by themselves
			part.Names, a.Names = takeBatch(a.Names, nodeproto.AgainNames)
		}
		a.Last = len(a.Exports)+len(a.Links)+len(a.Names) == 0
		part.Last = a.Last
		wait := ctx
		if part.Last { // from here on the daemon takes a closed connection for this process's end
			wait = p.ctx
		}
		answer, fds, err := nodeproto.Ask[nodeproto.AgainAnswer](wait, c, nodeproto.Again, part, nil)
		closeAll(fds)
		if err != nil {
			return nil, err
		}
		p.loseNames(part.Names, answer.Lost, "over a restart of the daemon")
	}
	return func() {
		// An export that was closed during the absence could not be withdrawn from the daemon.
		for _, e := range exports {
			if e.closed.Load() {
				if err := p.withdrawExport(e); err != nil {
					p.log.Warn("the node was not told that an export has ended", "buffer", e.id, "err", err)
				}
			}
		}
	}, nil
}

// takeBatch splits off n entries, or all if there are fewer.
func takeBatch[T any](all []T, n int) (part, rest []T) {
	n = min(len(all), n)
	return all[:n], all[n:]
}

// announcements returns the exports, their names and the resumable links that a new daemon must
// know. The list includes exports that are still being made; Process.Export announces these once
// more. It has no name that is still being claimed: see Export.publish.
func (p *Process) announcements() (offered []*Export, a nodeproto.AgainRequest) {
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	p.memory.announced++
	for _, e := range p.memory.exports {
		if e.closed.Load() {
			continue
		}
		a.Names = append(a.Names, e.names...)
		offered = append(offered, e)
		if len(e.permit) == 0 {
			a.Exports = append(a.Exports, e.announcement())
		}
	}
	for l, peer := range p.importers.pendingDials {
		if peer.attempt > 0 && peer.responder != nil && peer.responder.Terms().ReconnectLimit > 0 {
			a.Links = append(a.Links, nodeproto.LinkAgain{Link: l, Key: peer.key})
		}
	}
	return offered, a
}
