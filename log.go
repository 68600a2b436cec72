package vmmc

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync/atomic"
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

// levelRequest is the level of messages that [SetDebugLevel] shows from 2 on.
const levelRequest = slog.LevelDebug - 4

// debugLevel is what SetDebugLevel was told last. It is not ordered with other memory operations:
// each log call reads it.
var debugLevel atomic.Int64

// SetDebugLevel sets how much all processes of this program write on standard
// error about what they do (vmmc_SetDebugLevel):
//
//   - 0, the default, or less: nothing
//   - 1: joining and leaving, exports, imports, links that are made and lost, spawns
//   - 2 or more: also each request to the daemon and from it
//
// Data on its way is not written about, so a level costs sends nothing: except in a
// program built with the tag vmmcdebug (the manual's vmmcd.lib), which also checks
// itself. There 2 shows each message, get, atomic and notification, at both ends:
// its import's handle, number, offset and size. What
// [WithLogger] was given gets the same lines whatever the level is, those of 1
// as slog.LevelDebug and those of 2 as slog.LevelDebug-4, if it takes them.
//
// It may be called at any time and by several goroutines.
func SetDebugLevel(level int) { debugLevel.Store(int64(level)) }

// debugOutput writes as much as the debug level allows.
type debugOutput struct{ slog.Handler }

// stderr is shared, so that lines of several processes do not mix.
var stderr = debugOutput{slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: levelRequest})}

func (d debugOutput) Enabled(_ context.Context, l slog.Level) bool {
	switch level := debugLevel.Load(); {
	case level <= 0:
		return false
	case level == 1:
		return l >= slog.LevelDebug
	}
	return l >= levelRequest
}

func (d debugOutput) WithAttrs(as []slog.Attr) slog.Handler {
	return debugOutput{d.Handler.WithAttrs(as)}
}

func (d debugOutput) WithGroup(name string) slog.Handler {
	return debugOutput{d.Handler.WithGroup(name)}
}

// withDebug returns a process's logger: the program's own, if it gave one, and standard error.
func withDebug(own *slog.Logger) *slog.Logger {
	if own == nil {
		return slog.New(stderr)
	}
	return slog.New(fanout{own.Handler(), stderr})
}

// fanout passes each record to every handler that is enabled for its level.
type fanout []slog.Handler

func (f fanout) Enabled(ctx context.Context, l slog.Level) bool {
	for _, h := range f {
		if h.Enabled(ctx, l) {
			return true
		}
	}
	return false
}

func (f fanout) Handle(ctx context.Context, r slog.Record) error {
	var errs []error
	for _, h := range f {
		if h.Enabled(ctx, r.Level) {
			errs = append(errs, h.Handle(ctx, r.Clone())) // a handler may add to it
		}
	}
	return errors.Join(errs...)
}

func (f fanout) WithAttrs(as []slog.Attr) slog.Handler {
	return f.each(func(h slog.Handler) slog.Handler { return h.WithAttrs(as) })
}

func (f fanout) WithGroup(name string) slog.Handler {
	return f.each(func(h slog.Handler) slog.Handler { return h.WithGroup(name) })
}

func (f fanout) each(do func(slog.Handler) slog.Handler) fanout {
	out := make(fanout, len(f))
	for i, h := range f {
		out[i] = do(h)
	}
	return out
}

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
