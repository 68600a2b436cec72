package mpi

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"
)

const tryFor = 50 * time.Microsecond

// untilTaken tries to receive until a message is taken.
func (e *Engine) untilTaken(ctx context.Context, s *Source, buf []byte) (Status, error) {
	for {
		st, ok, err := e.TryRecv(s, buf, tryFor)
		if ok || err != nil {
			return st, err
		}
		if ctx.Err() != nil {
			return st, ctx.Err()
		}
	}
}

// A send that is tried sends as many messages as there is room and credit for, and no other. A receive that is tried
// takes them in order, leaves those to receives that are posted before it, and takes none that its sender
// must be asked for.
func TestTry(t *testing.T) {
	overWays(t, func(t *testing.T, w way) {
		es := job(t, w, 2)
		sent := make(chan int, 1)
		each(t, es, func(ctx context.Context, e *Engine) error {
			if e.rank == 0 {
				defer close(sent)
				if st, ok, err := e.TryRecv(e.from(1, 9), nil, tryFor); ok || err != nil {
					return fmt.Errorf("with no message: took %+v, %w", st, err)
				}
				// Module via connects for the first message that waits.
				if err := e.Send(ctx, e.to(1, 0), nil, Synchronous); err != nil {
					return err
				}
				n := 0
				for ; ; n++ {
					ok, err := e.TrySend(e.to(1, 1), fill(8, n))
					if err != nil {
						return err
					}
					if !ok {
						break
					}
				}
				if n <= 0 || n > window+1 || w.name == "shm" && n < window {
					return fmt.Errorf("%d messages have left, there is credit for %d", n, window)
				}
				sent <- n
				if _, err := e.Recv(ctx, e.from(1, 4), nil); err != nil { // With the credit for the next one.
					return err
				}
				if err := e.Send(ctx, e.to(1, 2), fill(8, 7), Standard); err != nil {
					return err
				}
				return e.Send(ctx, e.to(1, 3), fill(100_000, 8), Standard)
			}
			if _, err := e.Recv(ctx, e.from(0, 0), nil); err != nil {
				return err
			}
			first := make([]byte, 8)
			r, err := e.Irecv(e.from(0, AnyTag), first)
			if err != nil {
				return err
			}
			n, buf := <-sent, make([]byte, 8) // 0: the other rank has failed
			for i := 1; n > 0 && i < n; i++ {
				st, err := e.untilTaken(ctx, e.from(0, 1), buf)
				if err != nil || st != (Status{Source: 0, Tag: 1, Bytes: 8}) || !bytes.Equal(buf, fill(8, i)) {
					return fmt.Errorf("message %d: %w %+v, %x", i, err, st, buf)
				}
			}
			if !r.Done() || !bytes.Equal(first, fill(8, 0)) {
				return fmt.Errorf("the receive that was posted first has not got the first message: %x", first)
			}
			if err := e.Send(ctx, e.to(0, 4), nil, Standard); err != nil {
				return err
			}
			if _, err := e.untilTaken(ctx, e.from(AnySource, 2), buf); err != nil || !bytes.Equal(buf, fill(8, 7)) {
				return fmt.Errorf("from any rank: %w, %x", err, buf)
			}
			if st, ok, err := e.TryRecv(e.from(0, 1), buf, tryFor); ok || err != nil {
				return fmt.Errorf("there is no other one: took %+v, %w", st, err)
			}
			if _, _, err := e.Probe(ctx, e.from(0, 3), false); err != nil {
				return err
			}
			long := make([]byte, 100_000)
			if st, ok, err := e.TryRecv(e.from(0, 3), long, tryFor); ok || err != nil {
				return fmt.Errorf("a message that must be asked for: took %+v, %w", st, err)
			}
			if _, err := e.Recv(ctx, e.from(0, 3), long); err != nil || !bytes.Equal(long, fill(100_000, 8)) {
				return fmt.Errorf("the long message: %w, or other bytes", err)
			}
			return nil
		})
		for _, e := range es {
			if s := e.Stats(); s.Posted+s.Unexpected+s.Requests+s.Cells != 0 {
				t.Errorf("rank %d has left %+v", e.rank, s)
			}
		}
	})
}

// A message that is longer than the buffer is taken, and the error says so.
func TestTryTruncates(t *testing.T) {
	es := job(t, ways[0], 2)
	each(t, es, func(ctx context.Context, e *Engine) error {
		if e.rank == 0 {
			return e.Send(ctx, e.to(1, 1), fill(8, 1), Standard)
		}
		buf := make([]byte, 4)
		if _, err := e.untilTaken(ctx, e.from(0, 1), buf); !isClass(err, ErrTruncate) || !bytes.Equal(buf, make([]byte, 4)) {
			return fmt.Errorf("a buffer of 4 bytes: %w, %x", err, buf)
		}
		if st, ok, err := e.TryRecv(e.from(0, 1), buf, tryFor); ok || err != nil {
			return fmt.Errorf("the message is still there: %+v, %w", st, err)
		}
		return nil
	})
}
