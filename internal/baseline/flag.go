// Package baseline measures what the machine itself can do, with the same kind of waiting as the
// library: a raw flag and a copy in shared memory, and a raw TCP connection. Figures of the library
// stand beside these, from the same run.
package baseline

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// maxWait ends a measurement whose other side has died. A link beside it may need its silence limit
// and its reconnect limit (timeout.Resume) to resume, and then does.
const maxWait = time.Minute

// openYieldAfter is how long a wait goes on without notifying the runtime, whose work may be what
// it waits for: see package wait.
const openYieldAfter = time.Millisecond

var errNoAnswer = errors.New("the other side of a measurement does not answer")

// Flag is memory with two words, each on a cache line of its own, for two
// processes to store in turn.
type Flag struct{ r *shm.Region }

// NewFlag makes it.
func NewFlag() (*Flag, error) {
	r, err := shm.New("vmmc-baseline", shm.PageSize, false)
	if err != nil {
		return nil, err
	}
	return &Flag{r}, r.Seal(false)
}

// OpenFlag maps one that another process made.
func OpenFlag(fd int) (*Flag, error) {
	r, err := shm.Open(fd, shm.PageSize, true)
	if err != nil {
		return nil, err
	}
	return &Flag{r}, nil
}

// Descriptor is for the other process.
func (f *Flag) Descriptor() (int, error) { return f.r.Descriptor() }

// Close gives the memory back.
func (f *Flag) Close() { f.r.Retire() }

// Serve is the other side: it answers n flags.
func (f *Flag) Serve(ctx context.Context, n int) error {
	in, out := shm.Word(f.r.Bytes(), 0), shm.Word(f.r.Bytes(), 256)
	for i := uint32(1); i <= uint32(n); i++ {
		if err := spin(ctx, in, i); err != nil {
			return err
		}
		out.Store(i)
	}
	return nil
}

// Measure stores n flags, waits for each answer, and reports each one way's
// time, half the round trip's.
func (f *Flag) Measure(ctx context.Context, n int, each func(time.Duration)) error {
	out, in := shm.Word(f.r.Bytes(), 0), shm.Word(f.r.Bytes(), 256)
	clock := NewClock()
	for i := uint32(1); i <= uint32(n); i++ {
		start := clock.Now()
		out.Store(i)
		if err := spin(ctx, in, i); err != nil {
			return err
		}
		each(clock.Since(start) / 2)
	}
	return nil
}

// spin polls for the value, and yields as the library's waits do.
func spin(ctx context.Context, w *atomic.Uint32, v uint32) error {
	var start time.Time
	for looks := 0; w.Load() != v; {
		// a look costs less than the library's, so this is as often in time
		if looks++; looks == 1024 {
			looks = 0
			if err := yield(ctx, &start); err != nil {
				return err
			}
		}
	}
	return nil
}

// spinUntil is spin for any condition.
func spinUntil(ctx context.Context, found func() bool) error {
	var start time.Time
	for looks := 0; !found(); {
		if looks++; looks == 256 {
			looks = 0
			if err := yield(ctx, &start); err != nil {
				return err
			}
		}
	}
	return nil
}

// yield yields, and returns an error when the wait should end.
func yield(ctx context.Context, start *time.Time) error {
	if start.IsZero() {
		*start = time.Now()
	}
	waited := time.Since(*start)
	if waited > maxWait {
		return errNoAnswer
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if waited > openYieldAfter {
		unix.YieldOpenly()
		return nil
	}
	unix.Yield()
	return nil
}

// Copies measures memmove of size bytes between two mappings, n times, and
// returns bytes a second.
func Copies(size, n int) (float64, error) {
	src, err := shm.New("vmmc-baseline", size, false)
	if err != nil {
		return 0, err
	}
	defer src.Retire()
	dst, err := shm.New("vmmc-baseline", size, false)
	if err != nil {
		return 0, err
	}
	defer dst.Retire()
	start := time.Now()
	for range n {
		shm.Copy(dst.Bytes()[:size], src.Bytes()[:size])
	}
	return float64(size) * float64(n) / time.Since(start).Seconds(), nil
}
