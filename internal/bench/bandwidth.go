package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/baseline"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// inFlight is how many asynchronous sends are under way at a time.
const inFlight = 8

// bandwidth is that of one-way traffic, until all has arrived: messages one after another to the
// same place, by Send and with sends in flight. On the remote path the receiver takes the time, as
// with raw TCP: from the end of what warms the link up until the last word is there.
//
// A machine may change its speed within a tenth of a second, as what else its processors do
// changes. So a round is short, and what is compared comes in turn.
func bandwidth(ctx context.Context, e *end, size int) (err error) {
	n := e.count(size, 1<<14, e.often(512<<20, 256<<20))
	// pages that were never written are all one page, and in the cache
	src := bytes.Repeat([]byte{1}, size)
	var rs []Result
	var ours []probe
	for _, variant := range []string{"sync", "async"} {
		rs = append(rs, Result{What: "bandwidth", Variant: variant, Size: size, Unit: Bandwidth, Count: n, LimitIs: e.limitIs("memmove", "raw TCP")})
		ours = append(ours, func(ctx context.Context, _ *hist) (float64, error) {
			j := job{Do: "sink", Size: size, Warm: e.warm(n), N: n, First: e.next(2)}
			var s baseline.Span
			far, err := e.with(ctx, j, func() (err error) {
				s, err = e.stream(ctx, src, j.Warm, n, j.First+1, variant == "async")
				return err
			})
			if j.Warm > 0 {
				s, err = spanOf(far, err)
			}
			return rateOf(j, size, s), err
		})
	}
	limit := func(ctx context.Context, _ *hist) (float64, error) {
		if e.Path == Remote {
			return e.pump(ctx, src, n)
		}
		return e.rate(ctx, job{Do: "sink", Raw: true, Size: size, N: n, First: e.next(2)}, size, func(j job) error {
			for range n {
				e.raw.Put(src, 0, j.First)
			}
			return nil
		})
	}
	peers, err := e.startAll(ctx, e.Streams, "send")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endAll(peers)) }()
	sent := func(p *peer, _ *hist) (float64, error) { return p.sends(size, n) }
	return e.besidePeers(ctx, rs, ours, limit, peers, sent, len(rs))
}

// rate runs f while the far end does j, and returns bytes, each of the job's
// messages counting as unit, per microsecond.
func (e *end) rate(ctx context.Context, j job, unit int, f func(job) error) (float64, error) {
	var took time.Duration
	_, err := e.with(ctx, j, func() error {
		start := time.Now()
		err := f(j)
		took = time.Since(start)
		return err
	})
	return float64(unit) * float64(j.N) / (float64(took) / 1e3), err
}

// fresh is the bandwidth of a raw TCP connection that carries nothing else but what warms it up.
// one says when what counts of j was moved. One connection may be faster than the next one, and
// stay so: each round has its own.
func (e *end) fresh(j job, unit int, one func(job) (baseline.Span, error)) (float64, error) {
	j.Raw, j.Fresh, j.Warm = true, true, e.warm(j.N)
	s, err := one(j)
	return rateOf(j, unit, s), err
}

// rateOf is bytes per microsecond, each of the messages that count being unit.
func rateOf(j job, unit int, s baseline.Span) float64 {
	return float64(unit) * float64(j.N) / (float64(s.Took()) / 1e3)
}

// warm is how many messages come before n that count, without a pause between.
func (e *end) warm(n int) int {
	if e.Path == Local {
		return 0
	}
	return n/10 + 1
}

// pump is the bandwidth of raw TCP with src n times.
func (e *end) pump(ctx context.Context, src []byte, n int) (float64, error) {
	return e.fresh(job{Do: "sink", Size: len(src), N: n}, len(src), func(j job) (baseline.Span, error) {
		return spanOf(e.with(ctx, j, func() error { return e.tcp.Pump(ctx, src, j.Warm+j.N) }))
	})
}

// spanOf is what the far end's answer says, and told is its answer.
func spanOf(v []float64, err error) (s baseline.Span, _ error) {
	if err == nil && len(v) != 2 {
		err = fmt.Errorf("the far end has noted %v, not when it began and ended", v)
	}
	if err != nil {
		return s, err
	}
	return baseline.Span{Begun: int64(v[0]), Ended: int64(v[1])}, nil
}

func told(s baseline.Span, err error) ([]float64, error) {
	return []float64{float64(s.Begun), float64(s.Ended)}, err
}

// stream pours src as often as warms up, and then n times, and on the remote path waits for the
// answer, one word.
func (e *end) stream(
	ctx context.Context, src []byte, warm, n int, last uint32, async bool,
) (baseline.Span, error) {
	s, err := e.pour(ctx, src, warm, n, last, async)
	if err == nil && e.Path == Remote {
		err = e.await(ctx, 4, last)
	}
	s.Ended = unix.Monotonic()
	return s, err
}

// pour sends src as often as warms up, and then n times, by Send or with sends in flight, and then
// a word that ends them where their last word went. What counts begins when the other end has all
// that warms up, and says so: else how late a sender looks at its requests, or a receiver at its
// memory, would be left out of the time.
func (e *end) pour(
	ctx context.Context, src []byte, warm, n int, last uint32, async bool,
) (s baseline.Span, err error) {
	var flying [inFlight]vmmc.Request
	n += warm
	s.Begun = unix.Monotonic()
	over := func(i int) error {
		if async {
			if err := flying[i%inFlight].Wait(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	under := 1
	if async {
		under = inFlight
	}
	for i := range n {
		if i >= under {
			err = over(i - under)
		}
		if err == nil && i == warm && warm > 0 {
			s.Begun, err = e.warmed(ctx, last)
		}
		switch {
		case err != nil:
		case async:
			flying[i%inFlight], err = e.out.SendAsync(ctx, src, 0)
		default:
			err = e.out.Send(ctx, src, 0)
		}
		if err != nil {
			return s, err
		}
	}
	if err := e.out.Send(ctx, binary.LittleEndian.AppendUint32(nil, last), len(src)-4); err != nil {
		return s, err
	}
	for i := max(0, n-under); i < n; i++ {
		if err := over(i); err != nil {
			return s, err
		}
	}
	s.Ended = unix.Monotonic()
	return s, nil
}

// warmed tells the other end that all that warms up is sent, waits for the same, and
// returns when that was.
func (e *end) warmed(ctx context.Context, v uint32) (int64, error) {
	if err := e.out.Send(ctx, binary.LittleEndian.AppendUint32(nil, v), e.inbox()); err != nil {
		return 0, err
	}
	err := e.lookAt(ctx, e.inbox(), v)
	return unix.Monotonic(), err
}

// sink is the far end of a stream.
func sink(ctx context.Context, e *end, j job) ([]float64, error) {
	dst := bytes.Repeat([]byte{1}, j.Size)
	if err := e.ready(ctx); err != nil || e.Path == Local {
		return nil, err
	}
	if j.Raw {
		return told(e.tcp.Sink(ctx, dst, j.Warm, j.N))
	}
	var s baseline.Span
	if j.Warm > 0 {
		if err := e.lookAt(ctx, e.inbox(), j.First+1); err != nil {
			return nil, err
		}
		s.Begun = unix.Monotonic() // before the other end may send what counts
		if _, err := e.warmed(ctx, j.First+1); err != nil {
			return nil, err
		}
	}
	if err := e.look(ctx, j.Size, j.First+1); err != nil {
		return nil, err
	}
	s.Ended = unix.Monotonic()
	return told(s, e.out.Send(ctx, binary.LittleEndian.AppendUint32(nil, j.First+1), 0))
}
