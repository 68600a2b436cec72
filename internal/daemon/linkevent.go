package daemon

import (
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/local"
)

// told logs what a process says of a link of its own. Each kind is a line of its own,
// of which so many are kept (logfile.Limit).
func (p *process) told(e local.LinkEvent) error {
	say, ok := map[string]string{
		local.LinkDown:      "a link is down",
		local.LinkFailed:    "a link has failed",
		local.ImportRevoked: "an import was revoked",
	}[e.Kind]
	if !ok {
		return code.New(code.BadArg, "unknown event %.32q: the program's vmmc is newer than its daemon", e.Kind)
	}
	e.Peer.Node = clip(e.Peer.Node)
	side := "exports"
	if e.Imports {
		side = "imports"
	}
	p.n.driverLog.Info(say, "process", *p.id.Load(), "peer", e.Peer, "role", side, "why", clip(e.Why))
	return nil
}
