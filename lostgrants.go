package vmmc

import (
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/local"
)

// Grants go with the link that they were attached to, and an exporter may have had one that this process never had: an
// import that was given up had it made. A grant that another import has got meanwhile is gone then, which nobody says if
// there is another link by the time that it is to be used. So who has asked for a grant and comes to a link has to
// know whether one has ended since.

// awaiting is of imports from one process that are being made.
type awaiting struct {
	imports int
	ended   int // links, since the first of them began
}

// counterpart is the exporter whichever its incarnation.
func counterpart(node string, pid uint32) local.ProcessID {
	return local.ProcessID{Node: node, PID: pid}
}

// await notes an import that asks for a grant. sound says whether no link has ended since, and is to be called once there is
// one; over that the import is made, or not.
func (p *Process) await(peer local.ProcessID) (sound func() error, over func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.awaited[peer]
	if a == nil {
		a = &awaiting{}
		p.awaited[peer] = a
	}
	a.imports++
	before := a.ended
	sound = func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if a.ended != before {
			return code.New(code.BadRbufState, "a link to process %d on node %q has ended meanwhile: import again", peer.PID, peer.Node)
		}
		return nil
	}
	return sound, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if a.imports--; a.imports == 0 {
			delete(p.awaited, peer)
		}
	}
}

// linkLost is of a link that has ended, or that the exporter may have made, and this process not; p.mu is held.
func (p *Process) linkLost(exporter local.ProcessID) {
	if a := p.awaited[counterpart(exporter.Node, exporter.PID)]; a != nil {
		a.ended++
	}
}
