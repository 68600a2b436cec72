package vmmc

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/encrypt"
	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// importer is a process that was granted imports here; all fields with p.mu.
type importer struct {
	id     local.ProcessID
	who    local.Importer // as the daemon vouches for it
	grants map[uint32]*grant
	lost   uint64          // how often any had gone with a link when some of its own last did
	in     *link.Responder // nil before the link is there
	tenure *tenure         // of in

	link    uint64 // between nodes: the link that the importer is to dial
	key     []byte
	secret  []byte    // the fingerprint of the importer's certificate, if the link is encrypted
	shaking io.Closer // the connection that TLS begins on
	epoch   uint64    // of this process's node, once it has dialled
	attempt uint64    // the last that was accepted
	order   uint64    // of the latest link that was introduced
	joining int       // links of which it was answered, and which are about to begin
	missed  []uint32  // grants that ended meanwhile
	asks    bool      // it has asked for link since an association with it last began to end
}

// maxGrants bounds the imports that one process has here.
const maxGrants = 1 << 16

// handle answers the daemon. It owns fds.
func (p *Process) handle(_ context.Context, m local.Method, body []byte, fds []int) (any, []int, error) {
	switch m {
	case local.Offer:
		r, err := local.Decode[local.OfferRequest](body)
		if err != nil {
			closeAll(fds)
			return nil, nil, err
		}
		return p.offer(r, fds)
	case local.Accept:
		r, err := local.Decode[local.AcceptRequest](body)
		if err != nil {
			closeAll(fds)
			return nil, nil, err
		}
		return p.accept(r, fds)
	case local.Handover:
		r, err := local.Decode[local.HandoverRequest](body)
		if err != nil || len(fds) != 1 {
			closeAll(fds)
			return nil, nil, code.New(code.Protocol, "handover with %d descriptors: %v", len(fds), err)
		}
		foreign.Own(fds[0]) // the node has accepted it
		return local.Empty{}, nil, p.takeOver(r, fds[0])
	case local.Withdraw:
		r, err := local.Decode[local.ReleaseRequest](body)
		closeAll(fds)
		if err == nil {
			p.withdraw(r.Importer, r.Handle)
		}
		return local.Empty{}, nil, err
	case local.Sever:
		r, err := local.Decode[local.SeverRequest](body)
		closeAll(fds)
		if err != nil {
			return nil, nil, err
		}
		return local.Severed{Links: p.sever(r)}, nil, nil
	}
	closeAll(fds)
	return nil, nil, code.New(code.NotImplemented, "unknown request %d: the daemon is newer than this program's vmmc", m)
}

// offer grants an import whose rights the daemon has checked, and makes the importer's link
// if its pages came along. It owns them.
func (p *Process) offer(r local.OfferRequest, pages []int) (any, []int, error) {
	g, gr, fds, err := p.grantTo(r)
	if err != nil {
		closeAll(pages)
		return nil, nil, err
	}
	if r.Order != 0 { // see grantTo
		defer p.joined(gr.peer)
	}
	// Not under p.mu, which the engine takes while it holds a link.
	if gr.in != nil {
		gr.in.Attach(gr.target, &gr.e.closed)
		p.dropIfWithdrawn(gr)
	}
	if r.Order == 0 || len(fds)+local.LinkDescriptors > local.MaxDescriptors {
		closeAll(pages)
		return g, fds, nil
	}
	start := time.Now()
	a, more, err := p.acceptNear(r.Importer.Process, r.Order, pages)
	p.told(local.Accept, time.Since(start), err)
	if err != nil { // the importer asks for the link alone then, and hears it
		p.mu.Lock()
		there := gr.peer.grants[g.Handle] != nil
		p.mu.Unlock()
		if !there { // it went with what was to be the link
			closeAll(fds)
			return nil, nil, code.New(code.BadRbufState, "buffer %d: its import has ended with its link: %v", r.ID, err)
		}
		return g, fds, nil
	}
	g.Link = &local.Connected{Imports: a.Imports, Lost: a.Lost}
	return g, append(fds, more...), nil
}

// grantTo enters the grant into the tables.
func (p *Process) grantTo(r local.OfferRequest) (g local.Grant, gr grant, fds []int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.exports[r.ID]
	// The daemon has checked the permissions of one export, not of the id.
	if e == nil || e.closed.Load() || e.serial != r.Serial {
		return g, gr, nil, code.New(code.BadRbufState, "buffer %d is not exported any more", r.ID)
	}
	if err := e.mayImport(r.Importer.Process); err != nil {
		return g, gr, nil, err
	}
	g = local.Grant{Exporter: p.id, Size: len(e.mem), Rights: e.granted(), Slot: e.slot, State: e.alive, Place: e.place(0), Lost: p.lost}
	if e.memory != nil && r.SameNode {
		fd, ok, err := e.memory.region.DescriptorOf(e.off, len(e.mem))
		if err != nil {
			return g, gr, nil, err
		}
		if ok {
			fds, g.Mapped, g.Memory, g.Offset = []int{fd}, true, e.memory.region.Size(), e.off
			if e.redirect != nil {
				more, err := e.shareRedirection(r.Importer.Process, &g)
				if err != nil {
					closeAll(fds)
					return g, gr, nil, err
				}
				fds = append(fds, more...)
			}
		}
	}
	g.Handle = p.number()
	peer := p.peers[r.Importer.Process]
	if peer == nil {
		peer = &importer{id: r.Importer.Process, who: r.Importer, grants: map[uint32]*grant{}, lost: p.lost}
		p.peers[peer.id] = peer
	}
	if len(peer.grants) >= maxGrants {
		closeAll(fds)
		return g, gr, nil, code.New(code.NoMem, "that process has %d imports here: close some", maxGrants)
	}
	if r.Order != 0 {
		peer.joining++ // a grant that ends before the link is there is told of on it
	}
	return g, *p.admitted(peer, e, g.Handle), fds, nil
}

// granted is what importers are told of the export.
func (e *Export) granted() local.Rights {
	if e.handler == nil {
		return e.rights | local.Unheard
	}
	return e.rights
}

// admitted notes a grant; p.mu is held.
func (p *Process) admitted(peer *importer, e *Export, handle uint32) *grant {
	t := &link.Target{Handle: handle, Export: e.serial, Mem: e.mem, Write: e.rights&local.MayWrite != 0, Read: e.rights&local.MayRead != 0, Redirect: e.redirect, MayFault: e.home == nil || e.redirect != nil, Fault: e.fault}
	if e.handler != nil {
		t.Notify, t.Muted = e.notify, &e.discard
	}
	g := &grant{e: e, target: t, peer: peer, in: peer.in}
	peer.grants[handle] = g
	e.grants[handle] = g
	if invariant.Enabled {
		p.checkTables()
	}
	return g
}

// number gives a handle to a grant. The counter goes through all 2^32 handles before it gives one
// out again, so a frame for a closed import does not reach another one. Once it has begun anew,
// it skips the handles that are still in use. It never gives out 0, which stands for all grants without
// a link (allUnlinked). p.mu is held.
func (p *Process) number() uint32 {
	for {
		p.last++
		if p.last == allUnlinked {
			p.wrapped = true
			continue
		}
		if !p.wrapped || !p.handleInUse(p.last) {
			return p.last
		}
	}
}

// handleInUse reports whether an importer has a grant of this handle, or is still to be told of its
// end, or the pages of a redirectable export have it as their number. p.mu is held.
func (p *Process) handleInUse(handle uint32) bool {
	for _, peer := range p.peers {
		if peer.grants[handle] != nil || slices.Contains(peer.missed, handle) {
			return true
		}
	}
	for _, e := range p.exports {
		if e.shared != nil && e.shared.number == handle {
			return true
		}
	}
	return false
}

// accept makes the exporting side of a link: at once on this node, else when
// the importer has dialled.
func (p *Process) accept(r local.AcceptRequest, fds []int) (any, []int, error) {
	if !r.SameNode {
		closeAll(fds)
		if len(r.Key) != wire.KeySize {
			return nil, nil, code.New(code.Protocol, "a key of %d bytes", len(r.Key))
		}
		s, secret, err := p.secrecy(&r)
		if err != nil {
			return nil, nil, err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		peer := p.peers[r.Importer]
		if peer == nil {
			return nil, nil, code.New(code.BadRbufState, "nothing is granted to that process: import again")
		}
		if err := peer.latest(r.Order); err != nil {
			return nil, nil, err
		}
		delete(p.waiting, peer.link)
		peer.link, peer.key, peer.secret, peer.attempt, peer.asks = r.Link, r.Key, secret, 0, true
		p.waiting[r.Link] = peer
		return local.Accepted{Secrecy: s}, nil, nil
	}
	a, out, err := p.acceptNear(r.Importer, r.Order, fds)
	return a, out, err
}

// acceptNear makes the exporting side of a link on this node, of the importer's pages and a socket.
func (p *Process) acceptNear(id local.ProcessID, order uint64, fds []int) (a local.Accepted, out []int, err error) {
	if len(fds) != local.LinkDescriptors {
		closeAll(fds)
		return a, nil, code.New(code.Protocol, "a link with %d descriptors, want %d", len(fds), local.LinkDescriptors)
	}
	p.brought(id, fds)
	socket := fds[local.LinkPages]
	pages, out, err := p.exchangePages(fds[:local.LinkPages])
	if err != nil {
		foreign.Close(socket)
		return a, nil, err
	}
	if err := p.join(id, order, socket, pages, link.Terms{PeerName: sourceName(id)}); err != nil {
		closeAll(out)
		return a, nil, err
	}
	a = local.Accepted{Imports: true}
	p.mu.Lock()
	if a.Lost = p.lost; p.peers[id] != nil { // else the link has ended again
		a.Lost = p.peers[id].lost
	}
	p.mu.Unlock()
	return a, out, nil
}

// secrecy says of a link with another node whether it is encrypted, and with whose
// certificate then.
func (p *Process) secrecy(r *local.AcceptRequest) (s local.Secrecy, secret []byte, err error) {
	if !r.Encrypt && !p.encrypt {
		return s, nil, nil
	}
	if len(r.Fingerprint) != encrypt.PrintSize {
		return s, nil, code.New(code.NotImplemented, "links with process %d on node %q are to be encrypted, and it cannot do that: its vmmc, or its node's daemon, is older", p.id.PID, p.id.Node)
	}
	id, err := p.identity()
	if err != nil {
		return s, nil, err
	}
	return local.Secrecy{Encrypt: true, Fingerprint: id.Fingerprint()}, r.Fingerprint, nil
}

// exchangePages maps the importer's pages and makes this side's.
func (p *Process) exchangePages(fds []int) (*link.Pages, []int, error) {
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
	out, err := descriptors(p.page.Region, pages.Back.Region)
	if err != nil {
		retire(pages)
	}
	return pages, out, err
}

// latest refuses a link that comes later than one that was introduced after it:
// its importer has given it up, and would lose the one that it uses. p.mu is held.
func (peer *importer) latest(order uint64) error {
	if order < peer.order {
		return code.New(code.BadRbufState, "that process has asked for another link since")
	}
	peer.order = order
	return nil
}

// join starts the link of an importer. It owns fd and pages.
func (p *Process) join(id local.ProcessID, order uint64, fd int, pages *link.Pages, terms link.Terms) error {
	p.joins.Lock()
	defer p.joins.Unlock()
	p.mu.Lock()
	if peer := p.peers[id]; peer != nil { // which has neither a link nor, it may be, a grant for a moment
		peer.joining++
		defer p.joined(peer)
	}
	p.mu.Unlock()
	p.endAssociation(id)
	p.mu.Lock()
	a := p.beginLink(id)
	p.mu.Unlock()
	return p.joinAlone(id, a, order, 0, fd, pages, terms)
}

// joinAlone is join with joins held. a is the association of the link, as beginLink gave it. dialled is the link's
// number if its importer has dialled it.
func (p *Process) joinAlone(id local.ProcessID, a *association, order, dialled uint64, fd int, pages *link.Pages, terms link.Terms) error {
	// An importer may ask for two links at once: the later one cuts the other, or a
	// link would be left that no revocation finds.
	defer func() {
		p.mu.Lock()
		p.endMaking(a)
		p.mu.Unlock()
	}()
	old, err := p.cutOld(id, order)
	if err != nil {
		p.forgetLink(dialled)
		_ = unix.Close(fd)
		retire(pages)
		return err
	}
	goesOn := func() {}
	if old != nil && old.down.Load() {
		goesOn = sync.OnceFunc(func() { p.linkNews(id, false, true, nil) })
	}
	in, missed, err := p.enter(id, a, dialled, fd, pages, terms, goesOn)
	if err != nil {
		p.forgetLink(dialled)
		switch {
		case old != nil:
			p.dropHeir(id)
		case errors.Is(err, errOver): // its importer is gone, or has to import anew
			p.dropGrant(id, allUnlinked)
		}
	} else {
		goesOn()
		for _, h := range missed { // not under p.mu, which the engine takes while it holds a link
			in.SendRevoke(h)
		}
	}
	old.succeeded(err)
	return err
}

// enter puts the link into the tables. missed are the grants that the importer is
// still to be told of: they ended after it was answered. goesOn comes before all that is told of the link.
func (p *Process) enter(id local.ProcessID, a *association, dialled uint64, fd int, pages *link.Pages, terms link.Terms, goesOn func()) (in *link.Responder, missed []uint32, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	peer := p.peers[id]
	if peer == nil || p.closed {
		_ = unix.Close(fd)
		retire(pages)
		return nil, nil, code.New(code.BadRbufState, "nothing is granted to that process: import again")
	}
	if id.Node != p.id.Node && p.why != nil && peer.epoch <= p.refused {
		_ = unix.Close(fd)
		retire(pages)
		return nil, nil, p.why
	}
	if a.state != associated { // the event may have been told: nothing may arrive of this process any more
		_ = unix.Close(fd)
		retire(pages)
		return nil, nil, errOver
	}
	targets := make([]*link.Target, 0, len(peer.grants))
	for _, g := range peer.grants {
		targets = append(targets, g.target)
	}
	t := new(tenure)
	terms.OnConnChange = func(up bool, why error) {
		goesOn()
		t.down.Store(!up)
		p.linkNews(id, false, up, why)
	}
	in, err = link.NewResponder(p.engine, fd, pages, terms, targets, p.answerer(id),
		func(h uint32) { p.dropGrant(id, h) },
		func(err error) { goesOn(); p.lostImporter(id, dialled, t, err) })
	if err != nil {
		return nil, nil, err
	}
	t.in, t.of = in, a
	a.ins[in] = true
	in.Describe(shmlayout.LinkPeer(id))
	missed = peer.missed
	peer.in, peer.tenure, peer.missed = in, t, nil
	for _, g := range peer.grants {
		g.in = in
	}
	if invariant.Enabled {
		p.checkTables()
	}
	return in, missed, nil
}

// cutOld ends the link that an importer had before this one, and gives it, or nil. Its grants move to
// the new one only when nothing reaches them by the old any more. Not under p.mu.
func (p *Process) cutOld(id local.ProcessID, order uint64) (old *tenure, err error) {
	p.mu.Lock()
	if peer := p.peers[id]; peer != nil {
		if err := peer.latest(order); err != nil {
			p.mu.Unlock()
			return nil, err
		}
		if old = peer.tenure; old != nil {
			old.next = &succession{done: make(chan struct{}), told: make(chan struct{})}
		}
		for _, g := range peer.grants {
			g.in = nil // else the old link's end would drop them
			g.target = g.target.Clone()
		}
		peer.in, peer.tenure = nil, nil
	}
	p.mu.Unlock()
	if old != nil {
		old.in.Sever(errAnother)
	}
	return old, nil
}

// joined is of an importer whose link was about to begin, and has or has not.
func (p *Process) joined(peer *importer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if peer.joining--; peer.joining == 0 {
		peer.missed = nil
	}
	p.forgetIdle(peer)
}

// allUnlinked stands for every grant that has no link yet: its importer is dead.
const allUnlinked = 0

// lose counts that grants of an importer went with a link, so that it does not use one of these on its next
// one, of which nobody would tell it that it is good for nothing there; p.mu is held.
func (p *Process) lose(peer *importer) {
	p.lost++
	peer.lost = p.lost
}

// dropGrant forgets an import that its importer closed.
func (p *Process) dropGrant(id local.ProcessID, handle uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	peer := p.peers[id]
	if peer == nil {
		return
	}
	for h, g := range peer.grants {
		if h == handle || handle == allUnlinked && g.in == nil {
			delete(peer.grants, h)
			delete(g.e.grants, h)
			if h != handle {
				p.lose(peer)
			}
		}
	}
	p.forgetIdle(peer)
}

// forgetIdle drops an importer that has neither a link nor a grant. It may have
// been dropped before, and come again since.
func (p *Process) forgetIdle(peer *importer) {
	if peer.in == nil && len(peer.grants) == 0 && peer.joining == 0 {
		if p.peers[peer.id] == peer {
			delete(p.peers, peer.id)
		}
		if p.waiting[peer.link] == peer {
			delete(p.waiting, peer.link)
		}
	}
	if invariant.Enabled {
		p.checkTables()
	}
}
