package lock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/lock"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// Processes, and goroutines of each, exclude one another; the host's own, too.
func TestMutualExclusion(t *testing.T) {
	const rounds, goroutines = 100, 3
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes := vmmctest.Nodes(t, w.nodes)
			p := nodes[0].Open(t)
			var opts []lock.Option
			if w.unmapped {
				opts = append(opts, lock.Unmapped())
			}
			s := hosted(t, p, opts...)
			e := w.account(t, p)
			last := nodes[len(nodes)-1]
			ctx := within(t)
			var wg sync.WaitGroup
			for _, client := range []*vmmc.Process{p, last.Open(t), last.Open(t)} {
				m := open(t, client)
				a, err := importAccount(ctx, client)
				if err != nil {
					t.Fatal(err)
				}
				for range goroutines {
					wg.Go(func() {
						for range rounds {
							if abandoned, err := round(ctx, m, a); err != nil || abandoned {
								t.Errorf("abandoned: %t, %v", abandoned, err)
								return
							}
						}
					})
				}
			}
			if n := s.Clients(); n != 3 {
				t.Errorf("%d clients", n)
			}
			wg.Wait()
			first, err := e.Word64(firstOff)
			if err != nil {
				t.Fatal(err)
			}
			if n := first.Load(); n != 3*goroutines*rounds {
				t.Errorf("%d changes", n)
			}
		})
	}
}

// A lock that no other process wants is locked and unlocked without the host, which may even be
// stopped, until the lease has served.
func TestLeaseWithoutTheHost(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	host := vmmctest.Child(t, node, "host", "none", "1", "")
	host.Line()
	m := open(t, node.Open(t))
	unlock(t, locked(t, m))
	host.Stop()
	last := uint64(0)
	for range 100 {
		h := locked(t, m)
		if h.Token() <= last {
			t.Fatalf("token %d after %d", h.Token(), last)
		}
		last = h.Token()
		unlock(t, h)
	}
	if err := m.ExhaustLease(within(t), 2); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		unlock(t, locked(t, m))
	}
	ctx, cancel := context.WithCancel(within(t))
	steps.On(t, func(s string) {
		if s == "lock.waits" {
			cancel()
		}
	})
	if _, err := m.Lock(ctx); !errors.Is(err, vmmc.ErrCanceled) {
		t.Fatalf("an exhausted lease, and the host is stopped: %v", err)
	}
	host.Continue()
	h := locked(t, m)
	if h.Token() <= last+2 {
		t.Errorf("token %d after %d", h.Token(), last+2)
	}
	unlock(t, h)
}

// Waiters get the lock in the order in which they came, and one that has given up is left out.
func TestFirstComeFirstServed(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes, s := w.start(t)
			last := nodes[len(nodes)-1]
			h := locked(t, open(t, last.Open(t)))
			order := make(chan int, 5)
			var wg sync.WaitGroup
			ctx, cancel := context.WithCancel(within(t))
			for i := range 5 {
				m := open(t, last.Open(t))
				ctx := ctx
				if i != 2 {
					ctx = within(t)
				}
				wg.Go(func() {
					h, err := m.Lock(ctx)
					if i == 2 {
						if !errors.Is(err, vmmc.ErrCanceled) {
							t.Errorf("the waiter that gives up: %v", err)
						}
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					order <- i
					if err := h.Unlock(within(t)); err != nil {
						t.Error(err)
					}
				})
				eventually(t, "it waits", func() bool { return s.Waiting() == i+1 })
			}
			cancel()
			eventually(t, "it gives up", func() bool { return s.Waiting() == 4 })
			unlock(t, h)
			wg.Wait()
			close(order)
			want := []int{0, 1, 3, 4}
			for i := range order {
				if i != want[0] {
					t.Errorf("waiter %d, want %d", i, want[0])
				}
				want = want[1:]
			}
		})
	}
}

// A client that locks again and again does not keep the lock from others.
func TestGreedyClient(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes, _ := w.start(t)
			last := nodes[len(nodes)-1]
			greedy, other := open(t, last.Open(t)), open(t, last.Open(t))
			ctx, stop := context.WithCancel(within(t))
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for {
						h, err := greedy.Lock(ctx)
						if err == nil {
							err = h.Unlock(within(t))
						}
						if err != nil {
							if !errors.Is(err, vmmc.ErrCanceled) {
								t.Error(err)
							}
							return
						}
					}
				})
			}
			for range 20 {
				unlock(t, locked(t, other))
			}
			stop()
			wg.Wait()
		})
	}
}

func TestTryLock(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes, s := w.start(t)
			last := nodes[len(nodes)-1]
			a, b := open(t, last.Open(t)), open(t, last.Open(t))
			try := func(m *lock.Mutex, want bool) *lock.Held {
				t.Helper()
				h, ok, err := m.TryLock(within(t))
				if ok != want || err != nil || ok != (h != nil) {
					t.Fatalf("%t, %v, want %t", ok, err, want)
				}
				return h
			}
			h := try(a, true)
			try(a, false)
			try(b, false)
			unlock(t, h)
			eventually(t, "the host knows", s.Settled)
			h = try(b, true)
			unlock(t, h)
			unlock(t, try(b, true)) // by the lease
			unlock(t, try(a, true)) // recalls it
			h = try(a, true)
			done := make(chan error, 1)
			ctx := within(t)
			go func() {
				h, err := b.Lock(ctx)
				if err == nil {
					err = h.Unlock(ctx)
				}
				done <- err
			}()
			eventually(t, "it waits", func() bool { return s.Waiting() == 1 })
			c := open(t, last.Open(t))
			try(c, false)
			unlock(t, h)
			if err := <-done; err != nil {
				t.Error(err)
			}
			eventually(t, "the host knows", s.Settled)
			unlock(t, try(c, true))
		})
	}
}

// A grant that crosses the withdrawal of its waiter goes back, with the mark of the dead holder.
func TestGrantCrossesWithdrawal(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes, _ := w.start(t, lock.After(7<<16))
			last := nodes[len(nodes)-1]
			a, b := open(t, last.Open(t)), open(t, last.Open(t))
			ctx, cancel := context.WithCancel(within(t))
			withdraws, granted := make(chan struct{}), make(chan struct{})
			var once sync.Once
			steps.On(t, func(s string) {
				switch s {
				case "lock.waits":
					cancel()
				case "lock.withdraws":
					close(withdraws)
					<-granted
				case "host.request":
					<-withdraws
				case "host.answered":
					once.Do(func() { close(granted) })
				}
			})
			if _, err := a.Lock(ctx); !errors.Is(err, vmmc.ErrCanceled) {
				t.Fatal(err)
			}
			steps.Off()
			h := locked(t, b)
			if !h.Abandoned() {
				t.Error("the mark is lost")
			}
			unlock(t, h)
			h = locked(t, a) // it was not repaired
			if !h.Abandoned() {
				t.Error("the mark is lost after a lock that does not repair")
			}
			h.Repaired()
			if h.Abandoned() {
				t.Error("it is repaired")
			}
			unlock(t, h)
			h = locked(t, a)
			if h.Abandoned() {
				t.Error("it was repaired")
			}
			unlock(t, h)
			h = locked(t, b)
			if h.Abandoned() {
				t.Error("it was repaired, and the lease recalled")
			}
			unlock(t, h)
		})
	}
}

// A host that follows another one continues its tokens.
func TestAfter(t *testing.T) {
	nodes := vmmctest.Nodes(t, 1)
	p := nodes[0].Open(t)
	s := hosted(t, p)
	m := open(t, nodes[0].Open(t))
	h := locked(t, m)
	token := h.Token()
	if h.Abandoned() {
		t.Error("the first holder of a new host")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	<-h.Lost()
	if err := h.Unlock(within(t)); !errors.Is(err, vmmc.ErrRevoked) {
		t.Errorf("an unlock of a lost lock: %v", err)
	}
	if _, err := m.Lock(within(t)); !errors.Is(err, vmmc.ErrRevoked) {
		t.Errorf("a lock of a closed host: %v", err)
	}
	hosted(t, p, lock.After(token))
	h = locked(t, open(t, nodes[0].Open(t)))
	if h.Token() <= token || !h.Abandoned() {
		t.Errorf("token %d after %d, abandoned: %t", h.Token(), token, h.Abandoned())
	}
	unlock(t, h)
}

// A client that leaves gives back what it has, with a mark, and ends its own calls.
func TestClose(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes, s := w.start(t)
			last := nodes[len(nodes)-1]
			a, b := open(t, last.Open(t)), open(t, last.Open(t))
			ctx := within(t)
			h := locked(t, a)
			var wg sync.WaitGroup
			errs := make(chan error, 3)
			for _, m := range []*lock.Mutex{a, b, b} { // one waits here for its turn
				wg.Go(func() {
					_, err := m.Lock(ctx)
					errs <- err
				})
			}
			eventually(t, "one waits", func() bool { return s.Waiting() == 1 })
			if err := b.Close(ctx); err != nil {
				t.Fatal(err)
			}
			if err := b.Close(ctx); err != nil {
				t.Errorf("a second time: %v", err)
			}
			eventually(t, "it has left", func() bool { return s.Waiting() == 0 && s.Clients() == 1 })
			c := open(t, last.Open(t))
			if _, ok, err := c.TryLock(ctx); ok || err != nil {
				t.Errorf("the lock is held: %t, %v", ok, err)
			}
			if err := a.Close(ctx); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			for range 3 {
				if err := <-errs; !errors.Is(err, vmmc.ErrClosed) {
					t.Errorf("a lock while it is closed: %v", err)
				}
			}
			<-h.Lost()
			if err := h.Unlock(ctx); !errors.Is(err, vmmc.ErrClosed) {
				t.Errorf("an unlock after the close: %v", err)
			}
			h = locked(t, c)
			if !h.Abandoned() {
				t.Error("the holder has left, and the next one does not know")
			}
			h.Repaired()
			unlock(t, h)
			for _, f := range []func() error{
				func() error { _, err := a.Lock(ctx); return err },
				func() error { _, _, err := a.TryLock(ctx); return err },
			} {
				if err := f(); !errors.Is(err, vmmc.ErrClosed) {
					t.Errorf("after the close: %v", err)
				}
			}
			h = locked(t, open(t, last.Open(t)))
			if h.Abandoned() {
				t.Error("it was repaired, and its holder has left afterwards")
			}
			unlock(t, h)
		})
	}
}

// A host that is stopped ends no call but by the caller's context, and all goes on afterwards.
func TestCallsGivenUp(t *testing.T) {
	for _, w := range deathWays {
		t.Run(w.name, func(t *testing.T) {
			nodes := vmmctest.Nodes(t, w.nodes)
			host := vmmctest.Child(t, nodes[0], "host", "none", "1", "")
			host.Line()
			last := nodes[len(nodes)-1]
			a, b := open(t, last.Open(t)), open(t, last.Open(t))
			unlock(t, locked(t, a))
			host.Stop()
			soon := func() context.Context {
				ctx, stop := context.WithTimeout(within(t), 20e6)
				t.Cleanup(stop)
				return ctx
			}
			var h *lock.Held
			if w.nodes == 1 {
				h = locked(t, a) // by the lease
			} else if _, err := a.Lock(soon()); !errors.Is(err, vmmc.ErrTimeout) {
				t.Errorf("a lock by the lease: %v", err)
			}
			if _, err := b.Lock(soon()); !errors.Is(err, vmmc.ErrTimeout) {
				t.Errorf("a lock: %v", err)
			}
			host.Continue()
			if h != nil {
				unlock(t, h)
			}
			h = locked(t, b)
			if w.nodes == 2 { // an unlock that is fenced goes on without its caller
				ctx, cancel := context.WithCancel(within(t))
				steps.On(t, func(s string) {
					if s == "unlock.fenced" {
						host.Stop()
						cancel()
					}
				})
				if err := h.Unlock(ctx); err != nil {
					t.Errorf("an unlock that is given up: %v", err)
				}
				steps.Off()
				host.Continue()
			} else {
				unlock(t, h)
			}
			for range 3 {
				for _, m := range []*lock.Mutex{a, b} {
					h := locked(t, m)
					if h.Abandoned() {
						t.Error("no holder has died")
					}
					unlock(t, h)
				}
			}
		})
	}
}

// An unlock whose fence ends with the context leaves the lock held.
func TestUnlockGivenUp(t *testing.T) {
	nodes, _ := ways[0].start(t)
	p := nodes[0].Open(t)
	m := open(t, p)
	h := locked(t, m)
	ctx, cancel := context.WithCancel(within(t))
	cancel()
	other := nodes[0].Open(t)
	mem, err := other.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Export(1, mem.Bytes(), vmmc.Unmapped()); err != nil {
		t.Fatal(err)
	}
	im, err := p.Import(within(t), other.Node(), other.PID(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := im.SendAsync(within(t), make([]byte, 64), 0); err != nil {
		t.Fatal(err)
	}
	if err := h.Unlock(ctx); err != nil {
		if !errors.Is(err, vmmc.ErrCanceled) {
			t.Fatal(err)
		}
		if _, ok, err := m.TryLock(within(t)); ok || err != nil {
			t.Errorf("it is held: %t, %v", ok, err)
		}
		unlock(t, h)
	}
	if err := h.Unlock(within(t)); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("a second unlock: %v", err)
	}
	old := h
	h = locked(t, m)
	if err := old.Unlock(within(t)); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("an unlock of an earlier hold: %v", err)
	}
	if _, ok, err := open(t, nodes[0].Open(t)).TryLock(within(t)); ok || err != nil {
		t.Errorf("it is held: %t, %v", ok, err)
	}
	unlock(t, h)
}

// A lock goes on over lost connections.
func TestOverCuts(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	p := nodes[0].Open(t, vmmc.WithResume(bound))
	hosted(t, p)
	e := newAccount(t, p)
	ctx := within(t)
	var wg sync.WaitGroup
	const clients, rounds = 2, 200
	for k := range clients {
		q := nodes[1].Open(t, vmmc.WithResume(bound))
		m := open(t, q)
		a, err := importAccount(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for i := range rounds {
				if k == 0 && i%40 == 20 {
					nodes[0].Cut()
					nodes[0].Heal()
				}
				if abandoned, err := round(ctx, m, a); err != nil || abandoned {
					t.Errorf("abandoned: %t, %v", abandoned, err)
					return
				}
			}
		})
	}
	wg.Wait()
	first, err := e.Word64(firstOff)
	if err != nil {
		t.Fatal(err)
	}
	if n := first.Load(); n != clients*rounds {
		t.Errorf("%d changes", n)
	}
}

func TestRefused(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	p, q := node.Open(t), node.Open(t)
	ctx := within(t)
	for about, opts := range map[string][]lock.Option{
		"no option":       {nil},
		"no clients":      {lock.MaxClients(0)},
		"a token too far": {lock.After(1<<64 - 1)},
	} {
		if _, err := lock.Host(ctx, p, name, opts...); !errors.Is(err, vmmc.ErrBadArg) {
			t.Errorf("%s: %v", about, err)
		}
	}
	if _, err := lock.Host(nil, p, name); !errors.Is(err, vmmc.ErrBadArg) { //nolint:staticcheck // on purpose
		t.Errorf("no context: %v", err)
	}
	if _, err := lock.Host(ctx, p, "a/b/c"); !errors.Is(err, vmmc.ErrBadName) {
		t.Errorf("a bad name: %v", err)
	}
	s := hosted(t, p, lock.MaxClients(1), lock.Permit(vmmc.Permission{Processes: []vmmc.ProcessID{q.ID()}}))
	if _, err := lock.Host(ctx, q, name); !errors.Is(err, vmmc.ErrNameTaken) {
		t.Errorf("a taken name: %v", err)
	}
	m := open(t, q)
	if _, err := lock.Open(ctx, q, name); !errors.Is(err, vmmc.ErrNoMem) {
		t.Errorf("a client too many: %v", err)
	}
	if err := m.Close(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has left", func() bool { return s.Clients() == 0 })
	open(t, q)
	if _, err := lock.Open(ctx, node.Open(t), name); !errors.Is(err, vmmc.ErrNoRights) {
		t.Errorf("not permitted: %v", err)
	}
	if _, err := p.Publish(ctx, "other", make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Open(ctx, q, "other"); !errors.Is(err, vmmc.ErrBadArg) || !strings.Contains(err.Error(), "no mutex") {
		t.Errorf("no mutex: %v", err)
	}
	if _, err := p.Publish(ctx, "short", make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Open(ctx, q, "short"); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("no mutex, and short: %v", err)
	}
}

// No call that may wait is made in a handler.
func TestInHandler(t *testing.T) {
	nodes, s := ways[0].start(t)
	p := nodes[0].Open(t)
	m := open(t, p)
	h := locked(t, m)
	errs := make(chan error, 7)
	q := nodes[0].Open(t)
	if _, err := q.Export(9, make([]byte, 4), vmmc.WithHandler(func(vmmc.Notification) {
		ctx := context.Background()
		_, err := m.Lock(ctx)
		errs <- err
		_, _, err = m.TryLock(ctx)
		errs <- err
		errs <- h.Unlock(ctx)
		errs <- m.Close(ctx)
		errs <- s.Close()
		_, err = lock.Open(ctx, p, name)
		errs <- err
		_, err = lock.Host(ctx, p, "other")
		errs <- err
	})); err != nil {
		t.Fatal(err)
	}
	im, err := p.Import(within(t), q.Node(), q.PID(), 9)
	if err != nil {
		t.Fatal(err)
	}
	if err := im.SendNotify(within(t), make([]byte, 4), 0); err != nil {
		t.Fatal(err)
	}
	for i := range cap(errs) {
		if err := <-errs; !errors.Is(err, vmmc.ErrNotInHandler) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	unlock(t, h)
}

func TestAllocations(t *testing.T) {
	if raceEnabled || invariant.Enabled {
		t.Skip("the race detector and the library's own checks allocate")
	}
	for _, w := range ways[:2] { // the wire between nodes allocates
		t.Run(w.name, func(t *testing.T) {
			nodes, _ := w.start(t)
			p := nodes[0].Open(t)
			m := open(t, p)
			w.account(t, nodes[0].Open(t)) // the fence is of another process, too
			a, err := importAccount(within(t), p)
			if err != nil {
				t.Fatal(err)
			}
			ctx := within(t)
			b := make([]byte, 8)
			if n := testing.AllocsPerRun(200, func() {
				h, err := m.Lock(ctx)
				if err == nil {
					err = a.Send(ctx, b, firstOff)
				}
				if err == nil {
					err = h.Unlock(ctx)
				}
				if err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("Lock and Unlock: %v allocations", n)
			}
			if !m.HasLease() {
				t.Error("it is not the lease that was measured")
			}
		})
	}
}
