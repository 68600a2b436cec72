package manual

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync/atomic"
)

// debugLevel is what SetDebugLevel was told last. It is not ordered with other memory operations:
// each log call reads it.
var debugLevel atomic.Int64

// SetDebugLevel sets how much processes that log to [Logger] write on standard error about what
// they do (vmmc_SetDebugLevel):
//
//   - 0, the default, or less: nothing
//   - 1: what [github.com/vmmc-go/vmmc.WithLogger] logs at slog.LevelDebug and above
//   - 2 or more: also what it logs at slog.LevelDebug-4
//
// It may be called at any time and by several goroutines.
func SetDebugLevel(level int) { debugLevel.Store(int64(level)) }

// Logger returns a logger that writes on standard error what [SetDebugLevel] allows. own, if it is
// not nil, gets the same records whatever the level is, if it takes them. Give the logger to each
// process that the level is for:
//
//	p, err := vmmc.Open(ctx, vmmc.WithLogger(manual.Logger(nil)))
func Logger(own *slog.Logger) *slog.Logger {
	if own == nil {
		return slog.New(stderr)
	}
	return slog.New(fanout{own.Handler(), stderr})
}

// debugOutput writes as much as the debug level allows.
type debugOutput struct{ slog.Handler }

// levelRequest is the level of what SetDebugLevel shows from 2 on.
const levelRequest = slog.LevelDebug - 4

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
