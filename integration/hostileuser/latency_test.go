package hostileuser

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// latencies are the times of one operation, in one phase.
type latencies struct {
	Times    []time.Duration
	Failures []string // the text of each failed attempt
}

// quantile returns the time that the share q of all attempts did not exceed.
func (l *latencies) quantile(q float64) time.Duration {
	if len(l.Times) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(l.Times))
	return s[min(int(q*float64(len(s))), len(s)-1)]
}

func (l *latencies) String() string {
	return fmt.Sprintf("%6d done, %d failed, median %10v, p99 %10v, longest %10v", len(l.Times), len(l.Failures),
		l.quantile(.5).Round(time.Microsecond), l.quantile(.99).Round(time.Microsecond), l.quantile(1).Round(time.Microsecond))
}

// recorder collects the latencies of all operations of one phase. Its methods may be called
// concurrently.
type recorder struct {
	mu  sync.Mutex
	ops map[string]*latencies
}

func newRecorder() *recorder { return &recorder{ops: map[string]*latencies{}} }

// time runs one attempt of an operation and records how long it took.
func (r *recorder) time(name string, f func() error) {
	begin := time.Now()
	err := f()
	r.add(name, time.Since(begin), err)
}

func (r *recorder) add(name string, took time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.ops[name]
	if l == nil {
		l = &latencies{}
		r.ops[name] = l
	}
	l.Times = append(l.Times, took)
	if err != nil {
		l.Failures = append(l.Failures, fmt.Sprintf("after %v: %v", took.Round(time.Millisecond), err))
	}
}

// take returns what was recorded since the call before.
func (r *recorder) take() map[string]*latencies {
	r.mu.Lock()
	defer r.mu.Unlock()
	ops := r.ops
	r.ops = map[string]*latencies{}
	return ops
}
