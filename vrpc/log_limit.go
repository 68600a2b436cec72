package vrpc

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// What a server logs at most. Clients can cause records without an end.
const (
	logBurst    = 100
	logInterval = time.Second // to the next record beyond logBurst
)

// logLimiter is a token bucket.
type logLimiter struct {
	mu      sync.Mutex
	tokens  int
	filled  time.Time // when a token was added last
	dropped int       // records since the last one that was written
}

func newLogLimiter() *logLimiter { return &logLimiter{tokens: logBurst, filled: time.Now()} }

// allow reports whether a record may be written, and how many were not since the last one.
func (l *logLimiter) allow(now time.Time) (dropped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := int(now.Sub(l.filled) / logInterval); n > 0 {
		l.tokens = min(l.tokens+n, logBurst)
		l.filled = now
	}
	if l.tokens == 0 {
		l.dropped++
		return 0, false
	}
	l.tokens--
	dropped, l.dropped = l.dropped, 0
	return dropped, true
}

// limitedHandler writes to a handler within a limit.
type limitedHandler struct {
	slog.Handler
	limit *logLimiter
}

// Handle writes a record, or counts it.
func (h limitedHandler) Handle(ctx context.Context, r slog.Record) error {
	dropped, ok := h.limit.allow(time.Now())
	if !ok {
		return nil
	}
	if dropped > 0 {
		r.AddAttrs(slog.Int("dropped", dropped))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs keeps the limit.
func (h limitedHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return limitedHandler{h.Handler.WithAttrs(a), h.limit}
}

// WithGroup keeps the limit.
func (h limitedHandler) WithGroup(name string) slog.Handler {
	return limitedHandler{h.Handler.WithGroup(name), h.limit}
}
