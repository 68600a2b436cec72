package lock_test

import (
	"context"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/lock"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// result is what Lock returns.
type result struct {
	h   *lock.Held
	err error
}

// modelClient is a client, which holds, waits or does neither.
type modelClient struct {
	p      *vmmc.Process
	m      *lock.Mutex
	h      *lock.Held
	cancel context.CancelFunc
	result chan result
}

type model struct {
	s       *lock.Server
	clients []*modelClient
	holder  *modelClient
	waiting []*modelClient
	mark    bool   // the next holder finds Abandoned
	token   uint64 // the last one's
}

// TestModel compares a mutex on one node with a holder and a queue of waiters.
func TestModel(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	host := node.Open(t)
	ps := []*vmmc.Process{node.Open(t), node.Open(t), node.Open(t)}
	rapid.Check(t, func(t *rapid.T) {
		s, err := lock.Host(t.Context(), host, "model")
		if err != nil {
			t.Fatal(err)
		}
		m := &model{s: s}
		defer func() {
			for _, c := range m.clients {
				if c.cancel != nil {
					c.cancel()
				}
				if err := c.m.Close(context.Background()); err != nil {
					t.Error(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		for _, p := range ps {
			c := &modelClient{p: p}
			m.clients = append(m.clients, c)
			c.open(t)
		}
		t.Repeat(map[string]func(*rapid.T){
			"lock": m.lock, "try": m.try, "give up": m.giveUp, "unlock": m.unlock, "leave": m.leave,
		})
	})
}

func (c *modelClient) open(t *rapid.T) {
	var err error
	if c.m, err = lock.Open(context.Background(), c.p, "model"); err != nil {
		t.Fatal(err)
	}
}

// idle draws a client that neither holds nor waits, or returns nil.
func (m *model) idle(t *rapid.T) *modelClient {
	c := rapid.SampledFrom(m.clients).Draw(t, "client")
	if c.h != nil || c.result != nil {
		return nil
	}
	return c
}

// holds notes that a client has the lock.
func (m *model) holds(t *rapid.T, c *modelClient, h *lock.Held) {
	if h.Token() <= m.token || h.Abandoned() != m.mark {
		t.Fatalf("token %d after %d, abandoned: %t, want %t", h.Token(), m.token, h.Abandoned(), m.mark)
	}
	m.token, m.holder, c.h = h.Token(), c, h
}

// next has the first waiter get the lock.
func (m *model) next(t *rapid.T) {
	m.holder = nil
	if len(m.waiting) == 0 {
		eventually(t, "the host knows", m.s.Settled)
		return
	}
	c := m.waiting[0]
	m.waiting = m.waiting[1:]
	r := <-c.result
	c.cancel()
	c.cancel, c.result = nil, nil
	if r.err != nil {
		t.Fatal(r.err)
	}
	m.holds(t, c, r.h)
}

func (m *model) waits(t *rapid.T) {
	eventually(t, "they wait", func() bool { return m.s.Waiting() == len(m.waiting) })
}

func (m *model) lock(t *rapid.T) {
	c := m.idle(t)
	if c == nil {
		return
	}
	if m.holder == nil {
		h, err := c.m.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m.holds(t, c, h)
		return
	}
	var ctx context.Context
	ctx, c.cancel = context.WithCancel(context.Background())
	mutex, got := c.m, make(chan result, 1)
	c.result = got
	go func() {
		h, err := mutex.Lock(ctx)
		got <- result{h, err}
	}()
	m.waiting = append(m.waiting, c)
	m.waits(t)
}

func (m *model) try(t *rapid.T) {
	c := m.idle(t)
	if c == nil {
		return
	}
	h, ok, err := c.m.TryLock(t.Context())
	if want := m.holder == nil; ok != want || err != nil {
		t.Fatalf("%t, %v, want %t", ok, err, want)
	}
	if ok {
		m.holds(t, c, h)
	}
}

func (m *model) giveUp(t *rapid.T) {
	if len(m.waiting) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.waiting)-1).Draw(t, "waiter")
	c := m.waiting[i]
	c.cancel()
	if r := <-c.result; !errors.Is(r.err, vmmc.ErrCanceled) {
		t.Fatalf("%v", r.err)
	}
	c.cancel, c.result = nil, nil
	m.waiting = append(m.waiting[:i:i], m.waiting[i+1:]...)
	m.waits(t)
}

func (m *model) unlock(t *rapid.T) {
	c := m.holder
	if c == nil {
		return
	}
	if rapid.Bool().Draw(t, "repaired") {
		c.h.Repaired()
		m.mark = false
	}
	if err := c.h.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.h = nil
	m.next(t)
}

// leave closes a client that holds or is idle, which then opens the lock again.
func (m *model) leave(t *rapid.T) {
	c := rapid.SampledFrom(m.clients).Draw(t, "client")
	if c.result != nil {
		return
	}
	if err := c.m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.h != nil {
		c.h, m.mark = nil, true
		m.next(t)
	}
	c.open(t)
}
