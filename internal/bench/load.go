package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// load is the time of messages that come at given times, by the clock that both
// processes have: from when a message was to be sent until the far end, which looks
// all the time, has it. A sender that is late goes on at once with all that had to
// wait, and they count as late.
func load(ctx context.Context, e *end, size int) error {
	most := e.count(size, e.often(1<<20, 64<<10), 1<<30)
	full := 0.0
	// the best of them: all the times follow from it, and a moment without a processor is not the
	// sender's rate
	for range 3 {
		r, err := e.rate(ctx, job{Do: "count", Mode: "polled", Size: size, N: most, First: e.next(2)}, 1, func(j job) error {
			return e.puts(ctx, j, size)
		})
		if err != nil {
			return err
		}
		full = max(full, r)
	}
	for _, share := range []float64{0.01, 0.1, 0.5} {
		every := time.Duration(math.Round(1e3 / (full * share))) // full is in millions a second
		n := e.count(size, 20000, 1<<30)
		// a slow machine gives fewer, not a round of minutes
		n = min(max(100, n), max(10, int(2*time.Second/every)))
		at := func(raw bool) probe {
			return func(ctx context.Context, h *hist) (float64, error) {
				j := job{Do: "arrivals", Raw: raw, Size: size, N: n, First: e.next(n)}
				return 0, e.keepTime(ctx, j, every, h)
			}
		}
		r := Result{
			What: "load", Variant: fmt.Sprintf("%.0f%%, every %v", 100*share, every), Size: size, Unit: Nanos, Count: n,
			LimitIs: e.limitIs("a raw shared flag", "raw TCP"),
		}
		if err := e.compare(ctx, r, at(false), at(true)); err != nil {
			return err
		}
	}
	return nil
}

// keepTime sends the job's messages at their times.
func (e *end) keepTime(ctx context.Context, j job, every time.Duration, h *hist) error {
	var begin int64
	due := func(i int) int64 { return begin + int64(i)*int64(every) }
	src := make([]byte, j.Size)
	came, err := e.with(ctx, j, func() error {
		begin = unix.Monotonic() + int64(50*time.Microsecond)
		for i := range j.N {
			v := j.First + uint32(i)
			for looks := 0; unix.Monotonic() < due(i); looks++ {
				if looks%64 == 63 { // both ends may share a processor
					unix.Yield()
				}
			}
			binary.LittleEndian.PutUint32(src[j.Size-4:], v)
			var err error
			switch {
			case !j.Raw:
				err = e.out.Send(ctx, src, 0)
			case e.Path == Remote:
				err = e.tcp.Send(ctx, src)
			default:
				e.raw.Put(src, 0, v)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(came) != j.N {
		return fmt.Errorf("the far end has noted %d messages, want %d", len(came), j.N)
	}
	each := h.skipping(j.N / 10)
	for i, at := range came {
		each(time.Duration(int64(at) - due(i)))
	}
	return nil
}

// arrivals is the far end of load: when each message was there, by the clock. What a
// later one has overwritten was there when that was found.
func arrivals(ctx context.Context, e *end, j job) ([]float64, error) {
	w, err := e.in.Word(j.Size - 4)
	if err != nil {
		return nil, err
	}
	b := make([]byte, j.Size)
	came := make([]float64, 0, j.N)
	last := j.First - 1
	have := w.Load()
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	for len(came) < j.N {
		switch {
		case j.Raw && e.Path == Remote:
			err, have = e.tcp.Receive(ctx, b), last+1
		case j.Raw:
			have, err = e.raw.Moved(ctx, j.Size, have)
		default:
			old := have
			err = e.waitBriefly(ctx, func() bool { have = w.Load(); return have != old })
		}
		if err != nil {
			return nil, err
		}
		now := float64(unix.Monotonic())
		if n := have - last; n <= uint32(j.N-len(came)) { // else the word is still of another job
			for ; last != have; last++ {
				came = append(came, now)
			}
		}
	}
	return came, nil
}
