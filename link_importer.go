package vmmc

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// handleAccept makes the exporter's side of a link: at once for an importer on this node, else when
// the importer dials.
func (t *importers) handleAccept(r nodeproto.AcceptRequest, fds []int) (any, []int, error) {
	if !r.SameNode {
		closeAll(fds)
		if len(r.Key) != wire.KeySize {
			return nil, nil, code.New(code.Protocol, "a key of %d bytes", len(r.Key))
		}
		s, secret, err := t.terms.secrecy(&r)
		if err != nil {
			return nil, nil, err
		}
		t.memory.mu.Lock()
		defer t.memory.mu.Unlock()
		peer := t.byID[r.Importer]
		if peer == nil {
			return nil, nil, code.New(code.BadRbufState, "nothing is granted to that process: import again")
		}
		if err := peer.checkOrder(r.Order); err != nil {
			return nil, nil, err
		}
		delete(t.pendingDials, peer.link)
		peer.link, peer.key, peer.fingerprint, peer.attempt = r.Link, r.Key, secret, 0
		t.associations.ask(r.Importer)
		t.pendingDials[r.Link] = peer
		return nodeproto.Accepted{Secrecy: s}, nil, nil
	}
	a, out, err := t.acceptLocal(r.Importer, r.Order, fds)
	return a, out, err
}

// acceptLocal makes the exporter's side of a link on this node from the importer's pages and a
// socket.
func (t *importers) acceptLocal(
	id nodeproto.ProcessID, order uint64, fds []int,
) (a nodeproto.Accepted, out []int, err error) {
	if len(fds) != nodeproto.LinkDescriptors {
		closeAll(fds)
		return a, nil, code.New(code.Protocol,
			"a link with %d descriptors, want %d", len(fds), nodeproto.LinkDescriptors)
	}
	attributeDescriptors(id, fds)
	socket := fds[nodeproto.LinkPages]
	pages, out, err := t.exchangePages(fds[:nodeproto.LinkPages])
	if err != nil {
		foreign.Close(socket)
		return a, nil, err
	}
	if err := t.joinLink(id, order, socket, pages, link.Terms{PeerName: sourceName(id)}); err != nil {
		closeAll(out)
		return a, nil, err
	}
	a = nodeproto.Accepted{Imports: true}
	t.memory.mu.Lock()
	if a.Lost = t.lost; t.byID[id] != nil { // else the link has ended again
		a.Lost = t.byID[id].grantsLost
	}
	t.memory.mu.Unlock()
	return a, out, nil
}

// exchangePages maps the importer's pages and makes this side's pages.
func (t *importers) exchangePages(fds []int) (*link.Pages, []int, error) {
	peer, err := shmlayout.OpenProcess(fds[0])
	if err != nil {
		closeAll(fds[1:])
		return nil, nil, err
	}
	pages := &link.Pages{Peer: peer}
	if pages.Ring, err = shmlayout.OpenImporter(fds[1]); err != nil {
		peer.Retire()
		return nil, nil, err
	}
	if pages.Back, err = shmlayout.NewExporter(); err != nil {
		peer.Retire()
		pages.Ring.Retire()
		return nil, nil, err
	}
	out, err := dupDescriptors(t.page.Region, pages.Back.Region)
	if err != nil {
		retirePages(pages)
	}
	return pages, out, err
}

// checkOrder refuses a link that the daemon introduced before the newest one. Its importer has
// given it up, and starting it would end the link that the importer uses. memory.mu is held.
func (peer *importer) checkOrder(order uint64) error {
	if order < peer.order {
		return code.New(code.BadRbufState, "that process has asked for another link since")
	}
	peer.order = order
	return nil
}

// joinLink starts an importer's link. It owns fd and pages.
func (t *importers) joinLink(
	id nodeproto.ProcessID, order uint64, fd int, pages *link.Pages, terms link.Terms,
) error {
	t.joinMu.Lock()
	defer t.joinMu.Unlock()
	t.memory.mu.Lock()
	// it has no link, and perhaps no grant, for a moment
	if peer := t.byID[id]; peer != nil {
		peer.pendingJoins++
		defer t.endJoin(peer)
	}
	t.memory.mu.Unlock()
	t.associations.end(id)
	return t.joinLinkLocked(id, t.associations.beginPendingLink(id, false), order, 0, fd, pages, terms)
}

// joinLinkLocked is joinLink with joinMu held. a is the link's association, from beginPendingLink.
// dialled is the link's number if its importer dialled it, else 0.
func (t *importers) joinLinkLocked(
	id nodeproto.ProcessID, a *association, order, dialled uint64, fd int, pages *link.Pages,
	terms link.Terms,
) error {
	// An importer may request two links at once. The later one replaces the other; otherwise a link
	// would remain that no revocation reaches.
	defer t.associations.endPendingLink(a)
	old, err := t.severOldLink(id, order)
	if err != nil {
		t.forgetLink(dialled)
		_ = unix.Close(fd)
		retirePages(pages)
		return err
	}
	reportResumed := func() {}
	if old != nil && old.down.Load() {
		reportResumed = sync.OnceFunc(func() { t.linkStateChanged(id, false, shmlayout.ConnEstablished, nil) })
	}
	responder, missedRevokes, err := t.installLink(id, a, dialled, fd, pages, terms, reportResumed)
	if err != nil {
		t.forgetLink(dialled)
		switch {
		case old != nil:
			t.dropSuccessor(id)
		case errors.Is(err, errAssociationOver): // the importer is gone, or must import again
			t.dropGrant(id, allUnlinked)
		}
	} else {
		reportResumed()
		// not under memory.mu, which the engine takes while it holds a link
		for _, h := range missedRevokes {
			responder.SendRevoke(h)
		}
	}
	old.successorDone(err)
	return err
}

// installLink creates the responder and enters it into the tables. missedRevokes are handles whose
// revocation must still be announced: they ended after the importer was answered. reportResumed
// runs before any other event of the link.
func (t *importers) installLink(
	id nodeproto.ProcessID, a *association, dialled uint64, fd int, pages *link.Pages,
	terms link.Terms, reportResumed func(),
) (responder *link.Responder, missedRevokes []uint32, err error) {
	t.memory.mu.Lock()
	defer t.memory.mu.Unlock()
	peer := t.byID[id]
	if peer == nil || t.closed.Load() {
		_ = unix.Close(fd)
		retirePages(pages)
		return nil, nil, code.New(code.BadRbufState, "nothing is granted to that process: import again")
	}
	as := t.associations
	as.mu.Lock()
	defer as.mu.Unlock()
	if id.Node != t.id.Node && as.severCause != nil && peer.epoch <= as.refusedEpoch {
		_ = unix.Close(fd)
		retirePages(pages)
		return nil, nil, as.severCause
	}
	// PeerGone may have been reported: nothing of that process may arrive any more
	if a.state != associated {
		_ = unix.Close(fd)
		retirePages(pages)
		return nil, nil, errAssociationOver
	}
	targets := make([]*link.Target, 0, len(peer.grants))
	for _, g := range peer.grants {
		targets = append(targets, g.target)
	}
	l := new(inboundLink)
	terms.OnConnChange = func(to shmlayout.ConnState, why error) {
		reportResumed()
		l.down.Store(!to.Connected())
		t.linkStateChanged(id, false, to, why)
	}
	responder, err = link.NewResponder(t.engine, fd, pages, terms, targets, t.importHandler(id),
		func(h uint32) { t.dropGrant(id, h) },
		func(err error) { reportResumed(); t.inboundEnded(id, dialled, l, err) })
	if err != nil {
		return nil, nil, err
	}
	if id.Node != t.id.Node && as.severCause != nil && peer.epoch <= as.severedEpoch {
		responder.ExpectEnd(as.severCause) // handleSever has announced it before there was a link
	}
	l.responder, l.assoc = responder, a
	a.responders[responder] = true
	responder.Describe(shmlayout.LinkPeer(id))
	missedRevokes = peer.missedRevokes
	peer.responder, peer.inbound, peer.missedRevokes = responder, l, nil
	for _, g := range peer.grants {
		g.setState(grantLinked, responder)
	}
	if invariant.Enabled {
		t.checkTables()
	}
	return responder, missedRevokes, nil
}

// severOldLink ends the importer's previous link and returns it, or nil. The grants move to the new
// link only when nothing can reach them through the old one. memory.mu must not be held.
func (t *importers) severOldLink(
	id nodeproto.ProcessID, order uint64,
) (old *inboundLink, err error) {
	t.memory.mu.Lock()
	if peer := t.byID[id]; peer != nil {
		if err := peer.checkOrder(order); err != nil {
			t.memory.mu.Unlock()
			return nil, err
		}
		if old = peer.inbound; old != nil {
			old.successor = &successor{done: make(chan struct{}), oldReported: make(chan struct{})}
		}
		for _, g := range peer.grants {
			if g.state == grantLinked { // else the old link's end would remove the grants
				g.setState(grantUnlinked, nil)
			}
			g.target = g.target.Clone()
		}
		peer.responder, peer.inbound = nil, nil
	}
	t.memory.mu.Unlock()
	if old != nil {
		old.responder.Sever(errReplaced)
	}
	return old, nil
}

// endJoin ends one pending join of an importer, whether its link has started or failed.
func (t *importers) endJoin(peer *importer) {
	t.memory.mu.Lock()
	defer t.memory.mu.Unlock()
	if peer.pendingJoins--; peer.pendingJoins == 0 {
		peer.missedRevokes = nil
	}
	t.dropIfIdle(peer)
}

// inboundLink is an importer's link, with the state of its events: LinkDown, LinkResumed, and
// finally, once, PeerGone.
type inboundLink struct {
	responder *link.Responder // Guarded by memory.mu until the link is installed.
	assoc     *association    // Guarded like responder.
	// LinkDown was the last event. It is final once Sever has returned: Sever takes the lock under
	// which it is stored.
	down atomic.Bool
	// The link that replaces this one. Set once, under importers.joinMu and memory.mu; guarded by
	// either of them.
	successor *successor
}

// successor is the link that replaces an importer's link.
type successor struct {
	done        chan struct{} // closed when the new link has started or failed
	err         error         // why it failed; set before done is closed
	oldReported chan struct{} // closed when the end of the old link was reported, if it is
}

// successorDone records that the successor has started, or why it failed. After a failure it waits
// until the old link's end was reported, so that no further link of that importer starts before
// PeerGone.
func (l *inboundLink) successorDone(err error) {
	if l == nil {
		return
	}
	l.successor.err = err
	close(l.successor.done)
	if err != nil {
		<-l.successor.oldReported
	}
}

// errReplaced ends a link whose importer made another link because it never learned of this one.
// The importer is not gone.
var errReplaced = fmt.Errorf("%w: the importer has made another link", link.ErrClosed)

// inboundEnded cleans up after an importer's link. It reports the importer as gone unless a
// successor continues.
func (t *importers) inboundEnded(
	id nodeproto.ProcessID, dialled uint64, l *inboundLink, err error,
) {
	t.memory.mu.Lock() // once the link is there
	next := l.successor
	if next != nil {
		t.memory.mu.Unlock()
		<-next.done // the successor's start waits for no other goroutine
		if next.err != nil {
			err = link.Gone("the importer's next link could not begin: %w", next.err)
		}
		t.memory.mu.Lock()
	} else { // from here on no successor can replace it
		t.dropInbound(id, l.responder)
	}
	// If the importer never took the link up, because its call or its daemon ended first, the
	// link's end says nothing about the importer.
	gone := (next == nil || next.err != nil) &&
		(!errors.Is(err, link.ErrGone) || l.responder.Accepted())
	// In one critical section with dropInbound: no other link of the importer can end in between.
	t.associations.responderEnded(l.assoc, l.responder, gone, err)
	t.memory.mu.Unlock()
	if next != nil {
		close(next.oldReported)
	}
	if gone {
		t.reportLinkEnd(id, false, err)
	}
	t.log.Info("link from an importer ended", "importer", id, "why", err)
	t.forgetLink(dialled)
}

// dropInbound removes the grants of a link that had no successor. memory.mu is held.
func (t *importers) dropInbound(id nodeproto.ProcessID, ended *link.Responder) {
	for e := range t.memory.redirectable {
		e.importerLost(id)
	}
	peer := t.byID[id]
	if peer == nil {
		return
	}
	for _, g := range peer.grants {
		if g.responder == ended {
			g.setState(grantLost, nil)
		}
	}
	t.countLostGrants(peer)
	if peer.responder == ended {
		peer.responder, peer.inbound = nil, nil
	}
	t.dropIfIdle(peer)
}

// dropSuccessor removes the grants that were to move to a successor that failed.
func (t *importers) dropSuccessor(id nodeproto.ProcessID) {
	t.memory.mu.Lock()
	for e := range t.memory.redirectable {
		e.importerLost(id)
	}
	t.memory.mu.Unlock()
	t.dropGrant(id, allUnlinked)
}
