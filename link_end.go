package vmmc

import (
	"errors"
	"slices"
	"sync"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/state"
)

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

// setState changes the state. What is over or forgotten leaves the table. mu is held.
func (t *associations) setState(a *association, to associationState) {
	associationTransitions.Check(a.state, to)
	if a.state = to; to == ending {
		return
	}
	delete(t.byPeer, a.peer)
	close(a.done)
}

// associations are this process's associations with other processes, and what ends links with other
// nodes. mu is taken after the locks of the tables of links.
type associations struct {
	*member

	mu     sync.Mutex
	byPeer map[nodeproto.ProcessID]*association
	// Importers that have asked for a link since an association with them last began to end.
	asked     map[nodeproto.ProcessID]bool
	gonePeers []nodeproto.ProcessID // recent peers that PeerGone was reported for

	severedEpoch uint64 // the node's last epoch whose links were severed
	refusedEpoch uint64 // up to this epoch, links of importers are refused
	severCause   error  // the error that links of severedEpoch ended with
}

// association joins the links between this process and one peer: the link that this process imports
// over, and the link that the peer imports over. Both end together (docs/models/gone.pml): once one
// has ended, the other one drains its incoming data and is closed. [PeerGone] is reported when both
// have ended, so nothing of the peer arrives after it. All fields but peer and done, which do not
// change, are guarded by associations.mu.
type association struct {
	peer         nodeproto.ProcessID
	state        associationState
	pendingLinks int // links being made; they may start only in state associated
	requester    *link.Requester
	// The peer's link, and replaced ones that have not ended yet.
	responders      map[*link.Responder]bool
	endedResponders []*link.Responder // their queued notifications run before the event
	seenAlive       bool              // the peer was alive after an earlier PeerGone
	lostImports     []*Import         // finished when the association is over
	cause           error             // why the first link ended
	done            chan struct{}     // closed when the state is over or forgotten
}

// errAssociationOver ends an attempt to make a link whose association ended meanwhile.
var errAssociationOver = code.New(code.PeerGone, "the other links with that process have ended meanwhile")

// beginPendingLink returns the association for a new link with peer and counts the attempt. The
// caller calls endPendingLink. An importer that has dialled used the key that it got when it asked,
// so it lived after the links before had ended.
func (t *associations) beginPendingLink(peer nodeproto.ProcessID, dialled bool) *association {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.byPeer[peer]
	if a == nil {
		a = &association{peer: peer, responders: map[*link.Responder]bool{}, done: make(chan struct{})}
		t.byPeer[peer] = a
	}
	a.pendingLinks++
	a.seenAlive = a.seenAlive || dialled && t.asked[peer]
	return a
}

// endPendingLink ends an attempt, whether it made the link or not.
func (t *associations) endPendingLink(a *association) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a.pendingLinks--
	t.forget(a)
}

// forget drops an association that has no links and never had one whose end is an event.
// mu is held.
func (t *associations) forget(a *association) {
	if a.state == associated && a.pendingLinks == 0 && a.requester == nil && len(a.responders) == 0 {
		t.setState(a, forgotten)
	}
}

// ask records that an importer has asked for a link, and forgetAsked that it has no grant any more.
func (t *associations) ask(peer nodeproto.ProcessID) {
	t.mu.Lock()
	t.asked[peer] = true
	t.mu.Unlock()
}

func (t *associations) forgetAsked(peer nodeproto.ProcessID) {
	t.mu.Lock()
	delete(t.asked, peer)
	t.mu.Unlock()
}

// endingDone returns a channel that is closed when the association with peer is over. It is nil
// unless the state is ending.
func (t *associations) endingDone(peer nodeproto.ProcessID) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := t.byPeer[peer]; a != nil && a.state == ending {
		return a.done
	}
	return nil
}

// responderEnded records that an importer's link has ended. gone reports whether the importer is
// gone: a link that was replaced or never taken up says nothing about it.
func (t *associations) responderEnded(
	a *association, responder *link.Responder, gone bool, err error,
) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !a.responders[responder] {
		return
	}
	delete(a.responders, responder)
	a.seenAlive = a.seenAlive || responder.HeardPeer()
	a.endedResponders = append(slices.DeleteFunc(a.endedResponders, func(responder *link.Responder) bool { return !responder.HasNotifications() }), responder)
	if gone {
		t.linkEnded(a, err)
		return
	}
	t.settle(a)
	t.forget(a)
}

// requesterEnded records that the link to an exporter has ended, and which imports went with it.
func (t *associations) requesterEnded(a *association, err error, lost []*Import) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a.requester, a.seenAlive, a.lostImports = nil, true, append(a.lostImports, lost...)
	t.linkEnded(a, err)
}

// finishWhenOver finishes an import that was made when its link had ended.
func (t *associations) finishWhenOver(a *association, im *Import) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.state == over {
		im.finish()
		return
	}
	a.lostImports = append(a.lostImports, im)
}

// linkEnded changes the state to ending when the first link ends, and drains the other links. mu is
// held.
func (t *associations) linkEnded(a *association, err error) {
	if a.state == associated {
		t.setState(a, ending)
		a.cause = err
		delete(t.asked, a.peer)
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
	t.settle(a)
}

// settle reports that the peer is gone when no link with it is left. mu is held.
func (t *associations) settle(a *association) {
	if a.state != ending || a.requester != nil || len(a.responders) > 0 {
		return
	}
	for _, im := range a.lostImports { // before the event
		im.finish()
	}
	a.lostImports = nil
	// An importer that asked for a link before it died may have its connection handed over after
	// the event: it is gone already.
	if twice := !a.seenAlive && slices.Contains(t.gonePeers, a.peer); !twice {
		if t.gonePeers = append(t.gonePeers, a.peer); len(t.gonePeers) > maxGonePeers {
			t.gonePeers = slices.Delete(t.gonePeers, 0, 1)
		}
		t.dispatchPeerGone(a.peer, a.endedResponders, a.cause)
	}
	t.setState(a, over)
}

// maxGonePeers bounds the number of peers remembered as gone.
const maxGonePeers = 256

// end waits until an ending association is over. It severs the remaining links and does not drain
// them: a peer that makes another link has given up the earlier ones.
func (t *associations) end(peer nodeproto.ProcessID) {
	t.mu.Lock()
	a := t.byPeer[peer]
	if a == nil || a.state != ending {
		t.mu.Unlock()
		return
	}
	requester, cause := a.requester, a.cause
	var responders []*link.Responder
	for responder := range a.responders {
		responders = append(responders, responder)
	}
	t.mu.Unlock()
	// Not under mu, which the engine takes while it holds a link.
	if requester != nil {
		requester.Sever(cause)
	}
	for _, responder := range responders {
		responder.Sever(cause)
	}
	<-a.done
}

// recordSever records that the links of an epoch end, for links that are made meanwhile.
func (t *associations) recordSever(r nodeproto.SeverRequest, why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.Node == "" && r.Epoch > t.severedEpoch {
		t.severedEpoch, t.severCause = r.Epoch, why
	}
	if r.Node == "" && !r.Soon { // earlier, the peer would see an end without a reason
		t.refusedEpoch = max(t.refusedEpoch, r.Epoch)
	}
}

// severed returns the responders that r ends.
func (t *importers) severed(r nodeproto.SeverRequest) (responders []*link.Responder) {
	t.memory.mu.Lock()
	defer t.memory.mu.Unlock()
	for id, peer := range t.byID {
		if peer.responder != nil && t.severs(r, id, peer.epoch) {
			responders = append(responders, peer.responder)
		}
	}
	return responders
}

// severed returns the links that r ends. One that is being made ends by itself.
func (t *exporters) severed(r nodeproto.SeverRequest, why error) (links []*exporterLink) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, l := range t.links {
		switch {
		case l.state == linkReady && l.requester.Err() == nil && t.severs(r, id, l.epoch):
			links = append(links, l)
		case l.state == linkMaking && r.Node != "" && r.Node == id.Node:
			// startLink reads it, and severedEpoch
			l.leaveCause = why
		}
	}
	return links
}

// severs reports whether r ends a link with peer.
func (m *member) severs(r nodeproto.SeverRequest, peer nodeproto.ProcessID, epoch uint64) bool {
	if r.Node != "" {
		return peer.Node == r.Node
	}
	return peer.Node != m.id.Node && epoch <= r.Epoch
}
