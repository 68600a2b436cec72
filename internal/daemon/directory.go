package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/names"
	"github.com/vmmc-go/vmmc/internal/daemon/names/directory"
	"github.com/vmmc-go/vmmc/internal/daemon/peers"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// newDirectory is the node's part of the directory of the cluster's names.
func (n *Node) newDirectory() *directory.Directory {
	net := peers.Directory{Cluster: n.cluster}
	cfg := directory.Config{
		Node: n.cfg.Name, View: directory.NewView(n.cluster.NodeNames()), Net: net,
		Names: ownNames{n}, Older: net.Older, Log: n.logs.Server, Ctx: n.ctx, Go: n.begin,
	}
	if !strings.HasPrefix(n.cfg.Socket, "@") {
		boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
		cfg.File, cfg.Boot = n.cfg.Socket+".names", strings.TrimSpace(string(boot))
	}
	return directory.New(cfg)
}

// ownNames is the node's own names of the cluster, as the directory sees them.
type ownNames struct{ n *Node }

// registration is what the directory has of an entry.
func registration(e *names.Entry) directory.Registration {
	return directory.Registration{
		Key:   directory.Key{Scope: e.Key.Scope, Name: e.Key.Name},
		Owner: e.Owner.ID, Serial: e.Serial, Set: e.Set,
	}
}

// tableKey is a name of the directory in the node's table.
func tableKey(k directory.Key) names.Key {
	return names.Key{Scope: k.Scope, Name: k.Name, Cluster: true}
}

func (o ownNames) Holding(ctx context.Context, r directory.Registration) directory.Holding {
	// First the table, then the absent processes: one is absent before its names leave the table.
	for {
		switch e, held := o.n.names.Exact(tableKey(r.Key), r.Owner, r.Serial); {
		case e != nil && e.Owner.Alive() && held:
			return directory.HoldsName
		case e != nil && e.Owner.Alive():
			return directory.HoldsClaim
		case o.n.isStopping(): // it has closed its connections, and the processes live
			return directory.HoldsClaim
		case !o.n.registry.journal.IsAbsent(r.Owner.PID):
			return directory.HoldsNothing
		}
		if o.n.registry.journal.AwaitReturn(ctx, r.Owner.PID) != nil {
			return directory.HoldsClaim // what it has when it comes back is not known
		}
	}
}

func (o ownNames) Owned(ctx context.Context) (rs []directory.Registration, err error) {
	if err := o.n.registry.journal.AwaitReturnOfAll(ctx); err != nil {
		return nil, err
	}
	for _, e := range o.n.names.OfCluster() {
		rs = append(rs, registration(e))
	}
	return rs, nil
}

// withdrawEnded takes names of the cluster that have ended out of the directory. Those of a process
// that may return stay.
func (n *Node) withdrawEnded() {
	for _, e := range n.names.TakeEnded() {
		if !n.isStopping() && !n.registry.journal.IsAbsent(e.Owner.ID.PID) {
			n.directory.Withdraw(registration(e))
		}
	}
}

// acquire claims a name of the cluster that the process claims in the node's table.
func (p *process) acquire(ctx context.Context, e *names.Entry) error {
	if view, _ := p.n.directory.View(); view.Alone() {
		return p.n.directory.Acquire(ctx, registration(e))
	}
	ctx, _, leave, err := p.n.network.use(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return p.n.directory.Acquire(ctx, registration(e))
}

// importFromCluster imports what is published under a name of the cluster.
func (p *process) importFromCluster(
	ctx context.Context, im nodeproto.Importer, k names.Key,
) (g nodeproto.Grant, err error) {
	admit := func(e *names.Entry) error { return p.n.admitNamed(e, im) }
	// A name of this node has no other owner, unless it is a set's.
	if es := p.n.names.Find(k); len(es) > 0 && !es[0].Set {
		if e, err := names.Choose(es, admit); e != nil || err != nil && im.User == k.User && im.Session == k.Session {
			return found(e), err
		}
	}
	own := k.User == im.User && k.Session == im.Session
	if view, _ := p.n.directory.View(); !view.Alone() {
		var leave func()
		if ctx, _, leave, err = p.n.network.use(ctx); err != nil {
			return g, err
		}
		defer leave()
	}
	if own {
		if err := p.n.names.Enter(p.names, k); err != nil {
			return g, err
		}
		defer p.n.names.Leave(p.names, k)
	}
	err = p.n.directory.Lookup(ctx, directory.Key{Scope: k.Scope, Name: k.Name}, own,
		func(ctx context.Context, r directory.Registration) (err error) {
			g, err = p.importRegistered(ctx, im, r)
			return err
		})
	switch {
	case err == nil:
		return g, nil
	case !own && (errors.Is(err, names.ErrAbsent) || errors.Is(err, code.NoRights)):
		return nodeproto.Grant{}, refusedNamed(im, k)
	case ctx.Err() != nil:
		return nodeproto.Grant{}, fmt.Errorf("the %v is not published: %w", k, err)
	}
	return nodeproto.Grant{}, err
}

// found is an export of this node that has a name.
func found(e *names.Entry) nodeproto.Grant {
	if e == nil {
		return nodeproto.Grant{}
	}
	return nodeproto.Grant{Found: &nodeproto.Found{
		PID: e.Owner.ID.PID, Incarnation: e.Owner.ID.Incarnation, Buffer: e.ID, Serial: e.Serial,
		Slot: e.Slot, State: e.State, Set: e.Set,
	}}
}

// importRegistered imports from one owner that the directory has named.
func (p *process) importRegistered(
	ctx context.Context, im nodeproto.Importer, r directory.Registration,
) (g nodeproto.Grant, err error) {
	if r.Owner.Node == p.n.cfg.Name {
		var e *names.Entry
		if e, err = p.n.exactNamed(ctx, im, r); err == nil {
			return found(e), nil
		}
	} else {
		var o *peers.Peer
		if o, err = p.n.cluster.Peer(r.Owner.Node); err == nil {
			g, err = o.ImportRegistered(ctx, im, r)
			p.n.cluster.CompareFirst(o)
		}
	}
	return g, ownerError(ctx, r, err)
}

// ownerError says what an error of an owner means for a look-up.
func ownerError(ctx context.Context, r directory.Registration, err error) error {
	absent := []error{
		code.BadRbufState, code.NoSuchProcess, code.StaleImport, code.NotImplemented, code.NoSuchNode,
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() == nil && slices.ContainsFunc(absent, func(a error) bool { return errors.Is(err, a) }):
		return names.ErrAbsent
	case r.Set && ctx.Err() == nil && (errors.Is(err, code.Timeout) || errors.Is(err, code.Unreachable)):
		return fmt.Errorf("%w: %w", err, directory.ErrNextOwner)
	}
	return err
}

// exactNamed finds an export of this node that the directory has named, for an importer.
func (n *Node) exactNamed(
	ctx context.Context, im nodeproto.Importer, r directory.Registration,
) (*names.Entry, error) {
	if err := n.registry.journal.AwaitReturn(ctx, r.Owner.PID); err != nil {
		return nil, err
	}
	e, err := n.names.AwaitExact(ctx, tableKey(r.Key), r.Owner, r.Serial)
	if err == nil && !e.Owner.Alive() {
		err = names.ErrAbsent
	}
	if err == nil {
		err = n.admitNamed(e, im)
	}
	if errors.Is(err, names.ErrAbsent) {
		err = code.New(code.BadRbufState, "process %d on node %q has the %v no more", r.Owner.PID,
			n.cfg.Name, tableKey(r.Key))
	}
	return e, err
}

// grantRegistered grants an importer of another node what a process of this one has published under
// a name of the cluster.
func (n *Node) grantRegistered(
	ctx context.Context, im nodeproto.Importer, r directory.Registration,
) (g nodeproto.Grant, buffer uint32, err error) {
	e, err := n.exactNamed(ctx, im, r)
	if err != nil {
		return g, 0, err
	}
	p, err := n.registry.lookupExact(ctx, e.Owner.ID)
	if err != nil {
		return g, 0, err
	}
	g, fds, err := p.offer(ctx, importQuery{im: im, id: e.ID}, e.Serial)
	closeAll(fds)
	return g, e.ID, err
}

// maxListsAtOnce is how many nodes are asked for a list at a time.
const maxListsAtOnce = 32

// listClusterNames lists names of the cluster of all nodes.
func (p *process) listClusterNames(
	ctx context.Context, r nodeproto.ListNamesRequest,
) (out nodeproto.NameList, err error) {
	// Not the turn of lists of this node: another node that lists waits for that one, and this one
	// for its.
	leave, err := p.n.clusterListing.enter(ctx, p.user)
	if err != nil {
		return out, err
	}
	defer leave()
	nodes := p.n.cluster.NodeNames()
	lists, errs := make([]nodeproto.NameList, len(nodes)), make([]error, len(nodes))
	ctx, stop := context.WithTimeoutCause(ctx, timeout.Ping,
		code.New(code.Unreachable, "a node does not list its names within %v", timeout.Ping))
	defer stop()
	var all sync.WaitGroup
	room := make(chan struct{}, maxListsAtOnce)
	for i, node := range nodes {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			if node == p.n.cfg.Name {
				lists[i], errs[i] = p.listOwn(ctx, r)
				return
			}
			o, err := p.n.cluster.Peer(node)
			if err == nil {
				lists[i], err = o.ListNames(ctx, p.user, p.session, r)
			}
			if errors.Is(err, code.NotImplemented) {
				return // no process of it has a name of the cluster
			}
			errs[i] = err
		})
	}
	all.Wait()
	for i, l := range lists {
		for _, row := range l.Rows {
			row.Node = nodes[i]
			out.Rows = append(out.Rows, row)
		}
		out.More = out.More || l.More
		if errs[i] != nil {
			out.Silent = append(out.Silent, nodes[i])
		}
	}
	if len(out.Silent) > mostSilent {
		out.Silent = append(out.Silent[:mostSilent], "others")
	}
	slices.SortFunc(out.Rows, func(a, b nodeproto.NameRow) int {
		return cmp.Or(
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.PID, b.PID), cmp.Compare(a.Buffer, b.Buffer),
		)
	})
	if len(out.Rows) > nodeproto.ListedNames {
		out.Rows, out.More = out.Rows[:nodeproto.ListedNames], true
	}
	return out, nil
}

// mostSilent is how many nodes a list names that do not answer.
const mostSilent = 8
