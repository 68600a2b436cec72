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
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/names"
	"github.com/vmmc-go/vmmc/internal/daemon/names/directory"
	"github.com/vmmc-go/vmmc/internal/daemon/peers"
	"github.com/vmmc-go/vmmc/internal/daemon/users"
	"github.com/vmmc-go/vmmc/internal/fairshare"
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
func registration(e *names.Entry, order uint64) directory.Registration {
	return directory.Registration{
		Key:   directory.Key{Scope: e.Key.Scope, Name: e.Key.Name},
		Owner: e.Owner.ID, Serial: e.Serial, Set: e.Set, Order: order,
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

// Lose ends a name of a process that another process has, too. The process is told: its event
// names the owner that stays.
func (o ownNames) Lose(r directory.Registration, to nodeproto.ProcessID) {
	if o.n.isStopping() { // the next daemon finds it out, too
		return
	}
	e := o.n.names.Lose(tableKey(r.Key), r.Owner, r.Serial, r.Order, to)
	if e == nil {
		return
	}
	o.n.withdrawEnded()
	o.n.logs.Server.Warn("two processes had a name, because the list of nodes has changed; one has lost it",
		"name", e.Key, "pid", r.Owner.PID, "owner", to)
	p, err := o.n.registry.lookup(r.Owner.PID)
	if err != nil || p.names != e.Owner { // it comes back, and its node cannot restore the name
		return
	}
	o.n.begin(func() {
		lost := nodeproto.LoseNameRequest{PublishRequest: e.PublishRequest, Taken: to}
		err := tellLost(o.n.ctx, p.conn, lost, func() bool {
			again, _ := o.n.names.Exact(e.Key, e.Owner.ID, e.Serial)
			return again == nil
		})
		if err != nil && o.n.ctx.Err() == nil && p.conn.Err() == nil {
			o.n.logs.Server.Warn("a process does not know that it has lost a name", "name", e.Key, "pid",
				r.Owner.PID, "err", err)
		}
	})
}

// Pauses between attempts to tell a process that has no room for a request.
const (
	minLostPause = 50 * time.Millisecond
	maxLostPause = 5 * time.Second
)

// tellLost tells a process that it has lost a name. A process that is stopped or busy learns it when
// it goes on: a call lasts as long as the connection, and is made again if the process refuses it
// for want of room. lost reports whether the export still lacks the name. A process whose connection
// has ended returns its names when it rejoins, and its node cannot restore this one.
func tellLost(
	ctx context.Context, c *nodeproto.Conn, r nodeproto.LoseNameRequest, lost func() bool,
) error {
	for pause := minLostPause; ; pause = min(2*pause, maxLostPause) {
		fds, err := c.Call(ctx, nodeproto.LoseName, r, nil, nil)
		closeAll(fds)
		passing := errors.Is(err, code.NoMem) || errors.Is(err, code.NoDaemon)
		if !passing || c.Err() != nil {
			return err
		}
		if !timeout.Sleep(ctx, pause) {
			return err
		}
		if !lost() { // it has claimed the name again
			return nil
		}
	}
}

// Limits of an answer about what the node's processes own.
const (
	returnPatience = time.Second // for processes that may come back
	maxAbsentUsers = 256
)

func (o ownNames) Owned(ctx context.Context, wait bool) (own directory.Owned, err error) {
	if wait {
		short, stop := context.WithTimeout(ctx, returnPatience)
		_ = o.n.registry.journal.AwaitReturnOfAll(short)
		stop()
	}
	// A process is absent before its names leave the table: so one whose names are not in the list is
	// absent now, or becomes so until then.
	for range 8 {
		absent, changes := o.n.registry.journal.AbsentUsers()
		es, order := o.n.names.OfCluster()
		if _, now := o.n.registry.journal.AbsentUsers(); now != changes {
			continue
		}
		if len(absent) > maxAbsentUsers {
			return own, code.New(code.Timeout, "processes of %d users have not come back to node %q", len(absent),
				o.n.cfg.Name)
		}
		for _, uid := range absent {
			own.Absent = append(own.Absent, users.Name(uid))
		}
		for _, e := range es {
			own.Registrations = append(own.Registrations, registration(e, order))
		}
		return own, nil
	}
	return own, code.New(code.Timeout, "processes of node %q are just leaving and coming back",
		o.n.cfg.Name)
}

// withdrawEnded takes names of the cluster that have ended out of the directory. Those of a process
// that may return stay.
func (n *Node) withdrawEnded() {
	for _, e := range n.names.TakeEnded() {
		if !n.isStopping() && !n.registry.journal.IsAbsent(e.Owner.ID.PID) {
			n.directory.Withdraw(registration(e.Entry, e.Order))
		}
	}
}

// acquire claims a name of the cluster that the process claims in the node's table.
func (p *process) acquire(ctx context.Context, e *names.Entry) error {
	order := func() (uint64, error) { return p.n.names.Order(e) }
	if view, _ := p.n.directory.View(); view.Alone() {
		return p.n.directory.Acquire(ctx, registration(e, 0), order)
	}
	ctx, _, leave, err := p.n.network.use(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return p.n.directory.Acquire(ctx, registration(e, 0), order)
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
	counted := k
	if !own { // counts as one for a name of this process's user; no name of a node has a "/"
		counted = p.nameKey("/"+k.Name, false)
	}
	if err := p.n.names.Enter(p.names, counted); err != nil {
		return g, err
	}
	defer p.n.names.Leave(p.names, counted)
	var refused error // the last of an owner
	err = p.n.directory.Lookup(ctx, directory.Key{Scope: k.Scope, Name: k.Name}, own,
		func(ctx context.Context, r directory.Registration) error {
			g, refused = p.importRegistered(ctx, im, r)
			return refused
		})
	switch {
	case err == nil:
		return g, nil
	// Why an owner refuses, or that it is away, would tell another user that the name is there.
	case !own && (refused != nil || errors.Is(err, names.ErrAbsent)):
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
	_, end, err := n.lookups.begin(im.Process.Node, im.User)
	if err != nil {
		return g, 0, err
	}
	defer end()
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
	defer fairshare.MayWait(ctx)()
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
	for i, err := range errs {
		if err != nil {
			out.Silent = append(out.Silent, nodes[i])
		}
	}
	if len(out.Silent) > mostSilent {
		out.Silent = append(out.Silent[:mostSilent], "others")
	}
	out.Rows, out.More = mergeNames(nodes, lists, nodeproto.ListedNames)
	return out, nil
}

// mergeNames merges the lists of nodes to a page of at most n rows, after the last of which the next
// page goes on. So it has no row behind the end of a list that has more. No two rows have one
// position, because no two nodes give out one pid.
func mergeNames(
	nodes []string, lists []nodeproto.NameList, n int,
) (rows []nodeproto.NameRow, more bool) {
	var last *nodeproto.NameRow // of a page that has more
	for i, l := range lists {
		if len(l.Rows) == 0 {
			continue
		}
		for _, row := range l.Rows {
			row.Node = nodes[i]
			rows = append(rows, row)
		}
		if end := &l.Rows[len(l.Rows)-1]; l.More && (last == nil || compareRows(*end, *last) < 0) {
			last = end
		}
	}
	slices.SortFunc(rows, compareRows)
	if last != nil {
		more = true
		rows = slices.DeleteFunc(rows, func(r nodeproto.NameRow) bool { return compareRows(r, *last) > 0 })
	}
	if len(rows) > n {
		rows, more = rows[:n], true
	}
	return rows, more
}

// compareRows orders rows by their positions.
func compareRows(a, b nodeproto.NameRow) int {
	return cmp.Or(
		cmp.Compare(a.Name, b.Name), cmp.Compare(a.PID, b.PID), cmp.Compare(a.Buffer, b.Buffer),
	)
}

// mostSilent is how many nodes a list names that do not answer.
const mostSilent = 8
