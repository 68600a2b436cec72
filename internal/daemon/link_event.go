package daemon

import (
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// logLinkEvent logs an event that a process reports about one of its links. Each kind is a line of
// its own, of which so many are kept (logfile.Limit).
func (p *process) logLinkEvent(e nodeproto.LinkEvent) error {
	say, ok := map[string]string{
		nodeproto.LinkDown:      "a link is down",
		nodeproto.LinkFailed:    "a link has failed",
		nodeproto.LinkLost:      "a link has lost its connection",
		nodeproto.LinkResumed:   "a link was resumed",
		nodeproto.ImportRevoked: "an import was revoked",
	}[e.Kind]
	if !ok {
		return code.New(code.BadArg, "unknown event %.32q: the program's vmmc is newer than its daemon",
			e.Kind)
	}
	more, ok := p.logLimiter.Allow(time.Now())
	if !ok {
		return nil
	}
	e.Peer.Node = truncateReason(e.Peer.Node)
	side := "exports"
	if e.Imports {
		side = "imports"
	}
	what := []any{
		"process", *p.id.Load(), "peer", e.Peer, "role", side, "why", truncateReason(e.Why), "more", more,
	}
	if e.State != "" {
		what = append(what, "state", truncateReason(e.State))
	}
	p.n.logs.DriverFile.Info(say, what...)
	return nil
}
