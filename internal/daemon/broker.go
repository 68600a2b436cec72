package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/fairshare"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// broker brings importers and exporters together: it matches imports with exports, and introduces
// links.
type broker struct {
	n *Node

	mu      sync.Mutex
	pending map[uint64]*pendingLink // by number
}

// importBuffer requests an import from the exporter, on this node or on another one.
func (p *process) importBuffer(
	ctx context.Context, r nodeproto.ImportRequest, pages []int,
) (any, []int, error) {
	if r.Name != nil {
		g, err := p.importNamed(ctx, *r.Name)
		return g, nil, err
	}
	im := nodeproto.Importer{Process: *p.id.Load(), User: p.user, Session: p.session}
	if r.Node == p.n.cfg.Name {
		a := importQuery{im: im, id: r.ID, serial: r.Serial, sameNode: true}
		if r.Link {
			if err := p.checkDescriptors(pages); err != nil {
				return nil, nil, err
			}
			a.link, a.pages = random64(), pages
		}
		g, fds, err := p.n.broker.awaitGrant(ctx, r.PID, a)
		if e, lerr := p.n.registry.lookup(r.PID); err == nil && lerr == nil {
			p.mu.Lock()
			if e.conn.Alive() { // else disconnected tells its grantors, or is about to
				p.grantors[e] = struct{}{}
			}
			p.mu.Unlock()
			if g.Link != nil {
				p.logLink(g.Link.Link, im, g.Exporter, false)
				e.countLink()
			}
		}
		return g, fds, err
	}
	o, err := p.n.cluster.Peer(r.Node)
	if err != nil {
		return nil, nil, err
	}
	ctx, _, leave, err := p.n.network.use(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	g, err := o.Import(ctx, im, r)
	p.n.cluster.CompareFirst(o)
	return g, nil, err
}

// importQuery is an import request. On one node a non-zero link also asks for a link; its pages
// stay the caller's. A non-zero serial is of the export that is meant, and no other one is awaited.
type importQuery struct {
	im       nodeproto.Importer
	id       uint32
	serial   uint64
	sameNode bool
	link     uint64
	pages    []int
}

// awaitGrant waits until process pid exports a buffer, checks rights (broker_rights.go), and
// requests a grant from the exporter. It ends early when the exporter dies. A request that carries
// a link's pages does not wait, because descriptors are scarce.
func (b *broker) awaitGrant(
	ctx context.Context, pid uint32, a importQuery,
) (nodeproto.Grant, []int, error) {
	if a.link != 0 && b.n.registry.wouldAwait(pid) {
		return nodeproto.Grant{}, nil, code.New(code.InProgress, "process %d on node %q is not there yet",
			pid, b.n.cfg.Name)
	}
	p, err := b.n.registry.awaitJoined(ctx, pid)
	if err != nil {
		return nodeproto.Grant{}, nil, err
	}
	leave, err := p.exports.countForeignWait(a.im)
	if err != nil {
		return nodeproto.Grant{}, nil, err
	}
	defer leave()
	for {
		e, there, changed, err := p.exports.admit(a.im, a.id)
		if err != nil {
			return nodeproto.Grant{}, nil, err
		}
		if there && (a.serial == 0 || a.serial == e.Serial) {
			g, fds, err := p.offer(ctx, a, e.Serial)
			if !errors.Is(err, code.BadRbufState) {
				// Else the export was closed meanwhile: wait for the next one.
				return g, fds, err
			}
		}
		if a.serial != 0 {
			return nodeproto.Grant{}, nil, code.New(code.BadRbufState,
				"process %d on node %q has ended the export of buffer %d that was meant", pid, b.n.cfg.Name, a.id)
		}
		if a.link != 0 {
			return nodeproto.Grant{}, nil, code.New(code.InProgress,
				"process %d on node %q does not export buffer %d yet", pid, b.n.cfg.Name, a.id)
		}
		enter := fairshare.Leave(ctx)
		select {
		case <-changed:
			enter()
		case <-p.conn.Lost():
			enter()
			return nodeproto.Grant{}, nil, code.New(code.NoSuchProcess,
				"process %d on node %q ended before it exported buffer %d", pid, b.n.cfg.Name, a.id)
		case <-ctx.Done():
			enter()
			return nodeproto.Grant{}, nil, ctxCause(ctx, "process %d on node %q exports no buffer %d", pid,
				b.n.cfg.Name, a.id)
		}
	}
}

// offer requests a grant from the exporter. The request is not cancelled with the importer's: its
// answer would leave a grant that no importer knows of.
func (p *process) offer(
	ctx context.Context, a importQuery, serial uint64,
) (g nodeproto.Grant, fds []int, err error) {
	octx, stop := context.WithTimeout(context.WithoutCancel(ctx), timeout.Control)
	defer stop()
	r := nodeproto.OfferRequest{Importer: a.im, ID: a.id, Serial: serial, SameNode: a.sameNode}
	var s sockets
	pages := a.pages
	if a.link != 0 {
		if len(pages) != nodeproto.LinkPages {
			pages = nil // the exporter grants the import alone
		} else if s, err = p.sockets(); err != nil {
			return nodeproto.Grant{}, nil, err
		}
		defer s.close()
		r.Order = p.linkOrder.Add(1)
		// An importer that cancelled this request may have requested another link since, which this
		// one would replace. It cancelled first: either that is seen here, or the other link has
		// the higher order.
		if ctx.Err() != nil {
			return nodeproto.Grant{}, nil, ctxCause(ctx, "import of buffer %d", a.id)
		}
	}
	g, fds, err = nodeproto.Ask[nodeproto.Grant](octx, p.conn, nodeproto.Offer, r, s.with(pages))
	// Not what it claims: the importer would send its data to another process.
	g.Exporter = *p.id.Load()
	g.Found, g.Buffer = nil, 0
	switch { // nor its other claims
	case a.link == 0:
		g.Link = nil
	case g.Link != nil:
		g.Link = &nodeproto.Connected{
			SameNode: true, Link: a.link, Imports: g.Link.Imports, Lost: g.Link.Lost,
		}
	}
	if err == nil && ctx.Err() != nil {
		closeAll(fds)
		p.withdraw(octx, nodeproto.ReleaseRequest{
			Importer: r.Importer.Process, Exporter: g.Exporter, Handle: g.Handle,
		})
		return nodeproto.Grant{}, nil, ctxCause(ctx, "import of buffer %d", r.ID)
	}
	if err == nil {
		err = errors.Join(p.checkDescriptors(fds), g.CheckLabel())
	}
	if err == nil && g.Link != nil {
		fds, err = s.add(fds)
	}
	if err != nil {
		closeAll(fds)
		return nodeproto.Grant{}, nil, p.answerError(err)
	}
	return g, fds, nil
}

// sockets are the two ends of a link on this node, in the making. The daemon makes them, not the
// exporter, which could keep a descriptor of the importer's end and have descriptors come there
// that the importer does not await: SO_PASSRIGHTS is the socket's, not the descriptor's. The zero
// value is of no link.
type sockets struct {
	exporters, importers int
	made                 bool
}

// sockets makes those of a link to p.
func (p *process) sockets() (s sockets, err error) {
	if s.exporters, s.importers, err = unix.StreamPair(); err != nil {
		return s, code.New(code.NoMem, "the sockets of a link cannot be made: %v", err)
	}
	s.made = true
	// Before either process has its end, and may send any.
	unix.RefuseRights(s.exporters)
	unix.RefuseRights(s.importers)
	// By its exporter, which has its own end before the importer has this one.
	p.conn.Reached(s.importers)
	return s, nil
}

// with gives the importer's pages and the exporter's end, which stay the caller's.
func (s *sockets) with(pages []int) []int {
	if !s.made {
		return pages
	}
	return append(slices.Clone(pages), s.exporters)
}

// add gives the importer's end to the descriptors of an exporter's answer.
func (s *sockets) add(fds []int) ([]int, error) {
	switch {
	case !s.made:
		return fds, code.New(code.Protocol,
			"the exporter answers with a link, of which it was given no socket")
	case len(fds) >= nodeproto.MaxDescriptors:
		return fds, code.New(code.Protocol,
			"the exporter answers with %d descriptors beside a link's socket, at most %d fit", len(fds),
			nodeproto.MaxDescriptors-1)
	}
	fds = append(fds, s.importers)
	s.importers = -1
	return fds, nil
}

// close closes what was not given away.
func (s *sockets) close() {
	if s.made {
		closeAll([]int{s.exporters, s.importers})
	}
}

// checkDescriptors refuses descriptors for another process that are not memory. The receiver would
// have to close them, which can take as long as their sender likes.
func (p *process) checkDescriptors(fds []int) error {
	for _, fd := range fds {
		if !unix.ClosesAtOnce(fd) {
			return code.New(code.Protocol, "process %d on node %q gives a descriptor that is no memory",
				p.id.Load().PID, p.n.cfg.Name)
		}
	}
	return nil
}

// answerError names the process that did not answer in an error.
func (p *process) answerError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, code.NoDaemon): // its connection, seen from here
		return code.New(code.NoSuchProcess, "process %d on node %q has ended", p.id.Load().PID,
			p.n.cfg.Name)
	case errors.Is(err, context.DeadlineExceeded):
		return code.New(code.Timeout, "process %d on node %q does not answer its daemon", p.id.Load().PID,
			p.n.cfg.Name)
	}
	return err
}

func (p *process) withdraw(ctx context.Context, r nodeproto.ReleaseRequest) {
	fds, _ := p.conn.Call(ctx, nodeproto.Withdraw, r, nil, nil)
	closeAll(fds) // an honest process sends none
}

// release gives back a grant that never got a link. With a link, the importer gives it back there.
func (p *process) release(ctx context.Context, r nodeproto.ReleaseRequest) error {
	if r.Exporter.Node == p.n.cfg.Name {
		return p.n.broker.releaseHere(ctx, r)
	}
	o, err := p.n.cluster.Peer(r.Exporter.Node)
	if err != nil {
		return err
	}
	return o.Release(ctx, r)
}

func (b *broker) releaseHere(ctx context.Context, r nodeproto.ReleaseRequest) error {
	e, err := b.n.registry.lookupExact(ctx, r.Exporter)
	if err != nil {
		return err
	}
	e.withdraw(ctx, r)
	return nil
}

// connect introduces a link from p to an exporter, for the grants that p has there.
func (p *process) connect(
	ctx context.Context, r nodeproto.ConnectRequest, pages []int,
) (any, []int, error) {
	ctx, stop := context.WithTimeout(ctx, timeout.Control)
	defer stop()
	im := nodeproto.Importer{Process: *p.id.Load(), User: p.user, Session: p.session}
	if r.Exporter.Node != p.n.cfg.Name {
		o, err := p.n.cluster.Peer(r.Exporter.Node)
		if err != nil {
			return nil, nil, err
		}
		ctx, epoch, leave, err := p.n.network.use(ctx)
		if err != nil {
			return nil, nil, err
		}
		defer leave()
		s := r.Secrecy
		s.Encrypt = s.Encrypt || p.n.cfg.Encrypt
		c, err := o.Connect(ctx, im, r.Exporter, s)
		c.Epoch = epoch
		if err == nil {
			p.logLink(c.Link, im, r.Exporter, c.Encrypt)
		}
		return c, nil, err
	}
	e, err := p.n.registry.lookupExact(ctx, r.Exporter)
	if err == nil {
		err = p.checkDescriptors(pages)
	}
	if err == nil && len(pages) != nodeproto.LinkPages {
		err = code.New(code.Protocol, "a link with %d descriptors, want %d", len(pages),
			nodeproto.LinkPages)
	}
	if err != nil {
		return nil, nil, err
	}
	s, err := e.sockets()
	if err != nil {
		return nil, nil, err
	}
	defer s.close()
	a := nodeproto.AcceptRequest{
		Link: random64(), Order: e.linkOrder.Add(1), Importer: im.Process, SameNode: true,
	}
	if ctx.Err() != nil { // see offer
		return nil, nil, ctxCause(ctx, "link to process %d", r.Exporter.PID)
	}
	accepted, fds, err := nodeproto.Ask[nodeproto.Accepted](ctx, e.conn, nodeproto.Accept, a,
		s.with(pages))
	if err == nil {
		err = e.checkDescriptors(fds)
	}
	if err == nil {
		fds, err = s.add(fds)
	}
	if err != nil {
		closeAll(fds)
		fds = nil
	}
	if err == nil {
		p.logLink(a.Link, im, r.Exporter, false)
		e.countLink()
	}
	return nodeproto.Connected{
		SameNode: true, Link: a.Link, Imports: accepted.Imports, Lost: accepted.Lost,
	}, fds, e.answerError(err)
}

// logLink counts and logs a link of this process.
func (p *process) logLink(
	link uint64, im nodeproto.Importer, exporter nodeproto.ProcessID, encrypted bool,
) {
	p.countLink()
	p.n.logs.DriverFile.Info("a link was introduced", "link", fmt.Sprintf("%#x", link), "importer",
		im.Process, "exporter", exporter, "user", im.User, "session", im.Session, "encrypted", encrypted)
}

func (p *process) countLink() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.linkCount++
}

// pendingLink is a link that an importer on another node may dial, with the exporter that gets the
// connection.
type pendingLink struct {
	exporter   *process
	key        []byte
	epoch      uint64 // of the network
	redialable bool   // may be redialled until the exporter says otherwise. Guarded by broker.mu.
}

// prepareLink prepares a link for an importer on another node. Only the two processes get the key,
// over control connections. s is the importer's.
func (b *broker) prepareLink(
	ctx context.Context, im nodeproto.Importer, exporter nodeproto.ProcessID, s nodeproto.Secrecy,
) (nodeproto.Connected, error) {
	e, err := b.n.registry.lookupExact(ctx, exporter)
	if err != nil {
		return nodeproto.Connected{}, err
	}
	if b.n.tcp == nil {
		return nodeproto.Connected{}, code.New(code.BadConfig, "node %q does not listen for other nodes",
			b.n.cfg.Name)
	}
	ctx, epoch, leave, err := b.n.network.use(ctx)
	if err != nil {
		return nodeproto.Connected{}, err
	}
	defer leave()
	key := make([]byte, wire.KeySize)
	_, _ = rand.Read(key) // never fails since Go 1.24
	s.Encrypt = s.Encrypt || b.n.cfg.Encrypt
	a := nodeproto.AcceptRequest{
		Link: random64(), Order: e.linkOrder.Add(1), Importer: im.Process, Key: key, Secrecy: s,
	}
	b.mu.Lock()
	b.pending[a.Link] = &pendingLink{exporter: e, key: key, epoch: epoch}
	b.mu.Unlock()
	// An importer dials at once.
	time.AfterFunc(2*timeout.Control, func() { b.forgetUndialled(a.Link) })
	accepted, fds, err := nodeproto.Ask[nodeproto.Accepted](ctx, e.conn, nodeproto.Accept, a, nil)
	closeAll(fds) // an honest process sends none
	if err == nil && s.Encrypt && !accepted.Encrypt {
		err = code.New(code.NotImplemented,
			"process %d on node %q makes no encrypted links, which are asked for: its vmmc is older",
			exporter.PID, b.n.cfg.Name)
	}
	if err != nil {
		b.forgetLink(a.Link, e)
		return nodeproto.Connected{}, e.answerError(err)
	}
	e.logLink(a.Link, im, exporter, accepted.Encrypt)
	addr := b.n.cluster.DataAddress(b.n.tcp.Addr())
	if f := b.n.cfg.DataFor; f != nil {
		addr = f(im.Process.Node)
	}
	return nodeproto.Connected{Link: a.Link, Key: key, Address: addr, Secrecy: accepted.Secrecy}, nil
}

// forgetLink removes a link of an exporter: no importer can dial it any more.
func (b *broker) forgetLink(link uint64, exporter *process) {
	b.mu.Lock()
	if d := b.pending[link]; d != nil && d.exporter == exporter {
		delete(b.pending, link)
	}
	b.mu.Unlock()
}

// forgetExporter removes all links of an exporter.
func (b *broker) forgetExporter(exporter *process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.pending, func(_ uint64, d *pendingLink) bool { return d.exporter == exporter })
}

// forgetAll removes all links.
func (b *broker) forgetAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.pending)
}

// find returns the link of that number, or nil.
func (b *broker) find(link uint64) *pendingLink {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pending[link]
}

// allowRedial lets an importer dial the link again after it has lost its connection.
func (b *broker) allowRedial(d *pendingLink) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d.redialable = true
}

// forgetUndialled removes a link that should have been dialled by now, unless it may be redialled.
func (b *broker) forgetUndialled(link uint64) {
	b.mu.Lock()
	if d := b.pending[link]; d != nil && !d.redialable {
		delete(b.pending, link)
	}
	b.mu.Unlock()
}

// takeLinks lets importers on other nodes redial the links of a process of this node. Only a link's
// two ends know its number: an importer that announces the number as its own before the exporter
// does harms only its own link.
func (b *broker) takeLinks(p *process, links []nodeproto.LinkAgain) error {
	if len(links) == 0 || b.n.network.reason() != "" {
		return nil
	}
	p.mu.Lock()
	p.rejoinedLinks += len(links)
	many := p.rejoinedLinks > maxLinks
	p.mu.Unlock()
	if many {
		return code.New(code.NoMem, "a process comes back with more than %d links", maxLinks)
	}
	epoch := b.n.network.currentEpoch()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range links {
		if d := b.pending[l.Link]; d != nil && d.exporter != p || len(l.Key) != wire.KeySize {
			b.n.logs.Server.Warn("a process rejoined with a link that is not its own", "realpid",
				p.cred.PID, "user", p.user)
			continue
		}
		b.pending[l.Link] = &pendingLink{exporter: p, key: l.Key, epoch: epoch, redialable: true}
	}
	return nil
}

// handOver passes the connection on the control connection that was checked.
func (p *process) handOver(c *net.TCPConn, r nodeproto.HandoverRequest) error {
	select {
	case p.pendingHandovers <- struct{}{}:
		defer func() { <-p.pendingHandovers }()
	case <-time.After(timeout.Hello):
		return code.New(code.Timeout, "process %d leaves %d connections unanswered", p.id.Load().PID,
			maxHandovers)
	}
	_ = c.SetDeadline(time.Time{})
	fd, err := unix.Borrow(c)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	ctx, stop := context.WithTimeout(context.Background(), timeout.Control)
	defer stop()
	fds, err := p.conn.Call(ctx, nodeproto.Handover, r, []int{fd}, nil)
	closeAll(fds) // an honest process sends none
	return p.answerError(err)
}
