package vmmc

import (
	"context"
	"errors"
	"slices"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/nodeconn"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/state"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// hasDeparted asks the node whether a process is known to have ended. An error says why that is not
// known.
func (m *member) hasDeparted(ctx context.Context, id nodeproto.ProcessID) (bool, error) {
	ctx, stop := context.WithTimeout(ctx, timeout.Control)
	defer stop()
	d, fds, err := nodeconn.Ask[nodeproto.Departure](ctx, &m.node, nodeproto.Departed, id, nil)
	closeAll(fds)
	return err == nil && d.Departed, err
}

// forgetLink tells the node that a dialled link has ended, so that it accepts no more dials for it.
func (m *member) forgetLink(l uint64) {
	if l == 0 {
		return
	}
	m.begin(func() {
		ctx, stop := context.WithTimeout(m.ctx, timeout.Control)
		defer stop()
		_, fds, err := nodeconn.Ask[nodeproto.Empty](ctx, &m.node, nodeproto.Forget, nodeproto.ForgetRequest{Link: l}, nil)
		closeAll(fds)
		if err != nil {
			m.log.Debug("the node was not told of a link's end", "link", l, "err", err)
		}
	})
}

// associationState is how far an association has come.
//
//	           the first link ends          all links have ended
//	associated -------------------> ending ---------------------> over
//	     |
//	     | no link was made, or each was replaced or never used
//	     v
//	  forgotten, without an event
type associationState uint8

const (
	associated associationState = iota
	ending
	over
	forgotten
)

func (s associationState) String() string {
	return [...]string{"associated", "ending", "over", "forgotten"}[s]
}

var associationTransitions = state.Table[associationState]{
	associated: {ending, forgotten},
	ending:     {over},
}

// setAssociationState changes the state. What is over or forgotten leaves the table. p.mu is held.
func (p *Process) setAssociationState(a *association, to associationState) {
	associationTransitions.Check(a.state, to)
	if a.state = to; to == ending {
		return
	}
	delete(p.associations, a.peer)
	close(a.done)
}

// association joins the links between this process and one peer: the link that this process imports
// over, and the link that the peer imports over. Both end together (docs/models/gone.pml): once one
// has ended, the other one drains its incoming data and is closed. [PeerGone] is reported when both
// have ended, so nothing of the peer arrives after it. All fields are guarded by Process.mu.
type association struct {
	peer            nodeproto.ProcessID
	state           associationState
	pendingLinks    int // links being made; they may start only in state associated
	requester       *link.Requester
	responders      map[*link.Responder]bool // the peer's link, and replaced ones that have not ended yet
	endedResponders []*link.Responder        // their queued notifications run before the event
	seenAlive       bool                     // the peer was alive after an earlier PeerGone
	cause           error                    // why the first link ended
	done            chan struct{}            // closed when the state is over or forgotten
}

// errAssociationOver ends an attempt to make a link whose association ended meanwhile.
var errAssociationOver = code.New(code.PeerGone, "the other links with that process have ended meanwhile")

// beginPendingLink returns the association for a new link with peer and counts the attempt. The
// caller calls endPendingLink. p.mu is held.
func (p *Process) beginPendingLink(peer nodeproto.ProcessID) *association {
	a := p.associations[peer]
	if a == nil {
		a = &association{peer: peer, responders: map[*link.Responder]bool{}, done: make(chan struct{})}
		p.associations[peer] = a
	}
	a.pendingLinks++
	return a
}

// endPendingLink ends an attempt, whether it made the link or not. p.mu is held.
func (p *Process) endPendingLink(a *association) {
	a.pendingLinks--
	p.forgetAssociation(a)
}

// forgetAssociation drops an association that has no links and never had one whose end is an event.
// p.mu is held.
func (p *Process) forgetAssociation(a *association) {
	if a.state == associated && a.pendingLinks == 0 && a.requester == nil && len(a.responders) == 0 {
		p.setAssociationState(a, forgotten)
	}
}

// endingDone returns a channel that is closed when the association with peer is over. It is nil
// unless the state is ending. p.mu is held.
func (p *Process) endingDone(peer nodeproto.ProcessID) <-chan struct{} {
	if a := p.associations[peer]; a != nil && a.state == ending {
		return a.done
	}
	return nil
}

// responderEnded records that an importer's link has ended. gone reports whether the importer is
// gone: a link that was replaced or never taken up says nothing about it. p.mu is held.
func (p *Process) responderEnded(a *association, responder *link.Responder, gone bool, err error) {
	if !a.responders[responder] {
		return
	}
	delete(a.responders, responder)
	a.seenAlive = a.seenAlive || responder.HeardPeer()
	a.endedResponders = append(slices.DeleteFunc(a.endedResponders, func(responder *link.Responder) bool { return !responder.HasNotifications() }), responder)
	if gone {
		p.linkEnded(a, err)
		return
	}
	p.settleAssociation(a)
	p.forgetAssociation(a)
}

// linkEnded changes the state to ending when the first link ends, and drains the other links. p.mu
// is held.
func (p *Process) linkEnded(a *association, err error) {
	if a.state == associated {
		p.setAssociationState(a, ending)
		a.cause = err
		if peer := p.importers[a.peer]; peer != nil {
			peer.asks = false
		}
		why := err
		if !errors.Is(why, link.ErrGone) { // the other link has not failed so
			why = link.OtherEnded(err)
		}
		if a.requester != nil {
			a.requester.Drain(why)
		}
		for responder := range a.responders {
			responder.Drain(why)
		}
	}
	p.settleAssociation(a)
}

// settleAssociation reports that the peer is gone when no link with it is left. p.mu is held.
func (p *Process) settleAssociation(a *association) {
	if a.state != ending || a.requester != nil || len(a.responders) > 0 {
		return
	}
	// An importer that asked for a link before it died may have its connection handed over after
	// the event: it is gone already.
	if twice := !a.seenAlive && slices.Contains(p.gonePeers, a.peer); !twice {
		if p.gonePeers = append(p.gonePeers, a.peer); len(p.gonePeers) > maxGonePeers {
			p.gonePeers = slices.Delete(p.gonePeers, 0, 1)
		}
		p.dispatchPeerGone(a.peer, a.endedResponders, a.cause)
	}
	p.setAssociationState(a, over)
}

// maxGonePeers bounds the number of peers remembered as gone.
const maxGonePeers = 256

// endAssociation waits until an ending association is over. It severs the remaining links and does
// not drain them: a peer that makes another link has given up the earlier ones.
func (p *Process) endAssociation(peer nodeproto.ProcessID) {
	p.mu.Lock()
	done := p.endingDone(peer)
	if done == nil {
		p.mu.Unlock()
		return
	}
	a := p.associations[peer]
	requester, cause := a.requester, a.cause
	var responders []*link.Responder
	for responder := range a.responders {
		responders = append(responders, responder)
	}
	p.mu.Unlock()
	// Not under p.mu, which the engine takes while it holds a link.
	if requester != nil {
		requester.Sever(cause)
	}
	for _, responder := range responders {
		responder.Sever(cause)
	}
	<-done
}

// handleSever ends links with other nodes because this node or the other one was taken down, and
// returns their number. Exports stay: importers import again later.
func (p *Process) handleSever(r nodeproto.SeverRequest) int {
	// ErrGone, as for every end of a link that this process did not choose, with the reason.
	why := link.Down("%w", code.New(code.Unreachable, "%s", r.Why))
	var responders []*link.Responder
	var links []*exporterLink
	p.mu.Lock()
	if r.Node == "" && r.Epoch > p.severedEpoch {
		p.severedEpoch, p.severCause = r.Epoch, why
	}
	if r.Node == "" && !r.Soon { // earlier, the peer would see an end without a reason
		p.refusedEpoch = max(p.refusedEpoch, r.Epoch)
	}
	for id, peer := range p.importers {
		if peer.responder != nil && p.severs(r, id, peer.epoch) {
			responders = append(responders, peer.responder)
		}
	}
	for id, l := range p.exporterLinks {
		switch {
		case l.state == linkReady && l.requester.Err() == nil && p.severs(r, id, l.epoch):
			links = append(links, l)
		case l.state == linkMaking && r.Node != "" && r.Node == id.Node: // startLink reads it, and p.severedEpoch
			l.leaveCause = why
		}
	}
	p.mu.Unlock()
	// Not under p.mu, which the engine takes while it holds a link.
	for _, responder := range responders {
		if responder.ExpectEnd(why); !r.Soon {
			responder.Sever(why)
		}
	}
	for _, l := range links {
		if l.requester.ExpectEnd(why); !r.Soon {
			l.requester.Sever(why)
		}
	}
	return len(responders) + len(links)
}

// severs reports whether r ends a link with peer.
func (p *Process) severs(r nodeproto.SeverRequest, peer nodeproto.ProcessID, epoch uint64) bool {
	if r.Node != "" {
		return peer.Node == r.Node
	}
	return peer.Node != p.id.Node && epoch <= r.Epoch
}
