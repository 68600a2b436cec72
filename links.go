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
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// outLink is the link to one exporting process, shared by all imports from it.
type outLink struct {
	id     uint64
	epoch  uint64        // of this process's node, if the exporter is on another; set before ready
	direct bool          // the exporter takes imports on it; set before ready
	lost   uint64        // grants of before are good for nothing on it, see local.Grant; set before ready
	ready  chan struct{} // closed when out or err is set
	over   chan struct{} // closed when out has ended and nothing of it reaches the exporter any more
	left   error         // why the exporter's node has left while the link was made; with the process's mu
	assoc  *association  // that the link joins
	out    *link.Requester
	err    error

	mu      sync.Mutex
	imports map[uint32]*Import
	claims  map[uint32]*claims // of redirectable exports, by the number in their grants
	early   []revoking         // of imports that are just being made, or were closed; oldest first
	closing map[uint32]*Import // closed, with messages that are not acknowledged yet
}

// revoking is the end of an export.
type revoking struct {
	handle  uint32
	applied uint64
	err     error
}

// maxEarly bounds what an exporter can make this side keep: the oldest go, which
// are those of imports that were closed.
const maxEarly = 1024

// linkTo gives the link to an exporter, making it if need be. Importers of one
// exporter that come together share the making.
func (p *Process) linkTo(ctx context.Context, exporter local.ProcessID) (*outLink, error) {
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, code.New(code.Closed, "the process is closed")
		}
		if gone := p.isEnding(exporter); gone != nil {
			p.mu.Unlock()
			select {
			case <-gone:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			continue
		}
		if first := p.firsts[exporter.PID]; first != nil && exporter.Node == p.id.Node {
			p.mu.Unlock()
			select {
			case <-first:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			continue
		}
		l := p.links[exporter]
		if l == nil {
			l = p.newLink(exporter)
			p.mu.Unlock()
			l.out, l.err = p.connect(ctx, exporter, l)
			if l.err != nil {
				p.dropLink(exporter, l)
			}
			p.made(l)
			if errors.Is(l.err, errOver) && ctx.Err() == nil {
				continue
			}
			return l, l.err
		}
		p.mu.Unlock()
		select {
		case <-l.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if l.err == nil && l.out.Err() == nil {
			return l, nil
		}
		if l.err == nil { // or a copy under way by the old one could mix with the new one's
			select {
			case <-l.over:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		p.dropLink(exporter, l) // the one who made it failed, or it has ended since: make another
	}
}

// newLink notes a link that is about to be made; p.mu is held.
func (p *Process) newLink(exporter local.ProcessID) *outLink {
	l := &outLink{ready: make(chan struct{}), over: make(chan struct{}), imports: map[uint32]*Import{}, claims: map[uint32]*claims{}, closing: map[uint32]*Import{}}
	l.assoc = p.beginLink(exporter)
	p.links[exporter] = l
	if exporter.Node == p.id.Node {
		p.near[exporter.PID] = exporter
	}
	return l
}

func (p *Process) dropLink(exporter local.ProcessID, l *outLink) {
	p.mu.Lock()
	if p.links[exporter] == l {
		delete(p.links, exporter)
		if p.near[exporter.PID] == exporter {
			delete(p.near, exporter.PID)
		}
	}
	p.mu.Unlock()
}

// connect makes a link through the daemons.
func (p *Process) connect(ctx context.Context, exporter local.ProcessID, l *outLink) (*link.Requester, error) {
	r := local.ConnectRequest{Exporter: exporter}
	if exporter.Node != p.id.Node {
		id, err := p.identity()
		if err != nil {
			return nil, err
		}
		r.Secrecy = local.Secrecy{Encrypt: p.encrypt, Fingerprint: id.Fingerprint()}
		c, fds, err := ask[local.Connected](ctx, p, local.Connect, r, nil)
		closeAll(fds)
		if err != nil {
			return nil, err
		}
		if p.encrypt && !c.Encrypt {
			return nil, code.New(code.NotImplemented, "this node's daemon makes no encrypted links, which this process asks for: it is older")
		}
		l.id, l.epoch = c.Link, c.Epoch
		fd, cipher, a, err := p.dial(ctx, c, wire.Hello{Attempt: 1})
		if l := (later{}); errors.As(err, &l) { // its daemon was restarted since, and is to be asked anew
			return nil, code.New(code.BadRbufState, "%v", err)
		}
		if brokeOff(err) {
			return nil, interrupted{err}
		}
		if err != nil {
			return nil, err
		}
		terms := p.terms(a.Capabilities)
		terms.Cipher = cipher
		terms.Redial, terms.OnConnChange = p.redial(exporter, c), func(up bool, why error) { p.linkNews(exporter, true, up, why) }
		p.mu.Lock()
		left := l.left
		p.mu.Unlock()
		if left != nil {
			_ = unix.Close(fd)
			return nil, left
		}
		return p.newOut(fd, nil, terms, exporter, l)
	}
	ring, mine, err := p.linkPages()
	if err != nil {
		return nil, err
	}
	c, fds, err := ask[local.Connected](ctx, p, local.Connect, r, mine)
	closeAll(mine)
	if err == nil && len(fds) != local.LinkDescriptors {
		closeAll(fds)
		err = code.New(code.Protocol, "a link came with %d descriptors, want %d", len(fds), local.LinkDescriptors)
	}
	if err != nil {
		ring.Retire()
		return nil, err
	}
	return p.openNear(exporter, l, &c, ring, fds)
}

// linkPages makes the importer's page of a link on this node, and gives the descriptors that
// the exporter is to have, which the caller closes.
func (p *Process) linkPages() (ring shmlayout.Importer, mine []int, err error) {
	if ring, err = shmlayout.NewImporter(); err != nil {
		return ring, nil, err
	}
	if mine, err = descriptors(p.page.Region, ring.Region); err != nil {
		ring.Retire()
	}
	return ring, mine, err
}

// openNear begins a link on this node with what the exporter has given. It owns ring and fds.
func (p *Process) openNear(exporter local.ProcessID, l *outLink, c *local.Connected, ring shmlayout.Importer, fds []int) (out *link.Requester, err error) {
	p.brought(exporter, fds)
	l.id, l.direct, l.lost = c.Link, c.Imports, c.Lost
	pages := &link.Pages{Ring: ring}
	if pages.Peer, err = shmlayout.OpenProcess(fds[0]); err != nil {
		closeAll(fds[1:])
		retire(pages)
		return nil, err
	}
	if pages.Back, err = shmlayout.OpenExporter(fds[1]); err != nil {
		foreign.Close(fds[2])
		retire(pages)
		return nil, err
	}
	if out, err = p.newOut(fds[2], pages, link.Terms{PeerName: sourceName(exporter)}, exporter, l); err == nil {
		ring.Accept()
	}
	return out, err
}

func (p *Process) newOut(fd int, pages *link.Pages, terms link.Terms, exporter local.ProcessID, l *outLink) (*link.Requester, error) {
	p.mu.Lock() // until the association has the link, whose end may come at once
	defer p.mu.Unlock()
	if l.assoc.state != associated {
		foreign.Close(fd)
		retire(pages)
		return nil, errOver
	}
	var out *link.Requester
	out, err := link.NewRequester(p.engine, fd, pages, terms, l.revoked, func(err error) {
		p.log.Info("link to an exporter ended", "exporter", exporter, "why", err)
		l.mu.Lock()
		imports, cs := slices.Collect(maps.Values(l.imports)), l.claims
		l.claims = nil
		l.mu.Unlock()
		for _, im := range imports {
			im.endBindings(err)
			im.unmap()
		}
		for _, c := range cs {
			c.Retire()
		}
		close(l.over)
		p.dropLink(exporter, l)
		p.outEnded(l.assoc, out, err)
	})
	if err == nil {
		l.assoc.out = out
		out.Describe(shmlayout.LinkPeer(exporter))
	}
	return out, err
}

// revoked marks an import that its exporter ended.
func (l *outLink) revoked(handle uint32, applied uint64, err error) {
	l.mu.Lock()
	im := l.imports[handle]
	switch closed := l.closing[handle]; {
	case im != nil:
		if applied == link.AppliedUnknown {
			applied = 0
		}
	case applied == link.AppliedUnknown: // of one that was closed, and whose last get comes after that
	case closed != nil:
		closed.good.Store(min(closed.good.Load(), applied))
	default:
		if len(l.early) >= maxEarly {
			l.early = slices.Delete(l.early, 0, 1)
		}
		l.early = append(l.early, revoking{handle, applied, err})
	}
	l.mu.Unlock()
	if im != nil {
		im.revoked(applied, err)
	}
}

func (im *Import) revoked(applied uint64, err error) {
	if im.end(err, applied) {
		im.endBindings(err)
		im.p.tell(local.ImportRevoked, local.ProcessID{Node: im.peer.Node.name, PID: uint32(im.peer.PID)}, true, im.failed("import", 0, 0, err))
		im.p.event(Event{Kind: ImportRevoked, Peer: im.peer, Import: im, Err: im.failed("import", 0, 0, err)}, nil)
	}
}

// close forgets an import that its own process ends, as soon as the fate of all
// its messages is known: the exporter may have ended it before, and what was
// written since went nowhere. It says so before it acknowledges such messages.
// It is called with l.mu.
func (l *outLink) close(im *Import) (open bool) {
	if l.imports[im.handle] != im {
		return false
	}
	maps.DeleteFunc(l.closing, func(_ uint32, c *Import) bool { return l.out.AckedSeq() >= c.good.Load() && c.ended.Load() })
	delete(l.imports, im.handle)
	if im.mapped == nil && !im.ended.Load() {
		l.closing[im.handle] = im
	}
	return true
}

// enter puts an import among those of its link. The exporter may have ended it
// before.
func (l *outLink) enter(im *Import) error {
	l.mu.Lock()
	twice := l.imports[im.handle] != nil
	early := slices.IndexFunc(l.early, func(r revoking) bool { return r.handle == im.handle })
	var r revoking
	if !twice {
		l.imports[im.handle] = im
		if early >= 0 {
			r = l.early[early]
			l.early = slices.Delete(l.early, early, early+1)
		}
	}
	l.mu.Unlock()
	switch {
	case twice: // each of the two would be ended in the other's place
		return code.New(code.Protocol, "a grant with the handle %d of another import", im.handle)
	case early >= 0:
		im.revoked(r.applied, r.err)
	}
	if l.out.Err() != nil { // the link's end may have looked before
		im.unmap()
	}
	return nil
}

// descriptors duplicates those of several regions, for sending.
func descriptors(rs ...*shm.Region) ([]int, error) {
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
func sourceName(id local.ProcessID) string {
	return fmt.Sprintf("process %d (%x) on node %s", id.PID, id.Incarnation, id.Node)
}

// brought notes that another process has sent descriptors, not the daemon over whose connection they came.
func (p *Process) brought(id local.ProcessID, fds []int) {
	if len(fds) == 0 {
		return
	}
	s := foreign.From(sourceName(id))
	defer s.Release()
	s.Took(fds...)
}

// closeAll closes descriptors that may be others'.
func closeAll(fds []int) { foreign.Close(fds...) }

// retire gives back what there is of a link's pages.
func retire(p *link.Pages) {
	if p == nil {
		return
	}
	for _, r := range []*shm.Region{p.Peer.Region, p.Ring.Region, p.Back.Region} {
		if r != nil {
			r.Retire()
		}
	}
}
