package daemon

import (
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// Rate limit for log lines that one source causes, so that it cannot displace others' lines from
// the log.
const (
	logBurst    = 256
	logInterval = 100 * time.Millisecond // then one line per interval
)

type logLimiter struct {
	mu         sync.Mutex
	nextFree   time.Time // start of the next free interval
	suppressed int       // lines not logged since the last logged one
}

// allow reports whether a line may be logged, and returns how many were suppressed before it.
func (l *logLimiter) allow(now time.Time) (more int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first := now.Add(-logBurst * logInterval); l.nextFree.Before(first) {
		l.nextFree = first
	}
	if l.nextFree.After(now.Add(-logInterval)) {
		l.suppressed++
		return 0, false
	}
	l.nextFree = l.nextFree.Add(logInterval)
	more, l.suppressed = l.suppressed, 0
	return more, true
}

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
	more, ok := p.logLimiter.allow(time.Now())
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
	p.n.driverLog.Info(say, what...)
	return nil
}
