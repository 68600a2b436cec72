package daemon

import (
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/local"
)

// A process has its events logged at once when not too many came before: it is not to
// drive others' out of the log.
const (
	toldAtOnce = 256
	toldEach   = 100 * time.Millisecond // one more
)

type toldLines struct {
	mu   sync.Mutex
	paid time.Time // those until then are paid for
	more int       // not logged since the last that was
}

// take says whether one more may be logged, and how many were not before it.
func (t *toldLines) take(now time.Time) (more int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if first := now.Add(-toldAtOnce * toldEach); t.paid.Before(first) {
		t.paid = first
	}
	if t.paid.After(now.Add(-toldEach)) {
		t.more++
		return 0, false
	}
	t.paid = t.paid.Add(toldEach)
	more, t.more = t.more, 0
	return more, true
}

// tell logs what a process says of a link of its own. Each kind is a line of its own,
// of which so many are kept (logfile.Limit).
func (p *process) tell(e local.LinkEvent) error {
	say, ok := map[string]string{
		local.LinkDown:      "a link is down",
		local.LinkFailed:    "a link has failed",
		local.LinkLost:      "a link has lost its connection",
		local.LinkResumed:   "a link was resumed",
		local.ImportRevoked: "an import was revoked",
	}[e.Kind]
	if !ok {
		return code.New(code.BadArg, "unknown event %.32q: the program's vmmc is newer than its daemon", e.Kind)
	}
	more, ok := p.told.take(time.Now())
	if !ok {
		return nil
	}
	e.Peer.Node = clip(e.Peer.Node)
	side := "exports"
	if e.Imports {
		side = "imports"
	}
	p.n.driverLog.Info(say, "process", *p.id.Load(), "peer", e.Peer, "role", side, "why", clip(e.Why), "more", more)
	return nil
}
