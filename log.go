package vmmc

import (
	"context"
	"log/slog"
	"time"

	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// levelRequest is the level of requests to the daemon and from it, see [WithLogger].
const levelRequest = slog.LevelDebug - 4

// logRequest logs a request to the daemon and its result. Only the arguments named here are
// logged: other requests carry keys or private arguments.
func (m *member) logRequest(method nodeproto.Method, in any, took time.Duration, err error) {
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
	m.logCall(level, method, append(what, "took", took), err)
}

// logDaemonRequest logs a request that the daemon made to this process.
func (m *member) logDaemonRequest(method nodeproto.Method, took time.Duration, err error) {
	level := levelRequest
	if method == nodeproto.Accept || method == nodeproto.Handover { // each makes a link
		level = slog.LevelDebug
	}
	m.logCall(level, method, []any{"from", "daemon", "took", took}, err)
}

// logStep logs one step of a data transfer. It is called only with the build tag vmmcdebug.
func (m *member) logStep(s link.Step) {
	if ctx := context.Background(); m.log.Enabled(ctx, levelRequest) {
		m.log.Log(ctx, levelRequest, s.Op, "link", s.Link, "handle", s.Handle, "seq", s.Seq, "offset", s.Off, "bytes", s.Size)
	}
}

func (m *member) logCall(level slog.Level, method nodeproto.Method, what []any, err error) {
	if err != nil {
		what = append(what, "err", err)
	}
	m.log.Log(context.Background(), level, method.String(), what...)
}
