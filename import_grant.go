package vmmc

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeconn"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// importOnLink requests an import over the link to the exporter, if that link takes such requests.
// ok is false if the caller must ask the node.
func (t *exporters) importOnLink(
	ctx context.Context, peer ProcessID, id uint32,
) (l *exporterLink, g nodeproto.Grant, fds []int, ok bool) {
	// A process without its node makes no imports.
	if peer.Node.name != t.id.Node || !t.node.CheckConnected() {
		return nil, g, nil, false
	}
	exporter, l := t.localLink(uint32(peer.PID))
	if l == nil {
		return nil, g, nil, false
	}
	start := time.Now()
	a, fd, ok := l.requester.Import(ctx, id)
	if !ok {
		return nil, g, nil, false
	}
	if fd >= 0 {
		fds = []int{fd}
	}
	t.logRequest(nodeproto.Import, nodeproto.ImportRequest{Node: peer.Node.name, PID: uint32(peer.PID), ID: id}, time.Since(start), nil)
	return l, nodeproto.Grant{
		Exporter: exporter, Handle: a.Handle, Size: int(a.Size), Rights: nodeproto.Rights(a.Rights), Mapped: a.Mapped,
		Memory: int(a.Memory), Offset: int(a.Offset), Slot: uint32(a.Slot), State: a.State, Place: a.Addr,
	}, fds, true
}

// localLink returns the link to an exporter on this node if it is ready, alive and takes import
// requests, else nil.
func (t *exporters) localLink(pid uint32) (nodeproto.ProcessID, *exporterLink) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := t.local[pid]
	if l := t.links[id]; l != nil && l.state == linkReady && l.takesImports &&
		l.requester.Err() == nil {
		return id, l
	}
	return nodeproto.ProcessID{}, nil
}

// The first import from a process of the same node also makes the link: the request carries the
// importer's pages, and the grant the exporter's pages and a socket. That saves the separate link
// request: four packets of eight, each of which wakes a process.

// importFromNode requests an import from the node. l is non-nil if the link was made along with it.
func (t *exporters) importFromNode(
	ctx context.Context, target importTarget,
) (l *exporterLink, g nodeproto.Grant, fds []int, err error) {
	r := nodeproto.ImportRequest{Node: target.peer.Node.name, PID: uint32(target.peer.PID), ID: target.id}
	if target.found != nil {
		r.Serial = target.found.Serial
	}
	if r.Node == t.id.Node && t.linksWithImport.Load() {
		if over := t.claimFirst(r.PID); over != nil {
			defer over()
			l, g, fds, err = t.importWithLink(ctx, r)
			switch {
			// Waiting for an export, or for another daemon, is done by the request below: it leaves
			// no descriptors with the daemon.
			case errors.Is(err, code.InProgress), errors.Is(err, code.BadRbufState) && r.Serial == 0, errors.Is(err, code.NoDaemon):
				over()
			default:
				return l, g, fds, err
			}
		}
	}
	defer t.logWaiting("an import waits for its export: the process has not exported a buffer of this id, "+
		"or its node does not answer; compare the ids, and bound the wait by the context",
		"buffer", target.id, "exporter", target.peer.String())()
	g, fds, err = nodeconn.Ask[nodeproto.Grant](ctx, &t.node, nodeproto.Import, r, nil)
	return nil, g, fds, err
}

// importLogDelay is how long an import waits for its export before it is logged. Each further entry
// comes after ten times the delay of the one before.
var importLogDelay = 5 * time.Second

// logWaiting logs that an import waits, until the caller calls stop. With a wrong buffer id, or a
// wrong name, and no deadline an import would wait for ever, silently.
func (t *exporters) logWaiting(text string, attrs ...any) (stop func()) {
	var mu sync.Mutex
	var timer *time.Timer
	begun, wait, stopped := time.Now(), importLogDelay, false
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(wait, func() {
		mu.Lock()
		defer mu.Unlock()
		if stopped {
			return
		}
		t.log.Warn(text, append(slices.Clip(attrs), "waited", time.Since(begun).Round(time.Millisecond))...)
		wait *= 10
		timer.Reset(wait)
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		timer.Stop()
	}
}

// claimFirst claims the first import from process pid of this node: no other caller makes a link to
// it until over is called. over is nil if there is a link or another caller makes one. It may be
// called twice.
func (t *exporters) claimFirst(pid uint32) (over func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, there := t.local[pid]; there || t.pendingFirst[pid] != nil {
		return nil
	}
	done := make(chan struct{})
	t.pendingFirst[pid] = done
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.pendingFirst[pid] == done {
			delete(t.pendingFirst, pid)
			close(done)
		}
	}
}

// importWithLink requests an import together with its link. If the grant comes without a link, the
// caller requests the link separately.
func (t *exporters) importWithLink(
	ctx context.Context, r nodeproto.ImportRequest,
) (l *exporterLink, g nodeproto.Grant, fds []int, err error) {
	ring, mine, err := t.newLinkPages()
	if err != nil {
		return nil, g, nil, err
	}
	r.Link = true
	start := time.Now()
	g, fds, err = nodeproto.AskPolling[nodeproto.Grant](ctx, t.node.Latest(), nodeproto.Import, r, mine)
	closeAll(mine)
	if err != nil || g.Link == nil {
		ring.Retire()
		return nil, g, fds, err
	}
	if len(fds) < nodeproto.LinkDescriptors || g.Exporter.Node != t.id.Node ||
		g.Exporter.PID != r.PID {
		ring.Retire()
		closeAll(fds)
		return nil, g, nil, code.New(code.Protocol, "an import from process %d and its link came with %d descriptors from %v", r.PID, len(fds), g.Exporter)
	}
	own := len(fds) - nodeproto.LinkDescriptors
	fds, links := fds[:own:own], fds[own:]
	t.mu.Lock()
	if t.closed.Load() {
		t.mu.Unlock()
		ring.Retire()
		closeAll(append(fds, links...))
		return nil, g, nil, code.New(code.Closed, "the process is closed")
	}
	l = t.addLink(g.Exporter)
	t.mu.Unlock()
	if err = t.openLocalLink(l, g.Link, ring, links); err != nil {
		t.linkFailed(l, err)
		closeAll(fds)
		t.releaseGrant(ctx, g)
	}
	t.logRequest(nodeproto.Connect, nodeproto.ConnectRequest{Exporter: g.Exporter}, time.Since(start), err)
	return l, g, fds, err
}

// releaseGrant tells the exporter that a grant is not used. Without a daemon the exporter is not
// told; it drops the grant when it rejoins its daemon, or with the link. The request lasts at most
// timeout.Answer, and the import's caller waits for it only while its context lasts.
func (t *exporters) releaseGrant(ctx context.Context, g nodeproto.Grant) {
	if !t.node.Connected() {
		return
	}
	over := make(chan struct{})
	if !t.begin(func() {
		defer close(over)
		told, stop := context.WithTimeout(t.ctx, timeout.Answer)
		defer stop()
		_, _ = t.node.Latest().Call(told, nodeproto.Release, nodeproto.ReleaseRequest{Exporter: g.Exporter, Handle: g.Handle}, nil, nil)
	}) {
		return
	}
	select {
	case <-over:
	case <-ctx.Done():
	}
}
