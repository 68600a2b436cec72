package lock_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/lock"
)

// A client that stores anything in its lane while it has the lock, or while it does not, is found
// out when others want the lock, and these go on.
func TestFalseLease(t *testing.T) {
	for _, w := range ways {
		for about, v := range map[string]uint64{
			"zero": 0, "ones": 1<<64 - 1, "another lease, idle": 1 << 40, "another lease, held": 1<<40 | 2,
			"recalled": 1<<19 | 4, "flags alone": 3,
		} {
			t.Run(w.name+"/"+about, func(t *testing.T) {
				nodes, s := w.start(t)
				last := nodes[len(nodes)-1]
				bad, a, b := open(t, last.Open(t)), open(t, last.Open(t)), open(t, last.Open(t))
				// without the lock: nothing looks at it
				if err := bad.StoreLease(within(t), v); err != nil {
					t.Fatal(err)
				}
				h := locked(t, a)
				if _, ok, err := b.TryLock(within(t)); ok || err != nil {
					t.Fatalf("a second holder: %t, %v", ok, err)
				}
				unlock(t, h)
				h = locked(t, b)
				token := h.Token()
				unlock(t, h)
				h = locked(t, bad)
				if err := bad.StoreLease(within(t), v); err != nil {
					t.Fatal(err)
				}
				for _, m := range []*lock.Mutex{a, b} {
					h := locked(t, m)
					if h.Token() <= token || h.Token() > token+10<<16 || !h.Abandoned() {
						t.Errorf("token %d after %d, abandoned: %t", h.Token(), token, h.Abandoned())
					}
					unlock(t, h)
				}
				eventually(t, "it is shut out", func() bool { return s.Clients() == 2 })
				_ = h.Unlock(within(t))
			})
		}
	}
}

// A client that releases what it does not have, withdraws what it did not request, or requests
// twice, concerns itself alone.
func TestFalseNotifications(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes, s := w.start(t)
			p, last := nodes[0].Open(t), nodes[len(nodes)-1]
			w.account(t, p)
			ctx := within(t)
			var wg sync.WaitGroup
			for range 2 {
				q := last.Open(t)
				m := open(t, q)
				a, err := importAccount(ctx, q)
				if err != nil {
					t.Fatal(err)
				}
				wg.Go(func() {
					for range 200 {
						if abandoned, err := round(ctx, m, a); err != nil || abandoned {
							t.Errorf("abandoned: %t, %v", abandoned, err)
							return
						}
					}
				})
			}
			bad := open(t, last.Open(t))
			for seq := range uint32(100) {
				for _, op := range []uint32{lock.OpRelease, lock.OpWithdraw, 0, 6, 7} {
					if err := bad.Notify(ctx, op, seq, seq%2 == 0); err != nil {
						t.Fatal(err)
					}
				}
			}
			wg.Wait()
			for range 3 { // it counts as one waiter
				if err := bad.Notify(ctx, lock.OpRequest, 1<<27, false); err != nil {
					t.Fatal(err)
				}
			}
			m := open(t, p)
			eventually(t, "it has the lock", func() bool {
				h, ok, err := m.TryLock(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if ok {
					unlock(t, h)
				}
				return !ok
			})
			if n := s.Waiting(); n > 1 {
				t.Errorf("it waits %d times", n)
			}
			if err := bad.Close(ctx); err != nil {
				t.Fatal(err)
			}
			unlock(t, locked(t, m))
		})
	}
}

// Random notifications and words of false clients, which leave and come back, harm no other client,
// and never let two others have the lock.
func TestRandomLies(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes, _ := w.start(t)
			p, last := nodes[0].Open(t), nodes[len(nodes)-1]
			w.account(t, p)
			honest := []*contender{contend(t, last.Open(t)), contend(t, last.Open(t))}
			for _, c := range honest {
				c.begin()
				defer c.end()
			}
			ctx, liar := within(t), last.Open(t)
			for range 20 {
				bad, err := lock.Open(ctx, liar, name)
				if err != nil {
					t.Fatal(err)
				}
				for range 100 {
					if rand.N(3) == 0 {
						err = bad.StoreLease(ctx, rand.Uint64()>>rand.N(64))
					} else {
						err = bad.NotifyWord(ctx, rand.Uint32()>>rand.N(32))
					}
					if err != nil { // the host has shut it out
						break
					}
				}
				if err := bad.Close(ctx); err != nil {
					t.Fatal(err)
				}
				for _, c := range honest {
					c.goesOn()
				}
			}
		})
	}
}

// A host that grants what is no lease, or answers what was not requested, gets no client to believe
// that it has the lock.
func TestFalseHost(t *testing.T) {
	nodes, s := ways[0].start(t)
	m, other := open(t, nodes[0].Open(t)), open(t, nodes[0].Open(t))
	h := locked(t, other)
	for about, v := range map[string]uint64{"zero": 0, "idle": 1 << 19, "no lease": 2} {
		waits := make(chan struct{})
		var once sync.Once
		steps.On(t, func(s string) {
			if s == "lock.waits" {
				once.Do(func() { close(waits) })
			}
		})
		errs := make(chan error, 1)
		ctx := within(t)
		go func() {
			_, err := m.Lock(ctx)
			errs <- err
		}()
		<-waits
		s.Answer(1<<27, 1<<20|2) // to no request
		s.Answer(m.Seq(), v)
		if err := <-errs; !errors.Is(err, vmmc.ErrProtocol) {
			t.Errorf("%s: %v", about, err)
		}
		steps.Off()
		if err := m.Notify(ctx, lock.OpWithdraw, m.Seq(), false); err != nil {
			t.Fatal(err)
		}
	}
	unlock(t, h)
	unlock(t, locked(t, m))
	if err := m.StoreLease(within(t), 1<<40); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Lock(within(t)); !errors.Is(err, vmmc.ErrProtocol) {
		t.Errorf("a lease that the host has changed: %v", err)
	}
}

// Close says so if the host was not told, though it lives, and the client has left all the same.
func TestCloseWithoutTheRightToNotify(t *testing.T) {
	for _, w := range deathWays {
		t.Run(w.name, func(t *testing.T) {
			ctx, nodes := within(t), w.started(t)
			host := nodes[0].Open(t)
			lock.HostReadOnly(ctx, t, host, name)
			m := open(t, nodes[len(nodes)-1].Open(t))
			lane := m.Lane()
			if err := m.Close(ctx); !errors.Is(err, vmmc.ErrNoRights) {
				t.Errorf("the host was not told: %v", err)
			}
			if err := lane.Err(); !errors.Is(err, vmmc.ErrClosed) {
				t.Errorf("the client keeps its lane: %v", err)
			}
			if err := m.Close(ctx); err != nil {
				t.Errorf("a second call: %v", err)
			}
		})
	}
}

// No process but its client can reach a lane, and none but the host a client's buffer.
func TestThirdProcess(t *testing.T) {
	nodes, _ := ways[0].start(t)
	m := open(t, nodes[0].Open(t))
	other := nodes[0].Open(t)
	for about, at := range map[string]struct {
		of vmmc.ProcessID
		id uint32
	}{
		"the lane":            {m.Lane().Exporter(), m.Lane().ID()},
		"the client's buffer": {m.Process().ID(), m.Own().ID()},
	} {
		if _, err := other.Import(within(t), at.of.Node, at.of.PID, at.id); !errors.Is(err, vmmc.ErrNoRights) {
			t.Errorf("%s: %v", about, err)
		}
	}
}

// A client that closes the buffer for answers keeps nothing that it has not.
func TestClientWithoutItsBuffer(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes, s := w.start(t)
			last := nodes[len(nodes)-1]
			bad, m := open(t, last.Open(t)), open(t, last.Open(t))
			unlock(t, locked(t, bad))
			if err := bad.Own().Close(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "its lane ends", func() bool { return s.Clients() == 1 })
			h := locked(t, m)
			if h.Abandoned() {
				t.Error("it did not have the lock")
			}
			unlock(t, h)
		})
	}
}

// What a stranger writes to the letterbox ends nothing.
func TestLetterboxOverwritten(t *testing.T) {
	nodes, _ := ways[0].start(t)
	m := open(t, nodes[0].Open(t))
	bad := nodes[0].Open(t)
	ctx := within(t)
	im, err := bad.ImportName(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	defer im.Close()
	var b [64]byte
	for i := range b {
		b[i] = byte(rand.N(256))
	}
	if err := im.SendNotify(ctx, b[:], 0); err != nil {
		t.Fatal(err)
	}
	unlock(t, locked(t, m))
	if _, err := lock.Open(ctx, bad, name); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("its header is overwritten: %v", err)
	}
}

// A process that connects with a buffer that is too small is refused.
func TestFalseClient(t *testing.T) {
	nodes, s := ways[0].start(t)
	bad := nodes[0].Open(t)
	ctx := within(t)
	im, err := bad.ImportName(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	defer im.Close()
	mem, err := bad.Alloc(pair.AnswerSize)
	if err != nil {
		t.Fatal(err)
	}
	e, err := pair.Export(func(id uint32) (*vmmc.Export, error) { return bad.Export(id, mem.Bytes()) })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pair.Dial(ctx, bad, im, 60, e); !errors.Is(err, pair.ErrRefused) {
		t.Errorf("a small buffer: %v", err)
	}
	if n := s.Clients(); n != 0 {
		t.Errorf("%d clients", n)
	}
}
