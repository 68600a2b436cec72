package link

import (
	"github.com/vmmc-go/vmmc/internal/page"
)

// Pages are the shared pages of a same-node link, as each side needs them. The
// link retires Far when it ends; Peer is the far process's and Near its own.
type Pages struct {
	Peer page.Process

	// The importing side writes Ring and reads Back; the exporting side the
	// other way round.
	Ring page.Importer
	Back page.Exporter
}

func (p *Pages) retire() {
	if p != nil {
		p.Peer.Retire()
		p.Ring.Retire()
		p.Back.Retire()
	}
}
