package vmmc

import (
	"io"
	"slices"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/state"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// grant is the exporter's record of one import.
type grant struct {
	e         *Export
	target    *link.Target
	peer      *importer
	state     grantState      // Guarded by p.mu.
	responder *link.Responder // in grantLinked the link, and later the last one. Guarded by p.mu.
}

// grantState is how far a grant has come. Its importer's link may be replaced.
//
//	unlinked <--> linked
//	   |            |
//	   v            v
//	revoked, withdrawn or lost
type grantState uint8

const (
	grantUnlinked grantState = iota // the importer has no link yet
	grantLinked
	grantRevoked   // the exporter closes the export
	grantWithdrawn // the importer has closed the import, or never made it
	grantLost      // with the importer's link, or with the importer before it had one
)

func (s grantState) String() string {
	return [...]string{"unlinked", "linked", "revoked", "withdrawn", "lost"}[s]
}

var grantTransitions = state.Table[grantState]{
	grantUnlinked: {grantLinked, grantRevoked, grantWithdrawn, grantLost},
	grantLinked:   {grantUnlinked, grantRevoked, grantWithdrawn, grantLost},
}

// setState changes the state. responder is the link, for grantLinked. A grant that ends leaves the
// tables. p.mu is held.
func (g *grant) setState(to grantState, responder *link.Responder) {
	grantTransitions.Check(g.state, to)
	if g.state = to; to < grantRevoked {
		g.responder = responder
	} else {
		delete(g.peer.grants, g.target.Handle)
		delete(g.e.grants, g.target.Handle)
	}
}

// revoke ends the grant, also on its link. A link that is about to start announces it later
// (missedRevokes).
func (g *grant) revoke() {
	p, handle := g.e.p, g.target.Handle
	p.mu.Lock()
	responder := g.responder
	if g.state < grantRevoked { // else it has ended since the caller took it from the table
		g.setState(grantRevoked, nil)
		if g.peer.pendingJoins > 0 {
			g.peer.missedRevokes = append(g.peer.missedRevokes, handle)
		}
		p.dropIfIdle(g.peer)
	}
	p.mu.Unlock()
	if responder != nil {
		responder.Revoke(handle)
	}
}

// importer is a process that holds grants of this process's exports. All fields are guarded by
// p.mu.
type importer struct {
	id         nodeproto.ProcessID
	vouched    nodeproto.Importer // its identity, as the daemon vouches for it
	grants     map[uint32]*grant
	grantsLost uint64          // Process.grantsLost when a link's end last took grants of this importer
	responder  *link.Responder // nil while there is no link
	inbound    *inboundLink    // the record of responder

	link          uint64 // number of the link that an importer on another node may dial
	key           []byte
	fingerprint   []byte    // of the importer's certificate; nil: the link is not encrypted
	pendingTLS    io.Closer // a connection whose TLS handshake is in progress
	epoch         uint64    // this node's epoch when the importer dialled
	attempt       uint64    // the last dial attempt that was accepted
	order         uint64    // sequence number of the latest link that the daemon introduced
	pendingJoins  int       // links that were promised to the importer and have not started yet
	missedRevokes []uint32  // grants revoked while pendingJoins > 0, to be announced on the new link
	asks          bool      // it has asked for link since an association with it last began to end
}

// maxGrants bounds the grants that one importer may hold.
const maxGrants = 1 << 16

// handleOffer grants an import whose rights the daemon has checked. If the importer's pages came
// along, it also makes the importer's link. It owns the descriptors in pages.
func (p *Process) handleOffer(r nodeproto.OfferRequest, pages []int) (any, []int, error) {
	g, gr, fds, err := p.createGrant(r)
	if err != nil {
		closeAll(pages)
		return nil, nil, err
	}
	if r.Order != 0 { // see createGrant
		defer p.endJoin(gr.peer)
	}
	// Not under p.mu, which the engine takes while it holds a link.
	if gr.responder != nil {
		gr.responder.Attach(gr.target, &gr.e.closed)
		p.dropIfWithdrawn(gr)
	}
	if r.Order == 0 || len(fds)+nodeproto.LinkDescriptors > nodeproto.MaxDescriptors {
		closeAll(pages)
		return g, fds, nil
	}
	start := time.Now()
	a, more, err := p.acceptLocal(r.Importer.Process, r.Order, pages)
	p.logDaemonRequest(nodeproto.Accept, time.Since(start), err)
	if err != nil { // the importer then requests the link separately, and gets the error
		p.mu.Lock()
		there := gr.peer.grants[g.Handle] != nil
		p.mu.Unlock()
		if !there { // the failed link took the grant with it
			closeAll(fds)
			return nil, nil, code.New(code.BadRbufState, "buffer %d: its import has ended with its link: %v", r.ID, err)
		}
		return g, fds, nil
	}
	g.Link = &nodeproto.Connected{Imports: a.Imports, Lost: a.Lost}
	return g, append(fds, more...), nil
}

// createGrant adds a grant to the tables.
func (p *Process) createGrant(r nodeproto.OfferRequest) (g nodeproto.Grant, gr grant, fds []int, err error) {
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
	g = nodeproto.Grant{Exporter: p.id, Size: len(e.mem), Rights: e.advertisedRights(), Slot: e.slot, State: e.liveState, Place: e.addr(0), Lost: p.grantsLost}
	if e.mappable != nil && r.SameNode {
		fd, ok, err := e.mappable.region.DescriptorOf(e.allocOff, len(e.mem))
		if err != nil {
			return g, gr, nil, err
		}
		if ok {
			fds, g.Mapped, g.Memory, g.Offset = []int{fd}, true, e.mappable.region.Size(), e.allocOff
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
	g.Handle = p.nextHandle()
	peer := p.importers[r.Importer.Process]
	if peer == nil {
		peer = &importer{id: r.Importer.Process, vouched: r.Importer, grants: map[uint32]*grant{}, grantsLost: p.grantsLost}
		p.importers[peer.id] = peer
	}
	if len(peer.grants) >= maxGrants {
		closeAll(fds)
		return g, gr, nil, code.New(code.NoMem, "that process has %d imports here: close some", maxGrants)
	}
	if r.Order != 0 {
		peer.pendingJoins++ // a revocation that comes before the link is announced on the link
	}
	return g, *p.addGrant(peer, e, g.Handle), fds, nil
}

// advertisedRights returns the rights that importers see. nodeproto.Unheard says that no handler
// runs.
func (e *Export) advertisedRights() nodeproto.Rights {
	if e.handler == nil {
		return e.rights | nodeproto.Unheard
	}
	return e.rights
}

// addGrant adds a grant to the tables of its importer and its export. p.mu is held.
func (p *Process) addGrant(peer *importer, e *Export, handle uint32) *grant {
	t := &link.Target{Handle: handle, Export: e.serial, Mem: e.mem, Write: e.rights&nodeproto.MayWrite != 0, Read: e.rights&nodeproto.MayRead != 0, Redirect: e.redirect, MayFault: e.allocation == nil || e.redirect != nil, Fault: e.handleFault}
	if e.handler != nil {
		t.Notify, t.Muted = e.runHandler, &e.discard
	}
	g := &grant{e: e, target: t, peer: peer}
	if peer.responder != nil {
		g.setState(grantLinked, peer.responder)
	}
	peer.grants[handle] = g
	e.grants[handle] = g
	if invariant.Enabled {
		p.checkTables()
	}
	return g
}

// nextHandle allocates the handle of a grant. The counter runs through all 2^32 handles before it
// reuses one, so a late frame for a closed import reaches no other import. After a wrap-around it
// skips handles that are in use. It never returns 0, which stands for all grants without a link
// (allUnlinked). p.mu is held.
func (p *Process) nextHandle() uint32 {
	for {
		p.lastHandle++
		if p.lastHandle == allUnlinked {
			p.handlesWrapped = true
			continue
		}
		if !p.handlesWrapped || !p.handleInUse(p.lastHandle) {
			return p.lastHandle
		}
	}
}

// handleInUse reports whether a grant has this handle, or its revocation is still to be announced,
// or it numbers the shared pages of a redirectable export. p.mu is held.
func (p *Process) handleInUse(handle uint32) bool {
	for _, peer := range p.importers {
		if peer.grants[handle] != nil || slices.Contains(peer.missedRevokes, handle) {
			return true
		}
	}
	for _, e := range p.exports {
		if e.redirShare != nil && e.redirShare.number == handle {
			return true
		}
	}
	return false
}

// allUnlinked stands for every grant of an importer that has no link yet: that importer is dead.
const allUnlinked = 0

// countLostGrants records that a link's end took grants of an importer. The importer compares the
// count and does not use such a grant on its next link, where no revocation would announce that it
// is void. p.mu is held.
func (p *Process) countLostGrants(peer *importer) {
	p.grantsLost++
	peer.grantsLost = p.grantsLost
}

// dropGrant removes the grant of an import that its importer closed.
func (p *Process) dropGrant(id nodeproto.ProcessID, handle uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	peer := p.importers[id]
	if peer == nil {
		return
	}
	for h, g := range peer.grants {
		switch {
		case h == handle:
			g.setState(grantWithdrawn, nil)
		case handle == allUnlinked && g.state == grantUnlinked:
			g.setState(grantLost, nil)
			p.countLostGrants(peer)
		}
	}
	p.dropIfIdle(peer)
}

// dropIfIdle removes an importer that has neither a link nor a grant. The table may hold a newer
// entry for the same process, which stays. p.mu is held.
func (p *Process) dropIfIdle(peer *importer) {
	if peer.responder == nil && len(peer.grants) == 0 && peer.pendingJoins == 0 {
		if p.importers[peer.id] == peer {
			delete(p.importers, peer.id)
		}
		if p.pendingDials[peer.link] == peer {
			delete(p.pendingDials, peer.link)
		}
	}
	if invariant.Enabled {
		p.checkTables()
	}
}

// An importer may request imports on its link, without the node. The node vouched for the importer
// at its first import from this process, and the same rules apply. A request that cannot be granted
// at once is refused without a reason: the importer then asks its node, which waits or gives the
// reason.

// importHandler returns the function that grants the import requests of one importer's link.
func (p *Process) importHandler(id nodeproto.ProcessID) link.ImportHandler {
	return func(responder *link.Responder, buffer uint32) (*link.Target, wire.Granted, int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		peer, e := p.importers[id], p.exports[buffer]
		if peer == nil || peer.responder != responder || len(peer.grants) >= maxGrants || p.closed.Load() || !p.node.Connected() {
			return nil, wire.Granted{}, -1
		}
		// A redirectable buffer takes more descriptors than go with a frame.
		if e == nil || e.closed.Load() || e.redirect != nil || !nodeproto.Permits(e.permit, peer.vouched, p.user, p.session) {
			return nil, wire.Granted{}, -1
		}
		g := wire.Granted{Size: uint64(len(e.mem)), Rights: uint8(e.advertisedRights()), Slot: uint16(e.slot), State: e.liveState, Addr: e.addr(0)}
		descriptor := -1
		if e.mappable != nil {
			fd, ok, err := e.mappable.region.DescriptorOf(e.allocOff, len(e.mem))
			if err != nil {
				return nil, wire.Granted{}, -1
			}
			if ok {
				descriptor, g.Mapped, g.Memory, g.Offset = fd, true, uint64(e.mappable.region.Size()), uint64(e.allocOff)
			}
		}
		g.Handle = p.nextHandle()
		return p.addGrant(peer, e, g.Handle).target, g, descriptor
	}
}

// handleWithdraw removes a grant that its importer gave back before it had a link. A dishonest
// importer may have a link, on which it reaches the buffer. Export.Close revokes only grants that
// are in the tables, so a grant that leaves the tables is revoked on its link too.
func (p *Process) handleWithdraw(id nodeproto.ProcessID, handle uint32) {
	p.mu.Lock()
	var responder *link.Responder
	if peer := p.importers[id]; peer != nil && peer.grants[handle] != nil {
		g := peer.grants[handle]
		responder = g.responder
		g.setState(grantWithdrawn, nil)
		p.dropIfIdle(peer)
	}
	p.mu.Unlock()
	if responder != nil { // not under p.mu, which the engine takes while it holds a link
		responder.Revoke(handle)
	}
	if handle == allUnlinked {
		p.dropGrant(id, handle)
	}
}

// dropIfWithdrawn revokes a grant on its link if the importer withdrew it before it was attached
// there: handles can be guessed.
func (p *Process) dropIfWithdrawn(g grant) {
	h := g.target.Handle
	p.mu.Lock()
	there := g.peer.grants[h] != nil
	p.mu.Unlock()
	if !there {
		g.responder.Revoke(h)
	}
}

// mostChecked bounds the entries that one check walks through: tables are checked at each change.
const mostChecked = 256

// checkTables: exports, importers and grants are known to each other; p.mu is
// held. It is called only where invariant.Enabled.
func (p *Process) checkTables() {
	invariant.Check(len(p.freeSlots)+len(p.exports) == int(p.slotsUsed), "%d exports and %d free slots, %d were ever used", len(p.exports), len(p.freeSlots), p.slotsUsed)
	invariant.Check(p.exportSpans.Len() == len(p.exports), "%d exports, and %d pieces of memory of exports", len(p.exports), p.exportSpans.Len())
	if len(p.exports) <= mostChecked {
		redirs := 0
		for _, e := range p.exports {
			if e.redirect != nil {
				redirs++
				invariant.Check(p.redirectable[e], "redirectable buffer %d is not listed as one", e.id)
			}
			for _, m := range e.targets {
				invariant.Check(m.redirectOf == e, "a target of buffer %d does not know it", e.id)
			}
		}
		invariant.Check(redirs == len(p.redirectable), "%d buffers are redirectable, %d listed", redirs, len(p.redirectable))
		for id, e := range p.exports {
			e.checkGrants(id)
		}
	}
	if len(p.importers) > mostChecked {
		return
	}
	for id, peer := range p.importers {
		invariant.Check(peer.id == id, "importer %v is listed as %v", peer.id, id)
		invariant.Check(peer.responder != nil || len(peer.grants) > 0 || peer.pendingJoins > 0, "importer %v has neither link nor grant", id)
		if len(peer.grants) > mostChecked {
			continue
		}
		for h, g := range peer.grants {
			invariant.Check(g.peer == peer && g.responder == peer.responder && g.target.Handle == h, "grant %d of importer %v is another's, or has another link", h, id)
			invariant.Check(g.state < grantRevoked && (g.state == grantLinked) == (g.responder != nil), "grant %d of importer %v is %v, with the link %p", h, id, g.state, g.responder)
			invariant.Check(g.e.grants[h] == g || g.e.closed.Load(), "grant %d of buffer %d is not in its list", h, g.e.id)
		}
	}
}

func (e *Export) checkGrants(id uint32) {
	invariant.Check(e.id == id, "buffer %d is listed as %d", e.id, id)
	if len(e.grants) > mostChecked {
		return
	}
	for h, g := range e.grants {
		invariant.Check(g.e == e && g.target.Handle == h && g.peer.grants[h] == g && e.p.importers[g.peer.id] == g.peer,
			"grant %d of buffer %d is another's, or its importer does not have it", h, id)
	}
}
