package vmmc

import (
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/local"
)

// withdraw forgets an import that its importer gave back before it had a link,
// or says so: who is not honest has one, by which it reaches the buffer. The
// export's end finds only grants that are in the tables, so what leaves them
// leaves the link too.
func (p *Process) withdraw(id local.ProcessID, handle uint32) {
	p.mu.Lock()
	var in *link.Responder
	if peer := p.peers[id]; peer != nil && peer.grants[handle] != nil {
		g := peer.grants[handle]
		in = g.in
		delete(peer.grants, handle)
		delete(g.e.grants, handle)
		p.forgetIdle(peer)
	}
	p.mu.Unlock()
	if in != nil { // not under p.mu, which the engine takes while it holds a link
		in.Revoke(handle)
	}
	if handle == allUnlinked {
		p.dropGrant(id, handle)
	}
}

// dropIfWithdrawn takes a grant off its link again if it was given back before
// the link had it: handles can be guessed.
func (p *Process) dropIfWithdrawn(g grant) {
	h := g.target.Handle
	p.mu.Lock()
	there := g.peer.grants[h] != nil
	p.mu.Unlock()
	if !there {
		g.in.Revoke(h)
	}
}
