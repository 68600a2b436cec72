package vmmc

import (
	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// mostChecked bounds what one check goes through: tables are checked each time
// they change.
const mostChecked = 256

// checkTables: exports, importers and grants are known to each other; p.mu is
// held. It is called only where invariant.Enabled.
func (p *Process) checkTables() {
	invariant.Check(len(p.slots)+len(p.exports) == int(p.slotTop), "%d exports and %d free slots, %d were ever used", len(p.exports), len(p.slots), p.slotTop)
	invariant.Check(p.laid.Len() == len(p.exports), "%d exports, and %d pieces of memory of exports", len(p.exports), p.laid.Len())
	if len(p.exports) <= mostChecked {
		redirs := 0
		for _, e := range p.exports {
			if e.redirect != nil {
				redirs++
				invariant.Check(p.redirs[e], "redirectable buffer %d is not listed as one", e.id)
			}
			for _, m := range e.targets {
				invariant.Check(m.target == e, "a target of buffer %d does not know it", e.id)
			}
		}
		invariant.Check(redirs == len(p.redirs), "%d buffers are redirectable, %d listed", redirs, len(p.redirs))
		for id, e := range p.exports {
			e.checkGrants(id)
		}
	}
	if len(p.peers) > mostChecked {
		return
	}
	for id, peer := range p.peers {
		invariant.Check(peer.id == id, "importer %v is listed as %v", peer.id, id)
		invariant.Check(peer.in != nil || len(peer.grants) > 0 || peer.joining > 0, "importer %v has neither link nor grant", id)
		if len(peer.grants) > mostChecked {
			continue
		}
		for h, g := range peer.grants {
			invariant.Check(g.peer == peer && g.in == peer.in && g.target.Handle == h, "grant %d of importer %v is another's, or has another link", h, id)
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
		invariant.Check(g.e == e && g.target.Handle == h && g.peer.grants[h] == g && e.p.peers[g.peer.id] == g.peer,
			"grant %d of buffer %d is another's, or its importer does not have it", h, id)
	}
}

// checkSpace: ranges ascend, do not touch, and end before what is given out next.
func checkSpace(list []*Import, next uint64) {
	end := uint64(destBase)
	for _, im := range list {
		invariant.Check(uint64(im.addr) >= end, "an import at %v, the one before ends at %#x", im.addr, end)
		end = uint64(im.addr) + uint64(shm.RoundUp(im.size)) + uint64(shm.PageSize)
	}
	invariant.Check(len(list) == 0 || end <= next, "imports end at %#x, the next begins at %#x", end, next)
}
