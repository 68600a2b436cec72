package mpi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
)

// fill makes a message that can be told from another one.
func fill(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + seed*31 + i>>8)
	}
	return b
}

// Messages of all lengths arrive whole and in order, both ways at once.
func TestLengths(t *testing.T) {
	lengths := []int{0, 1, 8, 507, 508, 509, 4096, MaxEager, MaxEager + 1, 32 << 10, 100_001, 1 << 20}
	overWays(t, func(t *testing.T, w way) {
		es := job(t, w, 3)
		each(t, es, func(ctx context.Context, e *Engine) error {
			to, from := (e.rank+1)%3, (e.rank+2)%3
			for _, mode := range []Mode{Standard, Synchronous, Ready} {
				for i, n := range lengths {
					r, err := e.Isend(e.to(to, i), fill(n, e.rank+i), mode)
					if err != nil {
						return err
					}
					buf := make([]byte, n)
					st, err := e.Recv(ctx, e.from(from, i), buf)
					if err != nil {
						return err
					}
					if st != (Status{Source: from, Tag: i, Bytes: n}) || !bytes.Equal(buf, fill(n, from+i)) {
						return fmt.Errorf("%d bytes of mode %d: status %+v, or other bytes", n, mode, st)
					}
					if _, err := r.Wait(ctx); err != nil {
						return err
					}
				}
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

// Messages that nothing receives wait within the credits, and are received in order by whatever
// tags.
func TestUnexpected(t *testing.T) {
	overWays(t, func(t *testing.T, w way) {
		const n = 2000
		each(t, job(t, w, 2), func(ctx context.Context, e *Engine) error {
			if e.rank == 0 {
				rs := make([]*Request, n)
				for i := range rs {
					var err error
					if rs[i], err = e.Isend(e.to(1, i%3), fill(600, i), Standard); err != nil {
						return err
					}
				}
				for _, r := range rs {
					if _, err := r.Wait(ctx); err != nil {
						return err
					}
				}
				return nil
			}
			if _, _, err := e.Probe(ctx, e.from(0, 2), false); err != nil {
				return err
			}
			for _, tag := range []int{2, 0, 1} {
				for i := tag; i < n; i += 3 {
					buf := make([]byte, 600)
					if _, err := e.Recv(ctx, e.from(0, tag), buf); err != nil {
						return err
					}
					if !bytes.Equal(buf, fill(600, i)) {
						return fmt.Errorf("message %d is another one", i)
					}
					if s := e.Stats(); s.Cells > window {
						return fmt.Errorf("%d cells are in use, %d are allowed", s.Cells, window)
					}
				}
			}
			return nil
		})
	})
}

// A rank that computes is flooded: its memory stays bounded, and nothing is lost.
func TestFlood(t *testing.T) {
	overWays(t, func(t *testing.T, w way) {
		const size = 1 << 20
		n := 200 // more than a ring and all credits can hold
		if race {
			n = 20
		}
		computed := make(chan struct{})
		each(t, job(t, w, 2), func(ctx context.Context, e *Engine) error {
			if e.rank == 0 {
				var rs []*Request
				for i := range n {
					m := size
					if i%2 == 0 {
						m = 8
					}
					r, err := e.Isend(e.to(1, 0), fill(m, i), Standard)
					if err != nil {
						return err
					}
					rs = append(rs, r)
				}
				close(computed)
				for _, r := range rs {
					if _, err := r.Wait(ctx); err != nil {
						return err
					}
				}
				return nil
			}
			<-computed
			if s := e.Stats(); s.Cells > window || s.Chunks > 1 {
				return fmt.Errorf("%+v: more than %d cells, or more than one chunk", s, window)
			}
			buf := make([]byte, size)
			for i := range n {
				st, err := e.Recv(ctx, e.from(0, 0), buf)
				if err != nil {
					return err
				}
				if !bytes.Equal(buf[:st.Bytes], fill(st.Bytes, i)) {
					return fmt.Errorf("message %d has other bytes", i)
				}
			}
			return nil
		})
	})
}

// A message to the rank itself: before and after its receive, short and long, and too long.
func TestSelf(t *testing.T) {
	each(t, job(t, ways[0], 1), func(ctx context.Context, e *Engine) error {
		for _, n := range []int{0, 8, MaxEager, MaxEager + 1, 1 << 20} {
			for _, first := range []bool{true, false} {
				buf := make([]byte, n)
				var s, r *Request
				var err error
				if first {
					if r, err = e.Irecv(e.from(AnySource, AnyTag), buf); err != nil {
						return err
					}
				}
				if s, err = e.Isend(e.to(0, 5), fill(n, n), Standard); err != nil {
					return err
				}
				if !first {
					if r, err = e.Irecv(e.from(0, 5), buf); err != nil {
						return err
					}
				}
				if _, err := s.Wait(ctx); err != nil {
					return err
				}
				st, err := r.Wait(ctx)
				if err != nil || st != (Status{Tag: 5, Bytes: n}) || !bytes.Equal(buf, fill(n, n)) {
					return fmt.Errorf("%d bytes: %+v, %w", n, st, err)
				}
			}
		}
		s, err := e.Isend(e.to(0, 1), fill(9, 1), Synchronous)
		if err != nil || s.Done() {
			return fmt.Errorf("a synchronous send is over before it is matched, or fails: %w", err)
		}
		if _, err := e.Recv(ctx, e.from(0, 1), make([]byte, 8)); !isClass(err, ErrTruncate) {
			return fmt.Errorf("a long message: %w", err)
		}
		_, err = s.Wait(ctx)
		return err
	})
}

func isClass(err error, c Class) bool {
	var e *Error
	return errors.As(err, &e) && e.Class == c
}

// A message that is longer than the buffer is an error, and stores nothing.
func TestTruncated(t *testing.T) {
	overWays(t, func(t *testing.T, w way) {
		each(t, job(t, w, 2), func(ctx context.Context, e *Engine) error {
			for _, n := range []int{9, 100_000} {
				if e.rank == 0 {
					if err := e.Send(ctx, e.to(1, 0), fill(n, 1), Standard); err != nil {
						return err
					}
					if err := e.Send(ctx, e.to(1, 0), fill(8, 2), Standard); err != nil {
						return err
					}
					continue
				}
				buf := make([]byte, 8)
				if _, err := e.Recv(ctx, e.from(0, 0), buf); !isClass(err, ErrTruncate) || !bytes.Equal(buf, make([]byte, 8)) {
					return fmt.Errorf("%d bytes: %w, or something was stored", n, err)
				}
				if _, err := e.Recv(ctx, e.from(0, 0), buf); err != nil || !bytes.Equal(buf, fill(8, 2)) {
					return fmt.Errorf("the message after it: %w, %v", err, buf)
				}
			}
			return nil
		})
	})
}

// A synchronous send is over only when a receive has matched it.
func TestSynchronous(t *testing.T) {
	overWays(t, func(t *testing.T, w way) {
		each(t, job(t, w, 2), func(ctx context.Context, e *Engine) error {
			if e.rank == 0 {
				r, err := e.Isend(e.to(1, 0), fill(8, 0), Synchronous)
				if err != nil {
					return err
				}
				if err := e.Send(ctx, e.to(1, 1), nil, Standard); err != nil {
					return err
				}
				if _, err := e.Recv(ctx, e.from(1, 1), nil); err != nil { // it has probed
					return err
				}
				if r.Done() {
					return errors.New("it is over before it is matched")
				}
				if err := e.Send(ctx, e.to(1, 2), nil, Standard); err != nil {
					return err
				}
				_, err = r.Wait(ctx)
				return err
			}
			if _, _, err := e.Probe(ctx, e.from(0, 0), false); err != nil {
				return err
			}
			if _, err := e.Recv(ctx, e.from(0, 1), nil); err != nil {
				return err
			}
			if err := e.Send(ctx, e.to(0, 1), nil, Standard); err != nil {
				return err
			}
			if _, err := e.Recv(ctx, e.from(0, 2), nil); err != nil {
				return err
			}
			_, err := e.Recv(ctx, e.from(0, 0), make([]byte, 8))
			return err
		})
	})
}

// Contexts end calls: a receive takes nothing then, and a send leaves its buffer to the caller.
func TestContextEnds(t *testing.T) {
	overWays(t, func(t *testing.T, w way) {
		each(t, job(t, w, 2), func(ctx context.Context, e *Engine) error {
			ended, stop := context.WithCancel(ctx)
			stop()
			other := 1 - e.rank
			if _, err := e.Recv(ended, e.from(other, 9), make([]byte, 8)); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("a receive: %w", err)
			}
			if _, _, err := e.Probe(ended, e.from(other, 9), true); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("a probe: %w", err)
			}
			b := fill(100_000, 3)
			if err := e.Send(ended, e.to(other, 8), b, Synchronous); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("a send: %w", err)
			}
			clear(b)
			if err := e.Send(ctx, e.to(other, 7), fill(8, 1), Standard); err != nil {
				return err
			}
			buf := make([]byte, 100_000)
			if _, err := e.Recv(ctx, e.from(other, 7), buf); err != nil || !bytes.Equal(buf[:8], fill(8, 1)) {
				return fmt.Errorf("the message after it: %w", err)
			}
			if _, _, ok, err := e.Iprobe(e.from(other, 8), false); ok || err != nil {
				return fmt.Errorf("the message that was given up is there, or %w", err)
			}
			return nil
		})
	})
}

// Buffered sends end at once, and are bounded by the attached buffer.
func TestBuffered(t *testing.T) {
	each(t, job(t, ways[0], 2), func(ctx context.Context, e *Engine) error {
		if e.rank == 1 {
			if _, err := e.Recv(ctx, e.from(0, 1), nil); err != nil {
				return err
			}
			buf := make([]byte, 50_000)
			for range 2 {
				if _, err := e.Recv(ctx, e.from(0, 0), buf); err != nil || !bytes.Equal(buf, fill(50_000, 4)) {
					return fmt.Errorf("%w, or other bytes", err)
				}
			}
			return nil
		}
		b := fill(50_000, 4)
		if err := e.Send(ctx, e.to(1, 0), b, Buffered); !isClass(err, ErrBuffer) {
			return fmt.Errorf("without a buffer: %w", err)
		}
		if err := e.AttachBuffer(2 * (50_000 + BufferOverhead)); err != nil {
			return err
		}
		if err := e.AttachBuffer(1); !isClass(err, ErrBuffer) {
			return fmt.Errorf("a second buffer: %w", err)
		}
		for range 2 {
			if err := e.Send(ctx, e.to(1, 0), b, Buffered); err != nil {
				return err
			}
		}
		if err := e.Send(ctx, e.to(1, 0), b, Buffered); !isClass(err, ErrBuffer) {
			return fmt.Errorf("a full buffer: %w", err)
		}
		clear(b)
		if err := e.Send(ctx, e.to(1, 1), nil, Standard); err != nil {
			return err
		}
		if n, err := e.DetachBuffer(ctx); err != nil || n != 2*(50_000+BufferOverhead) {
			return fmt.Errorf("detach: %d, %w", n, err)
		}
		return nil
	})
}

// An eager send and its receive allocate nothing.
func TestAllocations(t *testing.T) {
	if race {
		t.Skip("the race detector allocates")
	}
	for _, w := range alone {
		t.Run(w.name, func(t *testing.T) {
			es := job(t, w, 2)
			ctx := context.Background()
			a, b := es[0], es[1]
			ab, ba := a.to(1, 0), b.to(0, 0)
			fa, fb := a.from(1, 0), b.from(0, AnyTag)
			buf, back := make([]byte, 64), make([]byte, 64)
			stop := make(chan struct{})
			go func() {
				defer close(stop)
				for {
					st, err := b.Recv(ctx, fb, back)
					if err != nil || st.Bytes == 0 {
						return
					}
					if err := b.Send(ctx, ba, back, Standard); err != nil {
						return
					}
				}
			}()
			once := func() {
				if err := a.Send(ctx, ab, buf, Standard); err != nil {
					t.Fatal(err)
				}
				if _, err := a.Recv(ctx, fa, buf); err != nil {
					t.Fatal(err)
				}
			}
			once()
			if n := testing.AllocsPerRun(2000, once); n > 0 {
				t.Errorf("%v allocations for a message there and back", n)
			}
			if err := a.Send(ctx, ab, nil, Standard); err != nil {
				t.Fatal(err)
			}
			<-stop
		})
	}
}

// A receiver that takes nothing at all fills its ring. What waits at the sender keeps its order when
// there is room again, and all credit comes back.
func TestRingFull(t *testing.T) {
	overWays(t, func(t *testing.T, w way) {
		es := job(t, w, 2)
		a, b := es[0], es[1]
		const n = 3000
		var rs []*Request
		b.mu.Lock() // the rank takes nothing
		for i := range n {
			r, err := a.Isend(a.to(1, 0), fill(600+i%2*MaxEager, i), Standard)
			if err != nil {
				t.Error(err)
				break
			}
			rs = append(rs, r)
		}
		a.mu.Lock()
		full := len(a.peers[1].queue) > 0
		a.mu.Unlock()
		b.mu.Unlock()
		if !full {
			t.Error("nothing waits for room: the test tests nothing")
		}
		ctx := within(t)
		buf := make([]byte, 600+MaxEager)
		for i := range n {
			st, err := b.Recv(ctx, b.from(0, 0), buf)
			if err != nil || !bytes.Equal(buf[:st.Bytes], fill(600+i%2*MaxEager, i)) {
				t.Fatalf("message %d is another one, or %v", i, err)
			}
		}
		for _, r := range rs {
			if _, err := r.Wait(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Send(ctx, b.to(0, 0), nil, Standard); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Recv(ctx, a.from(1, 0), nil); err != nil {
			t.Fatal(err)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if pr := a.peers[1]; pr.sent != pr.acked {
			t.Errorf("%d cells were sent, and %d have come back", pr.sent, pr.acked)
		}
	})
}
