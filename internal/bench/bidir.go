package bench

import (
	"bytes"
	"context"
	"encoding/binary"

	"github.com/vmmc-go/vmmc/internal/baseline"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// bidir is the bandwidth of both ways together. In an exchange each end sends one
// message, waits for the other's and goes on, as the paper has it; in a stream each
// end has sends in flight, and at last waits for all of the other's.
func bidir(ctx context.Context, e *end, size int) error {
	n := e.count(size, 1<<13, e.often(256<<20, 128<<20))
	// not while anything is timed
	src, dst := bytes.Repeat([]byte{1}, size), bytes.Repeat([]byte{1}, size)
	for _, variant := range []string{"exchange", "stream"} {
		both := func(raw bool) probe {
			return func(ctx context.Context, _ *hist) (float64, error) {
				j := job{Do: "both", Raw: raw, Mode: variant, Size: size, N: n, First: e.next(n)}
				switch {
				case variant == "stream" && e.Path == Remote && raw:
					return e.fresh(j, 2*size, func(j job) (baseline.Span, error) { return e.bothWays(ctx, j, src, dst) })
				case variant == "stream" && !raw:
					j.Warm = e.warm(n)
					s, err := e.bothWays(ctx, j, src, dst)
					return rateOf(j, 2*size, s), err
				}
				return e.rate(ctx, j, 2*size, func(j job) error { return e.both(ctx, j, src, dst) })
			}
		}
		r := Result{What: "bidir", Variant: variant, Size: size, Unit: Bandwidth, Count: n, LimitIs: e.limitIs("memmove both ways at once", "raw TCP both ways at once")}
		if err := e.compare(ctx, r, both(false), both(true)); err != nil {
			return err
		}
	}
	return nil
}

// bothWays is from when what counts begins on the first of both ways until it is over on the last:
// of ours, or on one raw TCP connection.
func (e *end) bothWays(
	ctx context.Context, j job, src, dst []byte,
) (mine baseline.Span, err error) {
	far, err := spanOf(e.with(ctx, j, func() (err error) {
		mine, err = e.pourBoth(ctx, j, src, dst)
		return err
	}))
	return mine.With(far), err
}

// pourBoth is what each end does then.
func (e *end) pourBoth(ctx context.Context, j job, src, dst []byte) (baseline.Span, error) {
	if j.Raw {
		return e.tcp.Both(ctx, src, dst, j.Warm, j.N)
	}
	last := j.First + uint32(j.N) - 1
	s, err := e.pour(ctx, src, j.Warm, j.N, last, true)
	if err == nil {
		err = e.look(ctx, j.Size, last)
	}
	s.Ended = unix.Monotonic()
	return s, err
}

// both is what each end does otherwise.
func (e *end) both(ctx context.Context, j job, src, dst []byte) error {
	last := j.First + uint32(j.N) - 1
	for i := range j.N {
		v := j.First + uint32(i)
		var err error
		switch {
		case j.Raw && e.Path == Remote:
			_, err = e.tcp.Both(ctx, src, dst, 0, 1)
		case j.Raw:
			e.raw.Put(src, 0, v)
			if j.Mode == "exchange" {
				err = e.raw.Reached(ctx, j.Size, v)
			}
		default:
			binary.LittleEndian.PutUint32(src[j.Size-4:], v)
			if err = e.out.Send(ctx, src, 0); err == nil {
				err = e.reached(ctx, j.Size, v)
			}
		}
		if err != nil {
			return err
		}
	}
	if j.Raw && e.Path == Local {
		return e.raw.Await(ctx, j.Size, last)
	}
	return nil
}

// bothFar is the far end of bidir.
func bothFar(ctx context.Context, e *end, j job) ([]float64, error) {
	src, dst := bytes.Repeat([]byte{1}, j.Size), bytes.Repeat([]byte{1}, j.Size)
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	if j.Fresh || j.Mode == "stream" && !j.Raw {
		return told(e.pourBoth(ctx, j, src, dst))
	}
	return nil, e.both(ctx, j, src, dst)
}

// reached waits until the last word of a message is v or a later one: the other end
// may be one message ahead, and no further.
func (e *end) reached(ctx context.Context, size int, v uint32) error {
	w, err := e.in.Word(size - 4)
	if err != nil {
		return err
	}
	for have := w.Load(); have != v && have != v+1; {
		if have, err = w.Wait(ctx, have); err != nil {
			return err
		}
	}
	return nil
}
