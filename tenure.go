package vmmc

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/local"
)

// tenure is a link of an importer, and what is told of it: that it has lost its connection, that it goes on, and at
// last, once, that the importer is gone.
type tenure struct {
	in   *link.Responder // with p.mu, until it is there
	of   *association    // with p.mu, the same
	down atomic.Bool     // it has no connection, of which was told; final once Sever has returned, which has had the lock it is stored with
	next *succession     // what it was cut for; with p.mu
}

// succession is an importer's next link.
type succession struct {
	done chan struct{} // closed when it has begun, or has not
	err  error         // why not; then
	told chan struct{} // closed when the end of the link before it is told, if it is
}

// succeeded says that the link for which t was cut has begun, or why it has not: then nothing more
// begins of that importer before it is told that it is gone.
func (t *tenure) succeeded(err error) {
	if t == nil {
		return
	}
	t.next.err = err
	close(t.next.done)
	if err != nil {
		<-t.next.told
	}
}

// errAnother ends a link whose importer has made another one, because it has not heard that there
// was this one: the process is not gone.
var errAnother = fmt.Errorf("%w: the importer has made another link", link.ErrClosed)

// lostImporter forgets what went with a link, and says that the importer is gone, unless its next link goes on.
func (p *Process) lostImporter(id local.ProcessID, dialled uint64, t *tenure, err error) {
	p.mu.Lock() // once the link is there
	next := t.next
	if next != nil {
		p.mu.Unlock()
		<-next.done // which waits for nobody
		if next.err != nil {
			err = link.Gone("the importer's next link could not begin: %w", next.err)
		}
		p.mu.Lock()
	} else { // nor is it cut from here on
		p.dropTenure(id, t.in)
	}
	// The end of a link that the importer never had, because its call or its daemon ended first, says nothing
	// of the importer.
	gone := (next == nil || next.err != nil) && (!errors.Is(err, link.ErrGone) || t.in.Accepted())
	p.inEnded(t.of, t.in, gone, err) // in one step with what makes room for another link, of which no more is told before
	p.mu.Unlock()
	if next != nil {
		close(next.told)
	}
	if gone {
		p.tellEnd(id, false, err)
	}
	p.log.Info("link from an importer ended", "importer", id, "why", err)
	p.forgetLink(dialled)
}

// dropTenure forgets what went with a link that was not cut; p.mu is held.
func (p *Process) dropTenure(id local.ProcessID, ended *link.Responder) {
	for e := range p.redirs {
		e.importerLost(id)
	}
	peer := p.peers[id]
	if peer == nil {
		return
	}
	for h, g := range peer.grants {
		if g.in == ended {
			delete(peer.grants, h)
			delete(g.e.grants, h)
		}
	}
	p.lose(peer)
	if peer.in == ended {
		peer.in, peer.tenure = nil, nil
	}
	p.forgetIdle(peer)
}

// dropHeir forgets what was to move to an importer's next link, which could not begin.
func (p *Process) dropHeir(id local.ProcessID) {
	p.mu.Lock()
	for e := range p.redirs {
		e.importerLost(id)
	}
	p.mu.Unlock()
	p.dropGrant(id, allUnlinked)
}
