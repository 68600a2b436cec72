package baseline

import (
	"context"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// One-way streams: some messages warm the connection up, and the measured ones follow without a
// pause. The reader takes the times, from when the last warm-up message was there: the writer does
// not know what lies in the sockets then. Nothing is sent the other way before all is over, or the
// kernel would acknowledge differently. bench/c/raw.c does the same.

// Span is when the measured data began to come and when the last of it was there, by the clock that
// all processes share.
type Span struct{ Begun, Ended int64 }

// Took is how long that was.
func (s Span) Took() time.Duration { return time.Duration(s.Ended - s.Begun) }

// With is from where the first of both begins to where the last one ends.
func (s Span) With(o Span) Span { return Span{min(s.Begun, o.Begun), max(s.Ended, o.Ended)} }

// Sink is the other side of [TCP.Pump]: it reads into dst warm times, and then n times.
func (t *TCP) Sink(ctx context.Context, dst []byte, warm, n int) (s Span, err error) {
	for range warm {
		if err := t.read(ctx, dst); err != nil {
			return s, err
		}
	}
	s.Begun = unix.Monotonic()
	for range n {
		if err := t.read(ctx, dst); err != nil {
			return s, err
		}
	}
	s.Ended = unix.Monotonic()
	return s, t.write(ctx, make([]byte, 1))
}

// Both writes src and reads dst warm times, and then n times, in both directions at once. The other
// side does the same. Without a warm-up the span has no beginning.
func (t *TCP) Both(ctx context.Context, src, dst []byte, warm, n int) (s Span, err error) {
	w, r := 0, 0
	before, last := warm*len(dst), (warm+n)*len(dst)
	err = t.until(ctx, func() (moved, done bool, err error) {
		if end := (warm + n) * len(src); w < end {
			at := w % len(src)
			k, err := t.io.Send(t.fd, src[at:], nil)
			if err != nil {
				return false, false, err
			}
			w, moved = w+k, k > 0
		}
		if r < last {
			at := r % len(dst)
			k, err := t.io.Recv(t.fd, dst[at:], nil)
			if err != nil {
				return false, false, err
			}
			if r += k; k > 0 {
				moved = true
				s.note(r, before, last)
			}
		}
		return moved, w == (warm+n)*len(src) && r == last, nil
	})
	return s, err
}

// note records that r bytes have come.
func (s *Span) note(r, before, last int) {
	if r == before {
		s.Begun = unix.Monotonic()
	}
	if r == last {
		s.Ended = unix.Monotonic()
	}
}
