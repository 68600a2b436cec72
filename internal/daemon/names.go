package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/names"
	"github.com/vmmc-go/vmmc/internal/fairshare"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// nameKey is a name of the process's own scope.
func (p *process) nameKey(name string, cluster bool) names.Key {
	return names.Key{
		Scope: names.Scope{User: p.user, Session: p.session}, Name: name, Cluster: cluster,
	}
}

// announce records an export, or its end. Names end with their export.
func (p *process) announce(r nodeproto.ExportRequest, begin bool) error {
	ended, err := p.exports.announce(r, begin)
	if ended != 0 {
		p.n.names.EndExport(p.names, ended)
		p.n.withdrawEnded()
	}
	return err
}

// publish gives an export of the process a name.
func (p *process) publish(
	ctx context.Context, r nodeproto.PublishRequest,
) (nodeproto.Published, error) {
	err := p.claimName(ctx, r)
	var taken *names.TakenError
	if errors.As(err, &taken) {
		return nodeproto.Published{Taken: &taken.Owner}, nil
	}
	return nodeproto.Published{}, err
}

func (p *process) claimName(ctx context.Context, r nodeproto.PublishRequest) error {
	err := nodeproto.CheckName(r.Name)
	if err == nil {
		err = p.checkExported(r)
	}
	if err != nil {
		return err
	}
	e, held, err := p.n.names.Claim(ctx, p.nameKey(r.Name, r.Cluster), p.names, r)
	if held || err != nil {
		return err
	}
	// A process that is absent may have the name. It returns it before it is present. The claim is
	// in the table by now: so a process that becomes absent later has not had the name, or was
	// dropped after its departure was noted, which this waits for.
	err = p.n.registry.journal.AwaitReturnOf(ctx, p.cred.UID, p.session)
	if err == nil { // an export that ended before the claim was there has not ended it
		err = p.checkExported(r)
	}
	if err == nil {
		err = p.n.registry.journal.NoteName(*p.id.Load())
	}
	if err == nil && r.Cluster {
		err = p.acquire(ctx, e)
	}
	err = p.n.names.Settle(ctx, e, err)
	p.n.withdrawEnded() // also of a claim that the directory has agreed to, and that has ended since
	return err
}

// checkExported refuses a name of an export that is not there. A serial of 0 is none.
func (p *process) checkExported(r nodeproto.PublishRequest) error {
	if _, there := p.exports.of(r.ID, r.Serial); !there || r.Serial == 0 {
		return code.New(code.BadRbufState, "process %d on node %q has ended the export of buffer %d",
			p.id.Load().PID, p.n.cfg.Name, r.ID)
	}
	return nil
}

// restoreNames takes the names of a process that rejoins, and returns those that it cannot have any
// more.
func (p *process) restoreNames(rs []nodeproto.PublishRequest) (lost []nodeproto.LostName) {
	var first error
	for i, r := range rs {
		err := nodeproto.CheckName(r.Name)
		if err == nil {
			err = p.checkExported(r)
		}
		if err == nil {
			err = p.restoreName(r)
		}
		if err != nil {
			lost = append(lost, lostName(i, err))
			first = cmp.Or(first, err)
		}
	}
	if first != nil {
		if more, ok := p.logLimiter.Allow(time.Now()); ok {
			p.n.logs.Server.Warn("a process rejoined with names that it cannot have", "pid", p.id.Load().PID,
				"user", p.user, "names", len(lost), "the first", first, "more", more)
		}
	}
	return lost
}

// restoreName takes one of them.
func (p *process) restoreName(r nodeproto.PublishRequest) error {
	k := p.nameKey(r.Name, r.Cluster)
	err := p.n.names.Restore(k, p.names, r)
	if err == nil && r.Cluster {
		p.restoreRegistration(k, r.Serial)
	}
	p.n.withdrawEnded()
	return err
}

// restoreRegistration tells the directory of a name of the cluster that was restored, unless it has
// ended since.
func (p *process) restoreRegistration(k names.Key, serial uint64) {
	e, held := p.n.names.Exact(k, *p.id.Load(), serial)
	if !held {
		return
	}
	if order, err := p.n.names.Order(e); err == nil {
		p.n.directory.Restore(registration(e, order))
		p.n.names.EndAgain(e)
	}
}

// lostName says why the name at i of an AgainRequest is lost.
func lostName(i int, err error) nodeproto.LostName {
	if taken := (*names.TakenError)(nil); errors.As(err, &taken) {
		return nodeproto.LostName{At: i, Taken: &taken.Owner}
	}
	l := nodeproto.LostName{At: i, Code: code.Unknown, Why: err.Error()}
	errors.As(err, &l.Code)
	return l
}

// importNamed finds what is published under a name.
func (p *process) importNamed(
	ctx context.Context, r nodeproto.NameRef,
) (nodeproto.Grant, error) {
	if err := nodeproto.CheckName(r.Name); err != nil {
		return nodeproto.Grant{}, err
	}
	im := nodeproto.Importer{Process: *p.id.Load(), User: p.user, Session: p.session}
	k := p.nameKey(r.Name, r.Cluster)
	if r.User != nil {
		k.User, k.Session = *r.User, ""
	}
	if r.Session != nil {
		k.Session = *r.Session
	}
	if r.Cluster {
		return p.importFromCluster(ctx, im, k)
	}
	if r.Node != "" && r.Node != p.n.cfg.Name {
		return p.importNamedElsewhere(ctx, im, r.Node, k)
	}
	e, err := p.n.findNamed(ctx, p.names, im, k)
	if err != nil {
		return nodeproto.Grant{}, err
	}
	return found(e), nil
}

// importNamedElsewhere imports what is published under a name on another node.
func (p *process) importNamedElsewhere(
	ctx context.Context, im nodeproto.Importer, node string, k names.Key,
) (nodeproto.Grant, error) {
	o, err := p.n.cluster.Peer(node)
	if err != nil {
		return nodeproto.Grant{}, err
	}
	ctx, _, leave, err := p.n.network.use(ctx)
	if err != nil {
		return nodeproto.Grant{}, err
	}
	defer leave()
	// A wait there counts here as one for this process's own name, whose user it has. No name of a
	// node has a "/".
	here := p.nameKey(node+"/"+k.Name, false)
	if err := p.n.names.Enter(p.names, here); err != nil {
		return nodeproto.Grant{}, err
	}
	defer p.n.names.Leave(p.names, here)
	g, err := o.ImportName(ctx, im, &nodev1.ImportNameRequest{
		Name: k.Name, OwnerUser: k.User, OwnerSession: k.Session,
	})
	p.n.cluster.CompareFirst(o)
	return g, err
}

// Limits on the imports of one other node that look up names here at a time, so that its users do
// not fill the node for each other.
const (
	maxUserLookups = 4_096  // of one user
	maxNodeLookups = 16_384 // of all its users
)

// remoteLookups counts the imports of other nodes that look up names here.
type remoteLookups struct {
	mu    sync.Mutex
	nodes map[string]*remoteNode // present while it has lookups. Guarded by mu.
}

// remoteNode is another node. Guarded by remoteLookups.mu.
type remoteNode struct {
	lookups int
	users   map[string]*remoteUser // present while it has lookups
}

// remoteUser is a user of another node.
type remoteUser struct {
	lookups int // Guarded by remoteLookups.mu.
	owner   names.Owner
}

// begin counts a lookup until end is called. o is the importer's user in the table of names.
func (t *remoteLookups) begin(node, user string) (o *names.Owner, end func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[node]
	if n == nil {
		n = &remoteNode{users: map[string]*remoteUser{}}
	}
	u := n.users[user]
	if u == nil {
		u = &remoteUser{owner: names.Owner{MostWaits: maxUserLookups}}
	}
	if n.lookups >= maxNodeLookups || u.lookups >= maxUserLookups {
		return nil, nil, code.New(code.NoMem,
			"%d imports of node %q look for names already, %d of them of user %q", n.lookups, node, u.lookups, user)
	}
	if t.nodes == nil {
		t.nodes = map[string]*remoteNode{}
	}
	t.nodes[node], n.users[user] = n, u
	n.lookups++
	u.lookups++
	return &u.owner, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if u.lookups--; u.lookups == 0 {
			delete(n.users, user)
		}
		if n.lookups--; n.lookups == 0 {
			delete(t.nodes, node)
		}
	}, nil
}

// grantNamed grants an importer of another node what is published under a name here.
func (n *Node) grantNamed(
	ctx context.Context, im nodeproto.Importer, k names.Key,
) (g nodeproto.Grant, buffer uint32, err error) {
	if err := nodeproto.CheckName(k.Name); err != nil {
		return g, 0, err
	}
	o, end, err := n.lookups.begin(im.Process.Node, im.User)
	if err != nil {
		return g, 0, err
	}
	defer end()
	for pause := minNamePause; ; pause = min(2*pause, maxNamePause) {
		e, err := n.findNamed(ctx, o, im, k)
		if err != nil {
			return g, 0, err
		}
		p, err := n.registry.lookupExact(ctx, e.Owner.ID)
		if err == nil {
			var fds []int
			g, fds, err = p.offer(ctx, importQuery{im: im, id: e.ID}, e.Serial)
			closeAll(fds)
		}
		switch {
		case errors.Is(err, code.BadRbufState), errors.Is(err, code.NoSuchProcess):
			// The export or its process has just ended, and the name with it.
		case e.Set && errors.Is(err, code.Timeout): // it may be stopped: the next one in turn
		default:
			return g, e.ID, err
		}
		if !timeout.Sleep(ctx, pause) {
			return g, 0, ctxCause(ctx, "the %v", k)
		}
	}
}

// Pauses between attempts to get a grant of an export that has a name and is just ending.
const (
	minNamePause = time.Millisecond
	maxNamePause = 250 * time.Millisecond
)

// findNamed returns the export that a name is for. An importer of the name's own user and session
// waits for it as o. Another one is refused at once, with one text where the
// name is not there and where it is not for the importer.
func (n *Node) findNamed(
	ctx context.Context, o *names.Owner, im nodeproto.Importer, k names.Key,
) (*names.Entry, error) {
	admit := func(e *names.Entry) error { return n.admitNamed(e, im) }
	if k.User == im.User && k.Session == im.Session {
		return n.names.Wait(ctx, o, k, admit)
	}
	if e, _ := names.Choose(n.names.Find(k), admit); e != nil {
		return e, nil
	}
	return nil, refusedNamed(im, k)
}

// refusedNamed is the error of an importer of another user or session.
func refusedNamed(im nodeproto.Importer, k names.Key) error {
	return code.New(code.NoRights,
		"the %v is not there, its owner does not answer, or it is not for process %d on node %q (%v)", k,
		im.Process.PID, im.Process.Node, names.Scope{User: im.User, Session: im.Session})
}

// admitNamed refuses an importer that may not import the export of an entry.
func (n *Node) admitNamed(e *names.Entry, im nodeproto.Importer) error {
	p, err := n.registry.lookup(e.Owner.ID.PID)
	if err != nil || p.names != e.Owner {
		return names.ErrAbsent
	}
	x, there, _, err := p.exports.admit(im, e.ID)
	switch {
	case !there || x.Serial != e.Serial:
		return names.ErrAbsent
	case err != nil:
		return fmt.Errorf("the %v: %w", e.Key, err)
	}
	return nil
}

// listNames lists names of the process's user and session, one request of a user at a time: a
// list looks at all names of the session.
func (p *process) listNames(
	ctx context.Context, r nodeproto.ListNamesRequest,
) (out nodeproto.NameList, err error) {
	if _, err := path.Match(r.Pattern, ""); err != nil || len(r.Pattern) > nodeproto.MaxPattern {
		return out, code.New(code.BadArg, "%.64q is no pattern of at most %d bytes", r.Pattern,
			nodeproto.MaxPattern)
	}
	if r.Cluster {
		r.Node = ""
	}
	if r.Node != "" && r.Node != p.n.cfg.Name {
		o, err := p.n.cluster.Peer(r.Node)
		if err != nil {
			return out, err
		}
		defer fairshare.MayWait(ctx)()
		return o.ListNames(ctx, p.user, p.session, r)
	}
	if r.Cluster {
		return p.listClusterNames(ctx, r)
	}
	return p.listOwn(ctx, r)
}

// listOwn lists names of this node.
func (p *process) listOwn(
	ctx context.Context, r nodeproto.ListNamesRequest,
) (out nodeproto.NameList, err error) {
	leave, err := p.n.listing.enter(ctx, p.user)
	if err != nil {
		return out, err
	}
	defer leave()
	after := names.Position{
		Name: r.After, Cluster: r.Cluster, PID: r.AfterPID, Buffer: r.AfterBuffer,
	}
	rows, more := p.n.namesAfter(names.Filter{User: &p.user, Session: &p.session}, after,
		func(k names.Key) bool { return k.Cluster == r.Cluster && matchName(r.Pattern, k.Name) })
	for _, e := range rows {
		out.Rows = append(out.Rows, nodeproto.NameRow{
			Name: e.Key.Name, PID: e.Owner.ID.PID, Buffer: e.ID, Size: e.size, Set: e.Set,
		})
	}
	out.More = more
	return out, nil
}

// matchName reports whether a name matches a pattern of package path. Names that begin with a dot
// are those of packages, and only a pattern that begins with one matches them.
func matchName(pattern, name string) bool {
	if name[0] == '.' && !strings.HasPrefix(pattern, ".") {
		return false
	}
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// listedName is an entry whose owner lives and has the export.
type listedName struct {
	*names.Entry
	owner *process
	size  int
}

// namesAfter returns names after a position, and whether others follow. There is at least one if
// others follow.
func (n *Node) namesAfter(
	f names.Filter, after names.Position, match func(names.Key) bool,
) (rows []listedName, more bool) {
	for {
		page := n.names.Page(f, after, nodeproto.ListedNames+1, func(e *names.Entry) bool {
			return match(e.Key)
		})
		if more = len(page) > nodeproto.ListedNames; more {
			page = page[:nodeproto.ListedNames]
		}
		for _, e := range page {
			p, err := n.registry.lookup(e.Owner.ID.PID)
			if err != nil || p.names != e.Owner || !e.Owner.Alive() {
				continue
			}
			if x, there := p.exports.of(e.ID, e.Serial); there {
				rows = append(rows, listedName{e, p, x.Size})
			}
		}
		if len(rows) > 0 || !more {
			return rows, more
		}
		after = page[len(page)-1].Position()
	}
}
