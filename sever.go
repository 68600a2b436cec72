package vmmc

import (
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/local"
)

// sever ends links with other nodes, because this process's or the other one was
// taken down, and returns how many there were. What was exported stays so:
// importers that come back import again.
func (p *Process) sever(r local.SeverRequest) int {
	// Gone, as after every other end of a link that this process has not chosen;
	// and the reason.
	why := link.Gone("%w", code.New(code.Unreachable, "%s", r.Why))
	var ins []*link.Responder
	var outs []*outLink
	p.mu.Lock()
	if r.Node == "" && r.Epoch > p.severed {
		p.severed, p.why = r.Epoch, why
	}
	if r.Node == "" && !r.Soon { // before, the other side would see an end without a reason
		p.refused = max(p.refused, r.Epoch)
	}
	for id, peer := range p.peers {
		if peer.in != nil && p.concerns(r, id, peer.epoch) {
			ins = append(ins, peer.in)
		}
	}
	for id, l := range p.links {
		select {
		case <-l.ready:
			if l.err == nil && l.out.Err() == nil && p.concerns(r, id, l.epoch) {
				outs = append(outs, l)
			}
		default: // made looks at p.severed, and at what is said here
			if r.Node != "" && r.Node == id.Node {
				l.left = why
			}
		}
	}
	p.mu.Unlock()
	// Not under p.mu, which the engine takes while it holds a link.
	for _, in := range ins {
		if in.ExpectEnd(why); !r.Soon {
			in.Sever(why)
		}
	}
	for _, l := range outs {
		if l.out.ExpectEnd(why); !r.Soon {
			l.out.Sever(why)
		}
	}
	return len(ins) + len(outs)
}

// concerns says whether a link with a process is to end.
func (p *Process) concerns(r local.SeverRequest, peer local.ProcessID, epoch uint64) bool {
	if r.Node != "" {
		return peer.Node == r.Node
	}
	return peer.Node != p.id.Node && epoch <= r.Epoch
}

// made lets in who waits for a link. One that was made while its epoch ended has
// to end, too: either this finds it, or sever does, which comes once more where the
// other side is yet to be told why.
func (p *Process) made(l *outLink) {
	p.mu.Lock()
	why, end := l.left, true
	if l.epoch != 0 && l.epoch <= p.severed {
		why, end = p.why, l.epoch <= p.refused
	}
	end = end && why != nil && l.err == nil
	if why != nil && l.err == nil {
		l.out.ExpectEnd(why) // before anybody sees its end
	}
	close(l.ready)
	p.endMaking(l.assoc)
	p.mu.Unlock()
	if end {
		l.out.Sever(why)
	}
}
