package vmmc

import (
	"context"
	"net"
	"time"

	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// SetLastHandle has the process go on behind this handle, as after so many grants.
func SetLastHandle(p *Process, handle uint32) {
	p.memory.mu.Lock()
	p.importers.lastHandle = handle
	p.memory.mu.Unlock()
}

// SetImportWaits changes after which time an import that waits is logged, until the function that
// it returns is called. No import may be under way.
func SetImportWaits(d time.Duration) (restore func()) {
	was := importLogDelay
	importLogDelay = d
	return func() { importLogDelay = was }
}

// SetNameFound has f called between the look-up of a name and the import, until the function that
// it returns is called. No import may be under way.
func SetNameFound(f func()) (restore func()) {
	nameFound = f
	return func() { nameFound = nil }
}

// JoinLate begins the link of an importer that was introduced as the order-th one,
// as where its process did not get to run between the answer and this.
func JoinLate(p *Process, id nodeproto.ProcessID, order uint64, fd int) error {
	return p.importers.joinLink(id, order, fd, nil, link.Terms{})
}

// Checked says of how many links of the process, out and in, payloads have checksums.
func Checked(p *Process) (n int) {
	p.exporters.mu.Lock()
	for _, l := range p.exporters.links {
		if l.requester.Terms().Checked {
			n++
		}
	}
	p.exporters.mu.Unlock()
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	for _, peer := range p.importers.byID {
		if peer.responder != nil && peer.responder.Terms().Checked {
			n++
		}
	}
	return n
}

// Encrypted says how many links of the process, out and in, are encrypted.
func Encrypted(p *Process) (n int) {
	p.exporters.mu.Lock()
	for _, l := range p.exporters.links {
		if l.requester.Encrypted() {
			n++
		}
	}
	p.exporters.mu.Unlock()
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	for _, peer := range p.importers.byID {
		if peer.responder != nil && peer.responder.Encrypted() {
			n++
		}
	}
	return n
}

// SetDialer has the process make its data connections by another function.
func SetDialer(p *Process, f func(ctx context.Context, address string) (net.Conn, error)) {
	p.terms.dialer = f
}

// Resumed is how often links to exporters lost their connections, and were resumed.
func Resumed(p *Process) (losses, resumptions uint64) {
	p.exporters.mu.Lock()
	defer p.exporters.mu.Unlock()
	for _, l := range p.exporters.links {
		n, m := l.requester.ConnStats()
		losses, resumptions = losses+n, resumptions+m
	}
	return losses, resumptions
}

// Grants is how many imports others have of the process's exports.
func Grants(p *Process) (n int) {
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	for _, peer := range p.importers.byID {
		n += len(peer.grants)
	}
	return n
}

// SetEvents has the process run another handler for its events; before there are any.
func SetEvents(p *Process, h func(Event)) {
	p.listenersMu.Lock()
	p.listeners = eventListeners{{h: h}}
	p.listenersMu.Unlock()
}

// Importers is how many processes have a link to this one, and order the number of the last link
// that they asked for.
func Importers(p *Process) (n int, order uint64) {
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	for _, peer := range p.importers.byID {
		if peer.responder != nil {
			n++
		}
		order = max(order, peer.order)
	}
	return n, order
}

// CloseExport closes buffer id of p.
func CloseExport(t interface{ Error(...any) }, p *Process, id uint32) {
	p.memory.mu.Lock()
	e := p.memory.exports[id]
	p.memory.mu.Unlock()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// WaitsForNotes reports whether a notification of one export is waited for.
func WaitsForNotes(p *Process) bool { return p.engine.NotifyWaiters() > 0 }

// Lost reports whether the link of an import is known to have ended.
func Lost(im *Import) bool {
	im.link.mu.Lock()
	defer im.link.mu.Unlock()
	return im.lost
}

// SeverLinks ends the links of p to exporters, as when they fail for good.
func SeverLinks(p *Process) {
	p.exporters.mu.Lock()
	var outs []*link.Requester
	for _, l := range p.exporters.links {
		outs = append(outs, l.requester)
	}
	p.exporters.mu.Unlock()
	for _, requester := range outs {
		requester.Sever(link.ErrGone)
	}
}

// ImportState names the state of an import, and ExportState that of an export.
func ImportState(im *Import) string {
	im.link.mu.Lock()
	defer im.link.mu.Unlock()
	return im.state.String()
}

func ExportState(e *Export) string {
	e.p.memory.mu.Lock()
	defer e.p.memory.mu.Unlock()
	return e.state.String()
}

// Asleep reports whether a goroutine of p sleeps that messages wake.
func Asleep(p *Process) bool { return p.page.Board().Count.Load() > 0 }
