package vmmc

import (
	"context"
	"log/slog"
	"time"

	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/local"
)

// asked logs a request to the daemon and what came of it. Only what is named
// here is written: other requests carry keys, or arguments that are nobody's
// business.
func (p *Process) asked(m local.Method, in any, took time.Duration, err error) {
	level := slog.LevelDebug
	var what []any
	switch r := in.(type) {
	case local.ExportRequest:
		what = []any{"buffer", r.ID, "bytes", r.Size}
	case local.ImportRequest:
		what = []any{"node", r.Node, "process", r.PID, "buffer", r.ID}
	case local.ConnectRequest:
		what = []any{"exporter", r.Exporter}
	default:
		level = levelRequests
	}
	p.traced(level, m, append(what, "took", took), err)
}

// told logs a request of the daemon.
func (p *Process) told(m local.Method, took time.Duration, err error) {
	level := levelRequests
	if m == local.Accept || m == local.Handover { // each makes a link
		level = slog.LevelDebug
	}
	p.traced(level, m, []any{"from", "daemon", "took", took}, err)
}

// step logs one of data on its way, in a program built with the tag vmmcdebug.
func (p *Process) step(s link.Step) {
	if ctx := context.Background(); p.log.Enabled(ctx, levelRequests) {
		p.log.Log(ctx, levelRequests, s.Op, "link", s.Link, "handle", s.Handle, "seq", s.Seq, "offset", s.Off, "bytes", s.Size)
	}
}

func (p *Process) traced(level slog.Level, m local.Method, what []any, err error) {
	if err != nil {
		what = append(what, "err", err)
	}
	p.log.Log(context.Background(), level, m.String(), what...)
}
