package vmmc

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/local"
)

// The first import from a process of the same node makes the link on its way: the question brings the importer's pages, the
// grant the exporter's and a socket. That saves the question for the link, four packets of eight, each
// of which wakes a process.

// askNode asks the node for an import. There is a link if one was made with it.
func (p *Process) askNode(ctx context.Context, peer ProcessID, id uint32) (l *outLink, g local.Grant, fds []int, err error) {
	r := local.ImportRequest{Node: peer.Node.name, PID: uint32(peer.PID), ID: id}
	if r.Node == p.id.Node && p.introduces.Load() {
		if over := p.beginFirst(r.PID); over != nil {
			defer over()
			l, g, fds, err = p.askFirst(ctx, r)
			switch {
			// What is not there yet is to be waited for, without descriptors in the daemon's hands, and a daemon that has
			// ended, too.
			case errors.Is(err, code.InProgress), errors.Is(err, code.BadRbufState), errors.Is(err, code.NoDaemon):
				over()
			default:
				return l, g, fds, err
			}
		}
	}
	defer p.logWaiting(peer, id)()
	g, fds, err = ask[local.Grant](ctx, p, local.Import, r, nil)
	return nil, g, fds, err
}

// importWaits is how long an import waits for its export before the log has it. Each later entry
// comes after ten times as long as the one before.
var importWaits = 5 * time.Second

// logWaiting logs that an import waits for its export, until the caller calls stop: with a wrong
// buffer id and no deadline it would wait for ever, and say nothing.
func (p *Process) logWaiting(peer ProcessID, id uint32) (stop func()) {
	var mu sync.Mutex
	var t *time.Timer
	begun, wait, stopped := time.Now(), importWaits, false
	mu.Lock()
	defer mu.Unlock()
	t = time.AfterFunc(wait, func() {
		mu.Lock()
		defer mu.Unlock()
		if stopped {
			return
		}
		p.log.Warn("an import waits for its export: the process has not exported a buffer of this id, "+
			"or its node does not answer; compare the ids, and bound the wait by the context",
			"buffer", id, "exporter", peer.String(), "waited", time.Since(begun).Round(time.Millisecond))
		wait *= 10
		t.Reset(wait)
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		t.Stop()
	}
}

// beginFirst says that the caller's is the first import from process pid of this node: there is no link, and nobody
// else makes one until over. It is nil if there is a link, or somebody makes one. over may be called twice.
func (p *Process) beginFirst(pid uint32) (over func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, there := p.near[pid]; there || p.firsts[pid] != nil {
		return nil
	}
	done := make(chan struct{})
	p.firsts[pid] = done
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.firsts[pid] == done {
			delete(p.firsts, pid)
			close(done)
		}
	}
}

// askFirst asks for an import and its link. A grant without a link may come as well: then its exporter has
// made none, and is to be asked for it.
func (p *Process) askFirst(ctx context.Context, r local.ImportRequest) (l *outLink, g local.Grant, fds []int, err error) {
	ring, mine, err := p.linkPages()
	if err != nil {
		return nil, g, nil, err
	}
	r.Link = true
	start := time.Now()
	g, fds, err = local.AskAwake[local.Grant](ctx, p.node.now.Load(), local.Import, r, mine)
	closeAll(mine)
	if err != nil || g.Link == nil {
		ring.Retire()
		return nil, g, fds, err
	}
	if len(fds) < local.LinkDescriptors || g.Exporter.Node != p.id.Node || g.Exporter.PID != r.PID {
		ring.Retire()
		closeAll(fds)
		return nil, g, nil, code.New(code.Protocol, "an import from process %d and its link came with %d descriptors from %v", r.PID, len(fds), g.Exporter)
	}
	own := len(fds) - local.LinkDescriptors
	fds, links := fds[:own:own], fds[own:]
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		ring.Retire()
		closeAll(append(fds, links...))
		return nil, g, nil, code.New(code.Closed, "the process is closed")
	}
	l = p.newLink(g.Exporter)
	p.mu.Unlock()
	l.out, l.err = p.openNear(g.Exporter, l, g.Link, ring, links)
	if l.err != nil {
		p.dropLink(g.Exporter, l)
	}
	p.made(l)
	p.asked(local.Connect, local.ConnectRequest{Exporter: g.Exporter}, time.Since(start), l.err)
	if l.err != nil {
		closeAll(fds)
		p.giveBack(ctx, g)
	}
	return l, g, fds, l.err
}
