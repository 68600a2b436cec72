package vmmc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/handshake"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/nodeconn"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/state"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// exporters are the processes that this one imports from: its links to them.
type exporters struct {
	*member
	terms        *linkTerms
	associations *associations
	dumpImports  bool // core dumps include imported memory

	mu    sync.Mutex
	links map[nodeproto.ProcessID]*exporterLink
	local map[uint32]nodeproto.ProcessID // exporters on this node that have an entry in links, by pid
	// By pid of a process on this node: closed when the first import from it, which also makes the
	// link, has ended.
	pendingFirst map[uint32]chan struct{}
}

// exporterLink is this process's link to one exporter, shared by all imports from it.
type exporterLink struct {
	exporter     nodeproto.ProcessID
	id           uint64
	epoch        uint64 // this node's epoch, for an exporter on another node; set before ready
	takesImports bool   // the exporter accepts import requests on it; set before ready
	// Grants with a smaller count are void, see nodeproto.Grant; set before ready.
	grantsLost uint64
	assoc      *association // the association that the link belongs to

	state     exporterLinkState // Guarded by exporters.mu.
	made      chan struct{}     // closed when state is linkReady or linkFailed
	ended     chan struct{}     // closed when state is linkEnded
	requester *link.Requester   // set before linkReady
	err       error             // why the link could not be made; set before linkFailed
	// The exporter's node left while the link was made. Guarded by exporters.mu.
	leaveCause error

	mu      sync.Mutex
	imports map[uint32]*Import
	// Of redirectable exports, by grant's number; nil: the link has ended.
	claims map[uint32]*claims
	// For imports that are not added yet or were closed; oldest first.
	earlyRevocations []revocation
	closedImports    map[uint32]*Import // closed imports with unacknowledged messages
}

// exporterLinkState is how far a link to an exporter has come.
//
//	making --> ready --> ended
//	  |
//	  v
//	failed
type exporterLinkState uint8

const (
	linkMaking exporterLinkState = iota
	linkReady                    // its connection may have failed since: see requester.Err
	linkFailed
	linkEnded // none of its data can reach the exporter any more
)

func (s exporterLinkState) String() string {
	return [...]string{"making", "ready", "failed", "ended"}[s]
}

var exporterLinkTransitions = state.Table[exporterLinkState]{
	linkMaking: {linkReady, linkFailed},
	linkReady:  {linkEnded},
}

// setLinkState changes the state of a link and wakes the goroutines that wait for it. A link that
// has failed or ended leaves the table. mu is held.
func (t *exporters) setLinkState(l *exporterLink, to exporterLinkState) {
	exporterLinkTransitions.Check(l.state, to)
	l.state = to
	if to != linkReady && t.links[l.exporter] == l {
		delete(t.links, l.exporter)
		if t.local[l.exporter.PID] == l.exporter {
			delete(t.local, l.exporter.PID)
		}
	}
	if to == linkEnded {
		close(l.ended)
		return
	}
	close(l.made)
	t.associations.endPendingLink(l.assoc)
}

// revocation is an exporter's notice that an export has ended.
type revocation struct {
	handle  uint32
	applied uint64
	err     error
}

// maxEarlyRevocations bounds the memory that an exporter can make this side keep. The oldest are
// dropped; they belong to closed imports.
const maxEarlyRevocations = 1024

// acquireLink returns the link to an exporter and makes it if there is none. Concurrent callers for
// one exporter share the attempt.
func (t *exporters) acquireLink(
	ctx context.Context, exporter nodeproto.ProcessID,
) (*exporterLink, error) {
	for {
		t.mu.Lock()
		if t.closed.Load() {
			t.mu.Unlock()
			return nil, code.New(code.Closed, "the process is closed")
		}
		if ended := t.associations.endingDone(exporter); ended != nil {
			t.mu.Unlock()
			select {
			case <-ended:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			continue
		}
		if first := t.pendingFirst[exporter.PID]; first != nil && exporter.Node == t.id.Node {
			t.mu.Unlock()
			select {
			case <-first:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			continue
		}
		l := t.links[exporter]
		if l == nil {
			l = t.addLink(exporter)
			t.mu.Unlock()
			err := t.connectLink(ctx, l)
			if err != nil {
				t.linkFailed(l, err)
			}
			if errors.Is(err, errAssociationOver) && ctx.Err() == nil {
				continue
			}
			return l, err
		}
		t.mu.Unlock()
		select {
		case <-l.made:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if l.err != nil {
			continue // make another
		}
		if l.requester.Err() == nil {
			return l, nil
		}
		select { // a copy that the old link still makes could mix with one of the new link
		case <-l.ended:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// addLink enters a link that is about to be made. mu is held.
func (t *exporters) addLink(exporter nodeproto.ProcessID) *exporterLink {
	l := &exporterLink{exporter: exporter, made: make(chan struct{}), ended: make(chan struct{}), imports: map[uint32]*Import{}, claims: map[uint32]*claims{}, closedImports: map[uint32]*Import{}}
	l.assoc = t.associations.beginPendingLink(exporter, false)
	t.links[exporter] = l
	if exporter.Node == t.id.Node {
		t.local[exporter.PID] = exporter
	}
	return l
}

// linkFailed ends the attempt to make a link.
func (t *exporters) linkFailed(l *exporterLink, err error) {
	t.mu.Lock()
	l.err = err
	t.setLinkState(l, linkFailed)
	t.mu.Unlock()
}

// connectLink makes a link with the help of the daemons. After an error the caller calls
// linkFailed.
func (t *exporters) connectLink(ctx context.Context, l *exporterLink) error {
	exporter := l.exporter
	r := nodeproto.ConnectRequest{Exporter: exporter}
	if exporter.Node != t.id.Node {
		id, err := t.terms.identity()
		if err != nil {
			return err
		}
		r.Secrecy = nodeproto.Secrecy{Encrypt: t.terms.encrypt, Fingerprint: id.Fingerprint()}
		c, fds, err := nodeconn.Ask[nodeproto.Connected](ctx, &t.node, nodeproto.Connect, r, nil)
		closeAll(fds)
		if err != nil {
			return err
		}
		if t.terms.encrypt && !c.Encrypt {
			return code.New(code.NotImplemented,
				"this node's daemon makes no encrypted links, which this process asks for: it is older")
		}
		l.id, l.epoch = c.Link, c.Epoch
		fd, cipher, a, err := t.terms.dial(ctx, c, wire.Hello{Attempt: 1})
		// the exporter's daemon was restarted since: ask it again
		if l := (handshake.RetryLaterError{}); errors.As(err, &l) {
			return code.New(code.BadRbufState, "%v", err)
		}
		if handshake.Broke(err) {
			return interruptedError{err}
		}
		if err != nil {
			return err
		}
		terms := t.terms.agreed(a.Capabilities)
		terms.Cipher = cipher
		terms.Redial, terms.OnConnChange = t.terms.redial(exporter, c), func(to shmlayout.ConnState, why error) { t.linkStateChanged(exporter, true, to, why) }
		t.mu.Lock()
		left := l.leaveCause
		t.mu.Unlock()
		if left != nil {
			_ = unix.Close(fd)
			return left
		}
		return t.startLink(l, fd, nil, terms)
	}
	ring, mine, err := t.newLinkPages()
	if err != nil {
		return err
	}
	c, fds, err := nodeconn.Ask[nodeproto.Connected](ctx, &t.node, nodeproto.Connect, r, mine)
	closeAll(mine)
	if err == nil && len(fds) != nodeproto.LinkDescriptors {
		closeAll(fds)
		err = code.New(code.Protocol,
			"a link came with %d descriptors, want %d", len(fds), nodeproto.LinkDescriptors)
	}
	if err != nil {
		ring.Retire()
		return err
	}
	return t.openLocalLink(l, &c, ring, fds)
}

// newLinkPages makes the importer's page of a link on this node. It returns the descriptors for the
// exporter, which the caller closes.
func (t *exporters) newLinkPages() (ring shmlayout.Importer, mine []int, err error) {
	if ring, err = shmlayout.NewImporter(); err != nil {
		return ring, nil, err
	}
	if mine, err = dupDescriptors(t.page.Region, ring.Region); err != nil {
		ring.Retire()
	}
	return ring, mine, err
}

// openLocalLink starts a link on this node from the exporter's descriptors. It owns ring and fds.
func (t *exporters) openLocalLink(
	l *exporterLink, c *nodeproto.Connected, ring shmlayout.Importer, fds []int,
) (err error) {
	attributeDescriptors(l.exporter, fds)
	l.id, l.takesImports, l.grantsLost = c.Link, c.Imports, c.Lost
	pages := &link.Pages{Ring: ring}
	if pages.Peer, err = shmlayout.OpenProcess(fds[0]); err != nil {
		closeAll(fds[1:])
		retirePages(pages)
		return err
	}
	if pages.Back, err = shmlayout.OpenExporter(fds[1]); err != nil {
		foreign.Close(fds[2])
		retirePages(pages)
		return err
	}
	return t.startLink(l, fds[2], pages, link.Terms{PeerName: sourceName(l.exporter)})
}

// startLink starts a link on a connected socket. The link is ready then, and may end at once. It
// owns fd and pages.
func (t *exporters) startLink(l *exporterLink, fd int, pages *link.Pages, terms link.Terms) error {
	t.mu.Lock()
	t.associations.mu.Lock()
	if l.assoc.state != associated {
		t.associations.mu.Unlock()
		t.mu.Unlock()
		foreign.Close(fd)
		retirePages(pages)
		return errAssociationOver
	}
	requester, err := link.NewRequester(t.engine, fd, pages, terms, l.handleRevocation, func(err error) { t.requesterEnded(l, err) })
	if err != nil {
		t.associations.mu.Unlock()
		t.mu.Unlock()
		return err
	}
	requester.Describe(shmlayout.LinkPeer(l.exporter))
	if pages != nil {
		pages.Ring.Accept()
	}
	// A link made while its epoch ended must end too: this finds the end, or handleSever finds
	// the link. handleSever runs a second time when the other side must first learn the reason.
	why, sever := l.leaveCause, true
	if l.epoch != 0 && l.epoch <= t.associations.severedEpoch {
		why, sever = t.associations.severCause, l.epoch <= t.associations.refusedEpoch
	}
	if why != nil {
		requester.ExpectEnd(why) // before any caller sees its end
	}
	l.requester, l.assoc.requester = requester, requester
	t.associations.mu.Unlock()
	t.setLinkState(l, linkReady)
	t.mu.Unlock()
	if why != nil && sever {
		requester.Sever(why)
	}
	return nil
}

// ready appends the links that are ready.
func (t *exporters) ready(links []*exporterLink) []*exporterLink {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.links {
		if l.state == linkReady {
			links = append(links, l)
		}
	}
	return links
}

// fence waits until the exporter has applied all messages before, those of closed imports included.
// It fails if an import that is open ends meanwhile.
func (l *exporterLink) fence(ctx context.Context) error {
	var room [8]*Import
	imports := room[:0]
	l.mu.Lock()
	for _, im := range l.imports {
		if im.state == importOpen {
			imports = append(imports, im)
		}
	}
	l.mu.Unlock()
	var errs []error
	if err := l.requester.WaitApplied(ctx, nil); err != nil && (len(imports) > 0 || ctx.Err() != nil) {
		return linkError(l.exporter, err)
	}
	for _, im := range imports {
		if err := im.checkApplied(); err != nil {
			errs = append(errs, im.opError("fence", 0, 0, err))
		}
	}
	return errors.Join(errs...)
}

// requesterEnded ends what used a link to an exporter, which has ended.
func (t *exporters) requesterEnded(l *exporterLink, err error) {
	t.log.Info("link to an exporter ended", "exporter", l.exporter, "why", err)
	l.mu.Lock()
	imports, cs := slices.Collect(maps.Values(l.imports)), l.claims
	l.claims = nil
	for _, im := range imports {
		if im.state == importOpen {
			im.setState(importLost, err, 0)
		}
	}
	l.mu.Unlock()
	for _, im := range imports {
		im.endBindings(err)
		im.unmap()
	}
	for _, c := range cs {
		c.Retire()
	}
	t.mu.Lock() // once startLink has made it ready
	t.setLinkState(l, linkEnded)
	t.associations.requesterEnded(l.assoc, err, imports)
	t.mu.Unlock()
	t.reportLinkEnd(l.exporter, true, err)
}

// handleRevocation ends the import whose export was closed.
func (l *exporterLink) handleRevocation(handle uint32, applied uint64, err error) {
	l.mu.Lock()
	im := l.imports[handle]
	switch closed := l.closedImports[handle]; {
	case im != nil && im.state == importRevoked: // a get was refused before the revocation arrived
		im = nil
	case im != nil:
		if applied == link.AppliedUnknown {
			applied = 0
		}
		im.setState(importRevoked, err, applied)
	case applied == link.AppliedUnknown:
		// the import was closed, and its last get comes after the revocation
	case closed != nil:
		closed.lastDelivered.Store(min(closed.lastDelivered.Load(), applied))
	default:
		if len(l.earlyRevocations) >= maxEarlyRevocations {
			l.earlyRevocations = slices.Delete(l.earlyRevocations, 0, 1)
		}
		l.earlyRevocations = append(l.earlyRevocations, revocation{handle, applied, err})
	}
	l.mu.Unlock()
	if im != nil {
		im.reportRevocation(err)
	}
}

// removeImport removes an import that this process closes. It reports false if it was closed
// before. A stream import with unacknowledged messages stays in closedImports: the exporter may
// have ended the export before, and then later messages went nowhere. The exporter sends the
// revocation before it acknowledges such messages. l.mu is held.
func (l *exporterLink) removeImport(im *Import) (first bool) {
	if im.state == importClosing || im.state == importClosed {
		return false
	}
	maps.DeleteFunc(l.closedImports, func(_ uint32, c *Import) bool {
		return l.requester.AckedSeq() >= c.lastDelivered.Load() && c.state == importClosed
	})
	delete(l.imports, im.handle)
	if im.mapped == nil && im.state == importOpen {
		l.closedImports[im.handle] = im
	}
	im.setState(importClosing, nil, 0)
	return true
}

// addImport adds an import to its link. Its revocation may have come before.
func (l *exporterLink) addImport(im *Import) error {
	l.mu.Lock()
	if l.imports[im.handle] != nil { // a revocation would end the wrong one of the two
		l.mu.Unlock()
		return code.New(code.Protocol, "a grant with the handle %d of another import", im.handle)
	}
	l.imports[im.handle] = im
	var revoked error
	index := slices.IndexFunc(l.earlyRevocations, func(r revocation) bool { return r.handle == im.handle })
	switch {
	case index >= 0:
		r := l.earlyRevocations[index]
		l.earlyRevocations = slices.Delete(l.earlyRevocations, index, index+1)
		im.setState(importRevoked, r.err, r.applied)
		revoked = r.err
	case l.claims == nil: // the link's end has walked the table before
		im.setState(importLost, l.requester.Err(), 0)
	}
	lost := l.claims == nil
	l.mu.Unlock()
	if revoked != nil {
		im.reportRevocation(revoked)
	}
	if lost {
		im.unmap()
		im.p.associations.finishWhenOver(l.assoc, im)
	}
	return nil
}

// dupDescriptors duplicates the descriptors of several regions, for sending.
func dupDescriptors(rs ...*shm.Region) ([]int, error) {
	var fds []int
	for _, r := range rs {
		fd, err := r.Descriptor()
		if err != nil {
			closeAll(fds)
			return nil, err
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

// sourceName names a process in package foreign.
func sourceName(id nodeproto.ProcessID) string {
	return fmt.Sprintf("process %d (%x) on node %s", id.PID, id.Incarnation, id.Node)
}

// attributeDescriptors records that a peer process sent the descriptors, not the daemon that passed
// them on.
func attributeDescriptors(id nodeproto.ProcessID, fds []int) {
	if len(fds) == 0 {
		return
	}
	s := foreign.From(sourceName(id))
	defer s.Release()
	s.Took(fds...)
}

// closeAll closes descriptors that another process may have sent, without waiting.
func closeAll(fds []int) { foreign.Close(fds...) }

// retirePages unmaps the pages of a link, as many as there are.
func retirePages(p *link.Pages) {
	if p == nil {
		return
	}
	for _, r := range []*shm.Region{p.Peer.Region, p.Ring.Region, p.Back.Region} {
		if r != nil {
			r.Retire()
		}
	}
}
