package vmmc

import (
	"context"
	"log/slog"
	"time"

	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// handleLogged handles a request of the daemon and logs it.
func (p *Process) handleLogged(ctx context.Context, m nodeproto.Method, body []byte, fds []int) (any, []int, error) {
	start := time.Now()
	out, outFDs, err := p.handleRequest(ctx, m, body, fds)
	p.logDaemonRequest(m, time.Since(start), err)
	return out, outFDs, err
}

// levelRequest is the level of requests to the daemon and from it, see [WithLogger].
const levelRequest = slog.LevelDebug - 4

// logRequest logs a request to the daemon and its result. Only the arguments named here are
// logged: other requests carry keys or private arguments.
func (p *Process) logRequest(m nodeproto.Method, in any, took time.Duration, err error) {
	level := slog.LevelDebug
	var what []any
	switch r := in.(type) {
	case nodeproto.ExportRequest:
		what = []any{"buffer", r.ID, "bytes", r.Size}
	case nodeproto.ImportRequest:
		what = []any{"node", r.Node, "process", r.PID, "buffer", r.ID}
	case nodeproto.ConnectRequest:
		what = []any{"exporter", r.Exporter}
	default:
		level = levelRequest
	}
	p.logCall(level, m, append(what, "took", took), err)
}

// logDaemonRequest logs a request that the daemon made to this process.
func (p *Process) logDaemonRequest(m nodeproto.Method, took time.Duration, err error) {
	level := levelRequest
	if m == nodeproto.Accept || m == nodeproto.Handover { // each makes a link
		level = slog.LevelDebug
	}
	p.logCall(level, m, []any{"from", "daemon", "took", took}, err)
}

// logStep logs one step of a data transfer. It is called only with the build tag vmmcdebug.
func (p *Process) logStep(s link.Step) {
	if ctx := context.Background(); p.log.Enabled(ctx, levelRequest) {
		p.log.Log(ctx, levelRequest, s.Op, "link", s.Link, "handle", s.Handle, "seq", s.Seq, "offset", s.Off, "bytes", s.Size)
	}
}

func (p *Process) logCall(level slog.Level, m nodeproto.Method, what []any, err error) {
	if err != nil {
		what = append(what, "err", err)
	}
	p.log.Log(context.Background(), level, m.String(), what...)
}
