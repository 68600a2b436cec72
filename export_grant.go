package vmmc

import (
	"io"
	"slices"
	"sync"
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
	e *Export
	// Another one, with the same handle, for another link. Guarded by memoryTable.mu.
	target *link.Target
	peer   *importer
	state  grantState // Guarded by memoryTable.mu.
	// In grantLinked the link, and later the last one. Guarded by memoryTable.mu.
	responder *link.Responder
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
// tables. memoryTable.mu is held.
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
	t := &g.e.p.importers
	t.memory.mu.Lock()
	responder, handle := g.responder, g.target.Handle
	if g.state < grantRevoked { // else it has ended since the caller took it from the table
		g.setState(grantRevoked, nil)
		if g.peer.pendingJoins > 0 {
			g.peer.missedRevokes = append(g.peer.missedRevokes, handle)
		}
		t.dropIfIdle(g.peer)
	}
	t.memory.mu.Unlock()
	if responder != nil {
		responder.Revoke(handle)
	}
}

// importers are the processes that hold grants of this process's exports, and their links to it. An
// export and its grants end together, so one lock guards both: memory.mu.
type importers struct {
	*member
	terms        *linkTerms
	memory       *memoryTable
	associations *associations

	joinMu sync.Mutex // serialises the start of importers' links; taken before memory.mu

	// Guarded by memory.mu.
	byID           map[nodeproto.ProcessID]*importer
	pendingDials   map[uint64]*importer // by link number: importers on other nodes that may dial
	lastHandle     uint32               // the last handle given to a grant
	handlesWrapped bool                 // lastHandle has wrapped around: handles may be in use
	lost           uint64               // counts the times that a link's end took grants with it
}

// importer is a process that holds grants of this process's exports. All fields but id and vouched,
// which do not change, are guarded by memoryTable.mu.
type importer struct {
	id         nodeproto.ProcessID
	vouched    nodeproto.Importer // its identity, as the daemon vouches for it
	grants     map[uint32]*grant
	grantsLost uint64          // importers.lost when a link's end last took grants of this importer
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
}

// maxGrants bounds the grants that one importer may hold.
const maxGrants = 1 << 16

// handleOffer grants an import whose rights the daemon has checked. If the importer's pages came
// along, it also makes the importer's link. It owns the descriptors in pages.
func (t *importers) handleOffer(r nodeproto.OfferRequest, pages []int) (any, []int, error) {
	g, gr, fds, err := t.createGrant(r)
	if err != nil {
		closeAll(pages)
		return nil, nil, err
	}
	if r.Order != 0 { // see createGrant
		defer t.endJoin(gr.peer)
	}
	// Not under memory.mu, which the engine takes while it holds a link.
	if gr.responder != nil {
		gr.responder.Attach(gr.target, &gr.e.closed)
		t.dropIfWithdrawn(gr)
	}
	if r.Order == 0 || len(fds)+nodeproto.LinkDescriptors > nodeproto.MaxDescriptors {
		closeAll(pages)
		return g, fds, nil
	}
	start := time.Now()
	a, more, err := t.acceptLocal(r.Importer.Process, r.Order, pages)
	t.logDaemonRequest(nodeproto.Accept, time.Since(start), err)
	if err != nil { // the importer then requests the link separately, and gets the error
		t.memory.mu.Lock()
		there := gr.peer.grants[g.Handle] != nil
		t.memory.mu.Unlock()
		if !there { // the failed link took the grant with it
			closeAll(fds)
			return nil, nil, code.New(code.BadRbufState,
				"buffer %d: its import has ended with its link: %v", r.ID, err)
		}
		return g, fds, nil
	}
	g.Link = &nodeproto.Connected{Imports: a.Imports, Lost: a.Lost}
	return g, append(fds, more...), nil
}

// createGrant adds a grant to the tables.
func (t *importers) createGrant(
	r nodeproto.OfferRequest,
) (g nodeproto.Grant, gr grant, fds []int, err error) {
	t.memory.mu.Lock()
	defer t.memory.mu.Unlock()
	e := t.memory.exports[r.ID]
	// The daemon has checked the permissions of one export, not of the id.
	if e == nil || e.closed.Load() || e.serial != r.Serial {
		return g, gr, nil, code.New(code.BadRbufState, "buffer %d is not exported any more", r.ID)
	}
	if err := e.mayImport(r.Importer.Process); err != nil {
		return g, gr, nil, err
	}
	if g, fds, err = e.offer(r.SameNode); err != nil {
		return g, gr, nil, err
	}
	if g.Mapped && e.redirect != nil {
		more, err := e.shareRedirection(r.Importer.Process, &g)
		if err != nil {
			closeAll(fds)
			return g, gr, nil, err
		}
		fds = append(fds, more...)
	}
	g.Handle, g.Lost = t.nextHandle(), t.lost
	peer := t.byID[r.Importer.Process]
	if peer == nil {
		peer = &importer{id: r.Importer.Process, vouched: r.Importer, grants: map[uint32]*grant{}, grantsLost: t.lost}
		t.byID[peer.id] = peer
	}
	if len(peer.grants) >= maxGrants {
		closeAll(fds)
		return g, gr, nil, code.New(code.NoMem, "that process has %d imports here: close some", maxGrants)
	}
	if r.Order != 0 {
		peer.pendingJoins++ // a revocation that comes before the link is announced on the link
	}
	return g, *t.addGrant(peer, e, g.Handle), fds, nil
}

// offer returns what importers get: all of a grant but its handle, and a descriptor of the memory
// if they may map it. memoryTable.mu is held.
func (e *Export) offer(sameNode bool) (g nodeproto.Grant, fds []int, err error) {
	g = nodeproto.Grant{Exporter: e.p.id, Size: len(e.mem), Rights: e.rights, Slot: e.slot, State: e.liveState, Place: e.addr(0), Label: e.label}
	if e.handler == nil {
		g.Rights |= nodeproto.Unheard
	}
	if e.mappable == nil || !sameNode {
		return g, nil, nil
	}
	fd, ok, err := e.mappable.region.DescriptorOf(e.allocOff, len(e.mem))
	if err != nil || !ok {
		return g, nil, err
	}
	g.Mapped, g.Memory, g.Offset = true, e.mappable.region.Size(), e.allocOff
	return g, []int{fd}, nil
}

// addGrant adds a grant to the tables of its importer and its export. memory.mu is held.
func (t *importers) addGrant(peer *importer, e *Export, handle uint32) *grant {
	target := &link.Target{Handle: handle, Export: e.serial, Mem: e.mem, Write: e.rights&nodeproto.MayWrite != 0, Read: e.rights&nodeproto.MayRead != 0, Redirect: e.redirect, MayFault: e.allocation == nil || e.redirect != nil, Fault: e.handleFault}
	if e.handler != nil {
		from := processID(peer.id) // which the daemon has vouched for
		target.Notify = func(off int, word uint32, at []byte) { e.runHandler(from, off, word, at) }
		target.Muted = &e.discard
	}
	g := &grant{e: e, target: target, peer: peer}
	if peer.responder != nil {
		g.setState(grantLinked, peer.responder)
	}
	peer.grants[handle] = g
	e.grants[handle] = g
	if invariant.Enabled {
		t.checkTables()
	}
	return g
}

// nextHandle allocates the handle of a grant. The counter runs through all 2^32 handles before it
// reuses one, so a late frame for a closed import reaches no other import. After a wrap-around it
// skips handles that are in use. It never returns 0, which stands for all grants without a link
// (allUnlinked). memory.mu is held.
func (t *importers) nextHandle() uint32 {
	for {
		t.lastHandle++
		if t.lastHandle == allUnlinked {
			t.handlesWrapped = true
			continue
		}
		if !t.handlesWrapped || !t.handleInUse(t.lastHandle) {
			return t.lastHandle
		}
	}
}

// handleInUse reports whether a grant has this handle, or its revocation is still to be announced,
// or it numbers the shared pages of a redirectable export. memory.mu is held.
func (t *importers) handleInUse(handle uint32) bool {
	for _, peer := range t.byID {
		if peer.grants[handle] != nil || slices.Contains(peer.missedRevokes, handle) {
			return true
		}
	}
	for _, e := range t.memory.exports {
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
// is void. memory.mu is held.
func (t *importers) countLostGrants(peer *importer) {
	t.lost++
	peer.grantsLost = t.lost
}

// dropGrant removes the grant of an import that its importer closed.
func (t *importers) dropGrant(id nodeproto.ProcessID, handle uint32) {
	t.memory.mu.Lock()
	defer t.memory.mu.Unlock()
	peer := t.byID[id]
	if peer == nil {
		return
	}
	for h, g := range peer.grants {
		switch {
		case h == handle:
			g.setState(grantWithdrawn, nil)
		case handle == allUnlinked && g.state == grantUnlinked:
			g.setState(grantLost, nil)
			t.countLostGrants(peer)
		}
	}
	t.dropIfIdle(peer)
}

// dropIfIdle removes an importer that has neither a link nor a grant. The table may hold a newer
// entry for the same process, which stays. memory.mu is held.
func (t *importers) dropIfIdle(peer *importer) {
	if peer.responder == nil && len(peer.grants) == 0 && peer.pendingJoins == 0 {
		if t.byID[peer.id] == peer {
			delete(t.byID, peer.id)
			t.associations.forgetAsked(peer.id)
		}
		if t.pendingDials[peer.link] == peer {
			delete(t.pendingDials, peer.link)
		}
	}
	if invariant.Enabled {
		t.checkTables()
	}
}

// An importer may request imports on its link, without the node. The node vouched for the importer
// at its first import from this process, and the same rules apply. A request that cannot be granted
// at once is refused without a reason: the importer then asks its node, which waits or gives the
// reason.

// importHandler returns the function that grants the import requests of one importer's link.
func (t *importers) importHandler(id nodeproto.ProcessID) link.ImportHandler {
	return func(responder *link.Responder, buffer uint32) (*link.Target, wire.Granted, int) {
		t.memory.mu.Lock()
		defer t.memory.mu.Unlock()
		peer, e := t.byID[id], t.memory.exports[buffer]
		if peer == nil || peer.responder != responder || len(peer.grants) >= maxGrants ||
			t.closed.Load() || !t.node.Connected() {
			return nil, wire.Granted{}, -1
		}
		// A redirectable buffer takes more descriptors than go with a frame, and a label does not fit
		// into one.
		if e == nil || e.closed.Load() || e.redirect != nil || len(e.label) > 0 ||
			!nodeproto.Permits(e.permit, peer.vouched, t.user, t.session) {
			return nil, wire.Granted{}, -1
		}
		g, fds, err := e.offer(true)
		if err != nil {
			return nil, wire.Granted{}, -1
		}
		handle, descriptor := t.nextHandle(), -1
		if g.Mapped {
			descriptor = fds[0]
		}
		return t.addGrant(peer, e, handle).target, wire.Granted{
			Handle: handle, Size: uint64(g.Size), Rights: uint8(g.Rights), Mapped: g.Mapped,
			Memory: uint64(g.Memory), Offset: uint64(g.Offset), Slot: uint16(g.Slot), State: g.State, Addr: g.Place,
		}, descriptor
	}
}

// handleWithdraw removes a grant that its importer gave back before it had a link. A dishonest
// importer may have a link, on which it reaches the buffer. Export.Close revokes only grants that
// are in the tables, so a grant that leaves the tables is revoked on its link too.
func (t *importers) handleWithdraw(id nodeproto.ProcessID, handle uint32) {
	t.memory.mu.Lock()
	var responder *link.Responder
	if peer := t.byID[id]; peer != nil && peer.grants[handle] != nil {
		g := peer.grants[handle]
		responder = g.responder
		g.setState(grantWithdrawn, nil)
		t.dropIfIdle(peer)
	}
	t.memory.mu.Unlock()
	if responder != nil { // not under memory.mu, which the engine takes while it holds a link
		responder.Revoke(handle)
	}
	if handle == allUnlinked {
		t.dropGrant(id, handle)
	}
}

// dropIfWithdrawn revokes a grant on its link if the importer withdrew it before it was attached
// there: handles can be guessed.
func (t *importers) dropIfWithdrawn(g grant) {
	h := g.target.Handle
	t.memory.mu.Lock()
	there := g.peer.grants[h] != nil
	t.memory.mu.Unlock()
	if !there {
		g.responder.Revoke(h)
	}
}

// dropUnlinked drops grants that had no link yet when the daemon ended. An importer that did
// receive such a grant is told that it is void, and imports again.
func (t *importers) dropUnlinked() {
	t.joinMu.Lock() // while one link replaces another, grants have no link for a moment
	defer t.joinMu.Unlock()
	t.memory.mu.Lock()
	var ids []nodeproto.ProcessID
	for id := range t.byID {
		ids = append(ids, id)
	}
	t.memory.mu.Unlock()
	for _, id := range ids {
		t.dropGrant(id, allUnlinked)
	}
}

// mostChecked bounds the entries that one check walks through: tables are checked at each change.
const mostChecked = 256

// checkTables: exports, importers and grants are known to each other; memory.mu is
// held. It is called only where invariant.Enabled.
func (t *importers) checkTables() {
	invariant.Check(len(t.memory.freeSlots)+len(t.memory.exports) == int(t.memory.slotsUsed), "%d exports and %d free slots, %d were ever used", len(t.memory.exports), len(t.memory.freeSlots), t.memory.slotsUsed)
	invariant.Check(t.memory.exportSpans.Len() == len(t.memory.exports), "%d exports, and %d pieces of memory of exports", len(t.memory.exports), t.memory.exportSpans.Len())
	if len(t.memory.exports) <= mostChecked {
		redirs := 0
		for _, e := range t.memory.exports {
			if e.redirect != nil {
				redirs++
				invariant.Check(t.memory.redirectable[e], "redirectable buffer %d is not listed as one", e.id)
			}
			for _, m := range e.targets {
				invariant.Check(m.redirectOf == e, "a target of buffer %d does not know it", e.id)
			}
		}
		invariant.Check(redirs == len(t.memory.redirectable),
			"%d buffers are redirectable, %d listed", redirs, len(t.memory.redirectable))
		for id, e := range t.memory.exports {
			e.checkGrants(id)
		}
	}
	if len(t.byID) > mostChecked {
		return
	}
	for id, peer := range t.byID {
		invariant.Check(peer.id == id, "importer %v is listed as %v", peer.id, id)
		invariant.Check(peer.responder != nil || len(peer.grants) > 0 || peer.pendingJoins > 0,
			"importer %v has neither link nor grant", id)
		if len(peer.grants) > mostChecked {
			continue
		}
		for h, g := range peer.grants {
			invariant.Check(g.peer == peer && g.responder == peer.responder && g.target.Handle == h,
				"grant %d of importer %v is another's, or has another link", h, id)
			invariant.Check(g.state < grantRevoked && (g.state == grantLinked) == (g.responder != nil),
				"grant %d of importer %v is %v, with the link %p", h, id, g.state, g.responder)
			invariant.Check(g.e.grants[h] == g || g.e.closed.Load(),
				"grant %d of buffer %d is not in its list", h, g.e.id)
		}
	}
}

func (e *Export) checkGrants(id uint32) {
	invariant.Check(e.id == id, "buffer %d is listed as %d", e.id, id)
	if len(e.grants) > mostChecked {
		return
	}
	for h, g := range e.grants {
		invariant.Check(g.e == e && g.target.Handle == h && g.peer.grants[h] == g && e.p.importers.byID[g.peer.id] == g.peer,
			"grant %d of buffer %d is another's, or its importer does not have it", h, id)
	}
}
