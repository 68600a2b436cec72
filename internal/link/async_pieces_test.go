package link

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/wait"
)

const pieces = 4

// piece makes a waiter for something else copy the next piece.
func (c *copier) piece(t *testing.T) {
	t.Helper()
	if !c.a.deferredCopies.copyWhileWaiting(t.Context(), &wait.Cond{Until: func() bool { return true }}) {
		t.Fatal("what holds was not found")
	}
}

func (c *copier) sendPieces(t *testing.T, notify bool) Request {
	t.Helper()
	r, err := c.m.SendAsync(t.Context(), 0, bytes.Repeat([]byte{1}, pieces*shm.Piece), notify)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Other goroutines continue what a waiter for something else has begun.
func TestDeferredCopyInPieces(t *testing.T) {
	c := newCopier(t)
	c.mem[2*shm.Piece] = 3
	put, got := c.sendPieces(t, true), make([]byte, pieces*shm.Piece)
	get, err := c.m.GetAsync(t.Context(), 0, got)
	if err != nil {
		t.Fatal(err)
	}
	for i := range pieces {
		c.piece(t)
		if c.mem[i*shm.Piece] != 1 || i == 1 && c.mem[2*shm.Piece] != 3 {
			t.Fatalf("after piece %d, or before, is what should not be", i)
		}
		if done, err := put.poll(); done != (i == pieces-1) || err != nil {
			t.Fatalf("after piece %d: %v, %v", i, done, err)
		}
	}
	c.piece(t)
	last := shm.Word(c.mem, pieces*shm.Piece-shm.WordSize)
	last.Store(5) // a flag, for what comes after the get has read it
	c.mem[pieces*shm.Piece-2*shm.WordSize] = 4
	c.out.backlog.startWorker()
	if done, err := get.Wait(t.Context()); !done || err != nil {
		t.Fatal(done, err)
	}
	want := bytes.Repeat([]byte{1}, pieces*shm.Piece)
	want[pieces*shm.Piece-2*shm.WordSize] = 4
	if !bytes.Equal(got, want) {
		t.Error("the get has a flag that is younger than its data, or no data")
	}
	eventually(t, "there was no notification", func() bool { return c.ran.Load() == 1 })
}

// A copy that ends in its middle may have written what it had.
func TestDeferredCopyEndsBetweenPieces(t *testing.T) {
	for name, end := range map[string]func(*copier){
		"the import": func(c *copier) { c.m.Close(); c.out.backlog.startWorker() },
		"the link":   func(c *copier) { c.b.Close(); eventually(t, "the link does not end", c.out.failed.Load) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCopier(t)
			r := c.sendPieces(t, true)
			c.piece(t)
			end(c)
			if done, err := r.Wait(t.Context()); !done || !errors.Is(err, ErrUnknown) {
				t.Errorf("the request: %v, %v", done, err)
			}
			if n := c.out.creditsTaken.Load(); n != 0 {
				t.Errorf("%d credits are taken", n)
			}
		})
	}
}

// A waiter for something else checks its own condition again after some megabytes. Conditions are
// evaluated without any lock or role held.
func TestDeferredCopyBytesPerWait(t *testing.T) {
	c := newCopier(t)
	for range 2*maxDeferredCopy/(pieces*shm.Piece) + 1 {
		c.sendPieces(t, false)
	}
	looks := 0
	l := wait.Cond{Until: func() bool {
		b := &c.out.backlog
		b.mu.Lock()
		defer b.mu.Unlock()
		if looks++; b.hasWorker {
			t.Error("a condition is evaluated while a worker runs")
		}
		return false
	}}
	if c.a.deferredCopies.copyWhileWaiting(t.Context(), &l); looks != maxDeferredCopy/shm.Piece {
		t.Errorf("%d pieces were copied in one wait", looks)
	}
	eventually(t, "no worker does the rest", func() bool { return !c.out.backlog.busy() })

	c.sendPieces(t, false)
	c.sendPieces(t, false)
	never := wait.Cond{Failed: new(atomic.Bool)}
	if n := c.out.backlog.copyWhileWaiting(t.Context(), &never, shm.Piece+1); n != 2*shm.Piece {
		t.Errorf("%d bytes were copied", n)
	}
	if err := c.out.backlog.wait(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// After the engine is closed no goroutine copies any more: the memory may be unmapped.
func TestDeferredCopiesOfAClosedEngine(t *testing.T) {
	for range 20 {
		c := newCopier(t)
		r, err := c.m.GetAsync(t.Context(), 0, make([]byte, maxDeferredCopy))
		if err != nil {
			t.Fatal(err)
		}
		over := make(chan error)
		go func() { over <- c.a.Wait(context.Background(), wait.Cond{Failed: new(atomic.Bool)}) }()
		for b := &c.out.backlog; b.busy(); runtime.Gosched() {
			b.mu.Lock()
			turn := b.hasWorker
			b.mu.Unlock()
			if turn {
				break
			}
		}
		c.a.Close()
		if done, _ := r.poll(); !done {
			t.Error("the engine has ended, and a copy has not")
		}
		if err := <-over; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
}
