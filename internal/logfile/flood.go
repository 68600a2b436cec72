package logfile

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// How often a line may come: so many at once, and so many a second after that.
// What an unauthenticated peer can cause is logged as a warning.
var (
	usual   = rate{burst: 1000, second: 20}
	warning = rate{burst: 100, second: 1}
)

// maxKinds bounds how many kinds of lines are told apart.
const maxKinds = 256

type rate struct{ burst, second float64 }

// Limit passes lines on to h, but limits the rate of lines that say the same. So a peer that
// makes the program repeat a line does not crowd other lines out of the log.
func Limit(h slog.Handler) slog.Handler {
	return &limited{Handler: h, kinds: &kinds{of: map[string]*kind{}}}
}

type limited struct {
	slog.Handler
	kinds *kinds
}

type kinds struct {
	mu sync.Mutex
	of map[string]*kind
}

type kind struct {
	room float64
	last time.Time
	left int // out, since the last that came
}

func (l *limited) WithAttrs(a []slog.Attr) slog.Handler {
	return &limited{l.Handler.WithAttrs(a), l.kinds}
}

func (l *limited) WithGroup(name string) slog.Handler {
	return &limited{l.Handler.WithGroup(name), l.kinds}
}

func (l *limited) Handle(ctx context.Context, r slog.Record) error {
	left, ok := l.kinds.take(r)
	if !ok {
		return nil
	}
	if left > 0 {
		note := slog.NewRecord(r.Time, r.Level, "lines like the next were left out", 0)
		note.AddAttrs(slog.Int("lines", left))
		if err := l.Handler.Handle(ctx, note); err != nil {
			return err
		}
	}
	return l.Handler.Handle(ctx, r)
}

func (ks *kinds) take(r slog.Record) (left int, ok bool) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	may := usual
	if r.Level >= slog.LevelWarn {
		may = warning
	}
	key := r.Level.String() + r.Message
	k := ks.of[key]
	if k == nil && len(ks.of) >= maxKinds {
		key = r.Level.String()
		k = ks.of[key]
	}
	if k == nil {
		k = &kind{room: may.burst, last: r.Time}
		ks.of[key] = k
	}
	k.room = min(may.burst, k.room+max(0, r.Time.Sub(k.last).Seconds())*may.second)
	k.last = r.Time
	if k.room < 1 {
		k.left++
		return 0, false
	}
	k.room--
	left, k.left = k.left, 0
	return left, true
}
