package vmmc

import (
	"context"
	"log/slog"
	"os"
	"sync/atomic"
)

// levelRequests is of what [SetDebugLevel] shows from 2 on.
const levelRequests = slog.LevelDebug - 4

// debugLevel is what SetDebugLevel was told last. It is ordered with nothing:
// the next line that anybody writes looks at it.
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
var stderr = debugOutput{slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: levelRequests})}

func (d debugOutput) Enabled(_ context.Context, l slog.Level) bool {
	switch level := debugLevel.Load(); {
	case level <= 0:
		return false
	case level == 1:
		return l >= slog.LevelDebug
	}
	return l >= levelRequests
}

func (d debugOutput) WithAttrs(as []slog.Attr) slog.Handler {
	return debugOutput{d.Handler.WithAttrs(as)}
}

func (d debugOutput) WithGroup(name string) slog.Handler {
	return debugOutput{d.Handler.WithGroup(name)}
}

// withDebug is what a process logs to: what the program gave, and standard error.
func withDebug(own *slog.Logger) *slog.Logger {
	if own == nil {
		return slog.New(stderr)
	}
	return slog.New(fanout{own.Handler(), stderr})
}
