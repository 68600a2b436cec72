package vmmc

import (
	"errors"
	"slices"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/local"
)

// associationState is how far an association has come.
//
//	           the first link ends          all links have ended
//	associated -------------------> ending ---------------------> over
//	     |
//	     | no link was made, or each was replaced or never used
//	     v
//	  forgotten: out of the table without an event
type associationState uint8

const (
	associated associationState = iota
	ending
	over
)

func (s associationState) String() string {
	return [...]string{"associated", "ending", "over"}[s]
}

// association is all that joins this process to one other: the link that this process imports by,
// and the link that the other process imports by. Both end together (docs/models/gone.pml): once
// one of them has ended, the other one receives what is still to come and is closed. [PeerGone] is
// told when both have ended, so nothing of the other process arrives after it. All fields are
// guarded by Process.mu.
type association struct {
	peer   local.ProcessID
	state  associationState
	making int // links that are being made, and may begin only while the state is associated
	out    *link.Requester
	ins    map[*link.Responder]bool // the importer's link, and those that it replaced and that have not ended yet
	ended  []*link.Responder        // with notifications that run before the event
	heard  bool                     // the process has shown that it lived after an event said that it was gone
	cause  error                    // of the first end
	gone   chan struct{}            // closed when the state is over
}

// errOver is of a link that was being made when the association that it was for ended.
var errOver = code.New(code.PeerGone, "the other links with that process have ended meanwhile")

// beginLink gives the association that a new link with peer is to join, and notes that one is being
// made. The caller calls endMaking. p.mu is held.
func (p *Process) beginLink(peer local.ProcessID) *association {
	a := p.associations[peer]
	if a == nil {
		a = &association{peer: peer, ins: map[*link.Responder]bool{}, gone: make(chan struct{})}
		p.associations[peer] = a
	}
	a.making++
	return a
}

// endMaking undoes beginLink: the link is there, or it is not. p.mu is held.
func (p *Process) endMaking(a *association) {
	a.making--
	p.forgetAssociation(a)
}

// forgetAssociation drops an association that has no links and never had one whose end is an event.
// p.mu is held.
func (p *Process) forgetAssociation(a *association) {
	if a.state == associated && a.making == 0 && a.out == nil && len(a.ins) == 0 && p.associations[a.peer] == a {
		delete(p.associations, a.peer)
	}
}

// isEnding gives the channel that is closed when the association with a process is over, if that is
// ending, else nil. p.mu is held.
func (p *Process) isEnding(peer local.ProcessID) <-chan struct{} {
	if a := p.associations[peer]; a != nil && a.state == ending {
		return a.gone
	}
	return nil
}

// outEnded is called when the link to an exporter has ended.
func (p *Process) outEnded(a *association, out *link.Requester, err error) {
	p.mu.Lock()
	if a.out == out {
		a.out, a.heard = nil, true
		p.linkEnded(a, err)
	}
	p.mu.Unlock()
	p.tellEnd(a.peer, true, err)
}

// inEnded is called when a link of an importer has ended. gone reports whether that says something of the
// importer: a link that was replaced, or that the importer never had, does not. p.mu is held.
func (p *Process) inEnded(a *association, in *link.Responder, gone bool, err error) {
	if !a.ins[in] {
		return
	}
	delete(a.ins, in)
	a.heard = a.heard || in.HeardPeer()
	a.ended = append(slices.DeleteFunc(a.ended, func(in *link.Responder) bool { return !in.HasNotifications() }), in)
	if gone {
		p.linkEnded(a, err)
		return
	}
	p.settleAssociation(a)
	p.forgetAssociation(a)
}

// linkEnded moves on: the first end closes the other links. p.mu is held.
func (p *Process) linkEnded(a *association, err error) {
	if a.state == associated {
		a.state, a.cause = ending, err
		if peer := p.peers[a.peer]; peer != nil {
			peer.asks = false
		}
		why := err
		if !errors.Is(why, link.ErrGone) { // the other link has not failed so
			why = link.OtherEnded(err)
		}
		if a.out != nil {
			a.out.Drain(why)
		}
		for in := range a.ins {
			in.Drain(why)
		}
	}
	p.settleAssociation(a)
}

// settleAssociation tells that the process is gone, if no link with it is left. p.mu is held.
func (p *Process) settleAssociation(a *association) {
	if a.state != ending || a.out != nil || len(a.ins) > 0 {
		return
	}
	a.state = over
	delete(p.associations, a.peer)
	// The importer that asked for a link before it died, and whose connection comes after the event, is
	// gone already.
	if twice := !a.heard && slices.Contains(p.gone, a.peer); !twice {
		if p.gone = append(p.gone, a.peer); len(p.gone) > maxGone {
			p.gone = slices.Delete(p.gone, 0, 1)
		}
		p.peerGone(a.peer, a.ended, a.cause)
	}
	close(a.gone)
}

// maxGone bounds how many processes are remembered as gone.
const maxGone = 256

// endAssociation waits until an association that is ending is over, and does not wait for what the
// other process may still have to send: a process that makes another link has given up the links
// before.
func (p *Process) endAssociation(peer local.ProcessID) {
	p.mu.Lock()
	gone := p.isEnding(peer)
	if gone == nil {
		p.mu.Unlock()
		return
	}
	a := p.associations[peer]
	out, cause := a.out, a.cause
	var ins []*link.Responder
	for in := range a.ins {
		ins = append(ins, in)
	}
	p.mu.Unlock()
	// Not under p.mu, which the engine takes while it holds a link.
	if out != nil {
		out.Sever(cause)
	}
	for _, in := range ins {
		in.Sever(cause)
	}
	<-gone
}
