package mpi

import (
	"context"
	"testing"
	"time"
)

// looks waits until a waiter of the rank waits for words. The progress goroutine may wait for them, too,
// until the next packet.
func (e *Engine) looks(ctx context.Context, t *testing.T) {
	t.Helper()
	until(ctx, t, func() bool { return e.looking.Load() })
}

// What ends the wait of a goroutine that waits for the words of all rings, and what goes on after it.
func TestLook(t *testing.T) {
	for _, w := range []way{ways[0], ways[3]} {
		t.Run(w.name, func(t *testing.T) {
			es := job(t, w, 3)
			a, b := es[0], es[1]
			ctx := within(t)
			wait := func(s *Source, ctx context.Context) (<-chan error, []byte) {
				in, done := make([]byte, 8), make(chan error, 1)
				go func() { _, err := a.Recv(ctx, s, in); done <- err }()
				return done, in
			}
			got := func(done <-chan error, in []byte, seed int) {
				t.Helper()
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				checkFill(t, in, seed)
			}
			t.Run("a goroutine of the rank", func(t *testing.T) {
				done, in := wait(a.from(AnySource, 1), ctx)
				a.looks(ctx, t)
				if err := a.Send(ctx, a.to(0, 1), fill(8, 1), Standard); err != nil {
					t.Fatal(err)
				}
				got(done, in, 1)
			})
			t.Run("each rank", func(t *testing.T) {
				for rank := 1; rank < 3; rank++ {
					done, in := wait(a.from(AnySource, 1), ctx)
					a.looks(ctx, t)
					if err := es[rank].Send(ctx, es[rank].to(0, 1), fill(8, rank), Standard); err != nil {
						t.Fatal(err)
					}
					got(done, in, rank)
				}
			})
			t.Run("the context", func(t *testing.T) {
				ended, stop := context.WithCancel(ctx)
				done, _ := wait(a.from(1, 1), ended)
				a.looks(ctx, t)
				stop()
				if err := <-done; !isClass(err, ErrCanceled) {
					t.Errorf("the receive: %v", err)
				}
			})
			t.Run("others go on", func(t *testing.T) {
				first, in1 := wait(a.from(AnySource, 1), ctx)
				a.looks(ctx, t)
				second, in2 := wait(a.from(1, 2), ctx)
				until(ctx, t, func() bool { return a.parked.Load() == 1 })
				for tag, done := range []<-chan error{first, second} {
					if err := b.Send(ctx, b.to(0, tag+1), fill(8, tag), Standard); err != nil {
						t.Fatal(err)
					}
					got(done, [][]byte{in1, in2}[tag], tag)
				}
			})
			t.Run("a rank that computes", func(t *testing.T) {
				done, in := wait(a.from(1, 1), ctx)
				a.looks(ctx, t)
				for tag := 1; tag <= 2; tag++ {
					if err := b.Send(ctx, b.to(0, tag), fill(8, tag), Standard); err != nil {
						t.Fatal(err)
					}
				}
				got(done, in, 1)
				until(ctx, t, func() bool { return a.Stats().Unexpected == 1 }) // no call of it takes the message
				if _, err := a.Recv(ctx, a.from(1, 2), in); err != nil {
					t.Fatal(err)
				}
			})
			t.Run("a failure", func(t *testing.T) {
				done, _ := wait(a.from(2, 1), ctx)
				a.looks(ctx, t)
				a.loses(2)
				if err := <-done; !isClass(err, ErrProcFailed) {
					t.Errorf("the receive: %v", err)
				}
			})
			t.Run("after a failure", func(t *testing.T) { // the rank that is gone is no news
				done, in := wait(a.from(1, 1), ctx)
				a.looks(ctx, t)
				before := a.polls.Load()
				time.Sleep(20 * time.Millisecond)
				if n := a.polls.Load() - before; n > 1 {
					t.Errorf("a waiter without news has looked %d times", n)
				}
				if err := b.Send(ctx, b.to(0, 1), fill(8, 3), Standard); err != nil {
					t.Fatal(err)
				}
				got(done, in, 3)
			})
			for _, e := range es { // not all come to Finalize
				if err := e.release(); err != nil {
					t.Error(err)
				}
			}
			clear(es)
		})
	}
}

// An engine that ends tells the waiters.
func TestLookEndsWithTheEngine(t *testing.T) {
	es := job(t, ways[0], 2)
	a := es[0]
	done := make(chan error, 1)
	go func() { _, err := a.Recv(within(t), a.from(1, 1), nil); done <- err }()
	a.looks(within(t), t)
	for _, e := range es {
		if err := e.release(); err != nil {
			t.Error(err)
		}
	}
	clear(es)
	if err := <-done; !isClass(err, ErrRequest) {
		t.Errorf("the receive: %v", err)
	}
}
