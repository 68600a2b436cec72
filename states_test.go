package vmmc

import (
	"errors"
	"testing"

	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
)

// A process without a node, for objects that change their states.
func bareProcess(t *testing.T) *Process {
	t.Helper()
	page, err := shmlayout.NewProcess()
	if err != nil {
		t.Fatal(err)
	}
	e, err := link.NewEngine(page.Board())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.Close()
		page.Retire()
	})
	p := newProcess(&options{})
	p.page, p.engine = page, e
	return p
}

func TestImportTransitions(t *testing.T) {
	p, cause := bareProcess(t), errors.New("because")
	if err := importTransitions.Walk(importClosed, func(from, to importState) importState {
		im := &Import{p: p, state: from, done: make(chan struct{})}
		im.setState(to, cause, 0)
		over := to == importRevoked || to == importClosed
		if err := im.checkAlive(); (err != nil) != over {
			t.Errorf("from %v to %v: calls say %v", from, to, err)
		}
		return im.state
	}); err != nil {
		t.Error(err)
	}
}

func TestExportTransitions(t *testing.T) {
	p := bareProcess(t)
	if err := exportTransitions.Walk(exportEnded, func(from, to exportState) exportState {
		e := &Export{p: p, state: from, liveState: p.page.State(0).Load() | 1}
		e.setState(to)
		if to == exportClosing && !e.closed.Load() {
			t.Error("an export that closes is not closed")
		}
		if word := p.page.State(e.slot).Load(); word%2 == 1 != (to == exportExported) && (to == exportExported || to == exportClosing) {
			t.Errorf("the state word of an export that is %v is %d", to, word)
		}
		return e.state
	}); err != nil {
		t.Error(err)
	}
}

func TestExporterLinkTransitions(t *testing.T) {
	p := newProcess(&options{})
	id := nodeproto.ProcessID{PID: 1}
	if err := exporterLinkTransitions.Walk(linkEnded, func(from, to exporterLinkState) exporterLinkState {
		l := p.exporters.addLink(id)
		l.state = from
		p.exporters.setLinkState(l, to)
		if kept := p.exporters.links[id] == l; kept != (to == linkReady) {
			t.Errorf("a link that is %v is in the table: %v", to, kept)
		}
		return l.state
	}); err != nil {
		t.Error(err)
	}
}

func TestGrantTransitions(t *testing.T) {
	p := newProcess(&options{})
	if err := grantTransitions.Walk(grantLost, func(from, to grantState) grantState {
		peer, e := &importer{grants: map[uint32]*grant{}}, &Export{p: p, grants: map[uint32]*grant{}}
		g := p.importers.addGrant(peer, e, 1)
		g.state = from
		g.setState(to, nil)
		if n := len(peer.grants) + len(e.grants); n != 0 == (to == grantRevoked || to == grantWithdrawn || to == grantLost) {
			t.Errorf("a grant that is %v is in %d tables", to, n)
		}
		return g.state
	}); err != nil {
		t.Error(err)
	}
}

func TestAssociationTransitions(t *testing.T) {
	p := newProcess(&options{})
	if err := associationTransitions.Walk(forgotten, func(from, to associationState) associationState {
		a := &association{state: from, done: make(chan struct{})}
		p.associations.byPeer[a.peer] = a
		p.associations.setState(a, to)
		if kept := p.associations.byPeer[a.peer] == a; kept != (to == ending) {
			t.Errorf("an association that is %v is in the table: %v", to, kept)
		}
		return a.state
	}); err != nil {
		t.Error(err)
	}
}
