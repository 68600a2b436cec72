package systemlog

import (
	"sync"
	"time"
)

// Rate limit of a Limiter.
const (
	logBurst    = 256
	logInterval = 100 * time.Millisecond // then one line per interval
)

// Limiter limits the rate of log lines that one source causes, so that it cannot displace others'
// lines from the log.
type Limiter struct {
	mu         sync.Mutex
	nextFree   time.Time // start of the next free interval. Guarded by mu.
	suppressed int       // lines not logged since the last logged one. Guarded by mu.
}

// Allow reports whether a line may be logged, and returns how many were suppressed before it.
func (l *Limiter) Allow(now time.Time) (more int, ok bool) {
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
