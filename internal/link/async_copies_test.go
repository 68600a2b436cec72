package link

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
)

const longCopy = 2 * maxSyncCopy

// copier is a pair of processes with a mapped buffer for four long copies and one that is too long
// to be deferred. No timer starts a worker.
type copier struct {
	*pair
	m   *Mapped
	mem []byte // the exporter's
	ran atomic.Uint32
}

func newCopier(t *testing.T) *copier {
	t.Helper()
	r, err := shm.New("test", 2*maxDeferredCopy, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Retire)
	c := &copier{mem: r.Bytes()}
	stream := memory(t, 64)
	c.pair = join(t, true, &Target{Handle: 1, Mem: r.Bytes(), Write: true, Read: true, Notify: func(int, uint32, []byte) { c.ran.Add(1) }},
		&Target{Handle: 2, Mem: stream, Write: true, Read: true})
	if err := r.Seal(false); err != nil {
		t.Fatal(err)
	}
	far := view(t, r, func(fd int) (*shm.Region, error) { return shm.Open(fd, len(c.mem), true) })
	c.m = NewMapped(c.out, 1, far, 0, len(c.mem), 0, 0, 0)
	t.Cleanup(c.m.Close)
	c.setTimerAt(unix.Monotonic() + int64(time.Hour))
	return c
}

func (c *copier) setTimerAt(at int64) {
	c.a.deferredCopies.mu.Lock()
	defer c.a.deferredCopies.mu.Unlock()
	c.a.deferredCopies.timerAt = at
}

func (c *copier) idleSince() int64 {
	c.a.deferredCopies.mu.Lock()
	defer c.a.deferredCopies.mu.Unlock()
	return c.out.backlog.idleSince
}

// send begins the nth long copy, of bytes that are n+1.
func (c *copier) send(t *testing.T, n int, notify bool) Request {
	t.Helper()
	r, err := c.m.SendAsync(t.Context(), n*longCopy, bytes.Repeat([]byte{byte(n + 1)}, longCopy), notify)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// sent is how many of n long copies have arrived, which they do in their order.
func (c *copier) sent(t *testing.T, n int) (have int) {
	t.Helper()
	for i := range n {
		// The last word's look orders the others', as it was stored after them.
		last := shm.Word(c.mem, (i+1)*longCopy-4).Load()
		switch {
		case last == 0:
		case have < i:
			t.Fatalf("copy %d has arrived, and of those before it %d", i, have)
		case !bytes.Equal(c.mem[i*longCopy:(i+1)*longCopy], bytes.Repeat([]byte{byte(i + 1)}, longCopy)):
			t.Fatalf("copy %d has arrived, and is another one", i)
		default:
			have++
		}
	}
	return have
}

// look is one of a waiter that does nothing but what was left to it.
func (c *copier) look(t *testing.T, l *wait.Cond) (found bool) {
	t.Helper()
	if !c.a.polling.CompareAndSwap(false, true) {
		t.Fatal("a goroutine waits")
	}
	defer c.a.polling.Store(false)
	return c.a.poll(t.Context(), l, nil)
}

// A waiter runs deferred copies in their order, and no more than it waits for.
func TestWaiterRunsDeferredCopies(t *testing.T) {
	c := newCopier(t)
	copy(c.mem[3*longCopy:], "to be read")
	rs := []Request{c.send(t, 0, false), c.send(t, 1, true), c.send(t, 2, false)}
	got := make([]byte, longCopy)
	get, err := c.m.GetAsync(t.Context(), 3*longCopy, got)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rs {
		if n := c.sent(t, 3); n != i {
			t.Fatalf("%d copies have arrived before a waiter waits for copy %d", n, i)
		}
		if !c.look(t, &wait.Cond{Word: c.out.ackEvent.Word(), Old: c.out.ackEvent.Load()}) {
			t.Fatalf("copy %d is not over", i)
		}
		if done, err := rs[i].poll(); !done || err != nil {
			t.Fatalf("copy %d: %v, %v", i, done, err)
		}
	}
	eventually(t, "there was no notification", func() bool { return c.ran.Load() == 1 })
	never := new(atomic.Bool)
	if c.look(t, &wait.Cond{Failed: never}) {
		t.Error("what never comes was found")
	}
	if done, err := get.poll(); !done || err != nil || string(got[:10]) != "to be read" {
		t.Errorf("the get: %v, %v, %q", done, err, got[:10])
	}
	if c.a.deferredCopies.pending.Load() || c.out.backlog.busy() {
		t.Error("something is left")
	}
}

// Where no waiter comes a goroutine does it.
func TestDeferredCopiesWithoutWaiter(t *testing.T) {
	ctx := t.Context()
	for name, f := range map[string]func(*testing.T, *copier){
		"a moment": func(t *testing.T, c *copier) {
			c.setTimerAt(0)
			c.send(t, 0, false)
		},
		"a moment, again": func(t *testing.T, c *copier) {
			c.setTimerAt(0)
			c.send(t, 0, false)
			eventually(t, "the first is not there", func() bool { return c.sent(t, 1) == 1 })
			eventually(t, "the timer is set for ever", func() bool {
				c.a.deferredCopies.mu.Lock()
				defer c.a.deferredCopies.mu.Unlock()
				return c.a.deferredCopies.timerAt == 0
			})
			var events [4]unix.Event
			for start := time.Now(); time.Since(start) < 5*time.Millisecond; {
				for _, ev := range events[:c.a.ep.Look(events[:])] {
					if ev.ID == copiesTimerID {
						t.Fatal("the timer goes off again")
					}
				}
			}
			shm.Word(c.mem, longCopy-4).Store(0)
			c.send(t, 0, false)
		},
		"a moment, and more come": func(t *testing.T, c *copier) { // which do not put the first one off
			c.send(t, 0, false)
			since := c.idleSince()
			c.send(t, 1, false)
			if c.idleSince() != since {
				t.Error("the first one has been put off")
			}
			c.a.deferredCopies.mu.Lock()
			c.a.deferredCopies.setTimer(since)
			c.a.deferredCopies.mu.Unlock()
		},
		"asked for": func(t *testing.T, c *copier) {
			r := c.send(t, 0, false)
			if done, err := r.Result(); done {
				t.Errorf("it is over before it was begun: %v", err)
			}
		},
		"a waiter polls on": func(t *testing.T, c *copier) {
			c.a.polling.Store(true)
			defer c.a.polling.Store(false)
			c.send(t, 0, false)
			if c.a.spin(ctx, &wait.Cond{Failed: new(atomic.Bool)}, nil) {
				t.Error("what never comes was found")
			}
		},
		"a goroutine falls asleep": func(t *testing.T, c *copier) {
			c.send(t, 0, false)
			waitAsleep(t, c.a)
		},
		"a goroutine sleeps": func(t *testing.T, c *copier) {
			waitAsleep(t, c.a)
			c.send(t, 0, false)
			if c.a.deferredCopies.pending.Load() {
				t.Error("it is listed")
			}
		},
		// and another goroutine sleeps that looked while the waiter worked
		"the waiter has gone": func(t *testing.T, c *copier) {
			c.send(t, 0, false)
			b := &c.out.backlog
			b.mu.Lock()
			b.hasWorker = true
			b.mu.Unlock()
			waitAsleep(t, c.a)
			c.out.backlog.yieldWorker()
		},
		"something that may wait comes behind": func(t *testing.T, c *copier) {
			c.send(t, 0, false)
			if _, err := c.out.SendAsync(ctx, Message{Handle: 2, Src: make([]byte, 4)}); err != nil {
				t.Fatal(err)
			}
		},
		"it may have to wait itself": func(t *testing.T, c *copier) {
			c.send(t, 0, false)
			c.out.fetches.mu.Lock() // which a goroutine needs
			c.out.fetches.count.Add(1)
			if c.look(t, &wait.Cond{Word: c.out.ackEvent.Word(), Old: c.out.ackEvent.Load()}) {
				t.Error("the waiter has done it")
			}
			c.out.fetches.count.Add(-1)
			c.out.fetches.mu.Unlock()
		},
		"it takes long": func(t *testing.T, c *copier) {
			src := make([]byte, maxDeferredCopy+4)
			copy(src, bytes.Repeat([]byte{1}, longCopy))
			if _, err := c.m.SendAsync(ctx, 0, src, false); err != nil {
				t.Fatal(err)
			}
		},
		"there is no timer": func(t *testing.T, c *copier) {
			c.a.deferredCopies.mu.Lock()
			c.a.deferredCopies.closed = true
			c.a.deferredCopies.mu.Unlock()
			c.send(t, 0, false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCopier(t)
			f(t, c)
			eventually(t, "it has not arrived", func() bool { return c.sent(t, 1) == 1 })
			if err := c.out.backlog.wait(ctx, nil); err != nil { // its memory is not used any more
				t.Error(err)
			}
		})
	}
}

// waitAsleep starts a goroutine that waits in vain until the test is over, and returns when it is
// asleep.
func waitAsleep(t *testing.T, e *Engine) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	never, over := new(atomic.Bool), make(chan struct{})
	go func() {
		defer close(over)
		for ctx.Err() == nil { // what else comes wakes it
			_, _ = e.sleepers.Sleep(ctx, &wait.Cond{Failed: never, LocalOnly: true}, e.stop, 0)
		}
	}()
	t.Cleanup(func() { stop(); <-over })
	eventually(t, "no goroutine sleeps", e.sleepers.Asleep)
}

// An operation that may wait gets a goroutine when the waiter stops working. If the link ends
// meanwhile, the rest fails.
func TestWorkerYields(t *testing.T) {
	turn := func(c *copier, has bool) {
		c.out.backlog.mu.Lock()
		defer c.out.backlog.mu.Unlock()
		c.out.backlog.hasWorker = has
	}
	t.Run("behind", func(t *testing.T) {
		c := newCopier(t)
		c.send(t, 0, false)
		turn(c, true)
		src := make([]byte, maxDeferredCopy+4)
		if _, err := c.m.SendAsync(t.Context(), longCopy, src, false); err != nil {
			t.Fatal(err)
		}
		c.out.backlog.yieldWorker()
		eventually(t, "it is not over", func() bool { return !c.out.backlog.busy() })
	})
	t.Run("the link", func(t *testing.T) {
		c := newCopier(t)
		rs := []Request{c.send(t, 0, true), c.send(t, 1, false)}
		turn(c, true)
		c.b.Close()
		eventually(t, "the link has not ended", func() bool { return c.out.State() == shmlayout.ConnReleased })
		eventually(t, "its backlog has not", func() bool {
			c.out.backlog.mu.Lock()
			defer c.out.backlog.mu.Unlock()
			return c.out.backlog.closed
		})
		c.out.backlog.yieldWorker()
		for i, r := range rs {
			if done, err := r.poll(); !done || !errors.Is(err, ErrGone) {
				t.Errorf("request %d: %v, %v", i, done, err)
			}
		}
		if n := c.out.creditsTaken.Load(); n != 0 {
			t.Errorf("%d credits are taken", n)
		}
	})
}

// The end of a link is that of what was left, too.
func TestDeferredCopiesOfAnEndedLink(t *testing.T) {
	c := newCopier(t)
	rs := []Request{c.send(t, 0, false), c.send(t, 1, true)}
	c.b.Close()
	for i, r := range rs {
		eventually(t, "a request is not over", func() bool {
			done, err := r.poll()
			if done && !errors.Is(err, ErrGone) {
				t.Errorf("request %d: %v", i, err)
			}
			return done
		})
	}
	if _, err := c.m.SendAsync(t.Context(), 0, make([]byte, longCopy), false); err == nil {
		t.Error("another one was begun")
	}
	eventually(t, "the link is still listed", func() bool { return !c.a.deferredCopies.pending.Load() })
}

// The end of an import waits for a goroutine that is just deferring one of its operations: what that
// has found not ended is deferred then, and canceled.
func TestCancelBesideADeferral(t *testing.T) {
	c := newCopier(t)
	b := &c.out.backlog
	ended := new(atomic.Bool)
	d := &deferredOp{ended: ended, run: func(context.Context, *deferredOp) error { return nil }}
	b.mu.Lock() // as deferOp, which has looked at ended
	ended.Store(true)
	canceled := make(chan struct{})
	go func() {
		defer close(canceled)
		b.cancel(ended)
	}()
	for range 1000 {
		runtime.Gosched()
	}
	b.ops = append(b.ops, d)
	b.deferredTotal.Add(1)
	b.pending.Add(1)
	b.mu.Unlock()
	<-canceled
	if !d.done.Load() || !errors.Is(d.err, ErrEnded) {
		t.Errorf("an operation that was deferred beside the import's end is not over: %v", d.err)
	}
	b.startWorker() // removes it
	if err := b.wait(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
