package mpi

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/group"
	"github.com/vmmc-go/vmmc/vmmctest"
)

func init() { vmmctest.Role("idler", idler) }

// idler is rank 2 of a job. It has to do with no other rank.
func idler(ctx context.Context, p *vmmc.Process, args ...string) error {
	g, err := group.Join(ctx, p)
	if err != nil {
		return err
	}
	if _, err := Start(ctx, p, g, Options{Module: args[0]}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// ring is the ring of another rank.
func (e *Engine) ring(rank int) *ring { return e.peers[rank].port.(*ring) } //nolint:forcetypeassert // a test

// unmet reports whether a rank has nothing of another one.
func (e *Engine) unmet(rank int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p, ok := e.peers[rank].port.(*viaPort); ok {
		return !p.wanted && p.state == portIdle
	}
	return e.ring(rank).state == ringIdle
}

// ringStates are those of all other ranks.
func (e *Engine) ringStates() (all []ringState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, pr := range e.peers {
		if pr.port != nil {
			all = append(all, e.ring(pr.rank).state)
		}
	}
	return all
}

func TestRingTransitions(t *testing.T) {
	if err := ringTransitions.Walk(ringEnded, func(from, to ringState) ringState {
		r := ring{state: from}
		r.setState(to)
		return r.state
	}); err != nil {
		t.Error(err)
	}
}

// Ranks connect with those that they exchange messages with, and with no others.
func TestRanksConnectWhenTheyTalk(t *testing.T) {
	eachWay(t, rings, func(t *testing.T, w way) {
		const size = 6
		es := job(t, w, size)
		for _, e := range es {
			if states := e.ringStates(); slices.ContainsFunc(states, func(s ringState) bool { return s != ringIdle }) {
				t.Errorf("rank %d has connected before it talks: %v", e.rank, states)
			}
		}
		for round := range 2 {
			each(t, es, func(ctx context.Context, e *Engine) error {
				r, err := e.Isend(e.to((e.rank+1)%size, 1), fill(20_000, e.rank), Standard)
				if err != nil {
					return err
				}
				in := make([]byte, 20_000)
				from := (e.rank + size - 1) % size
				if s := e.from(from, 1); round == 1 {
					s.Rank, s.Source = AnySource, AnySource
					_, err = e.Recv(ctx, s, in)
				} else {
					_, err = e.Recv(ctx, s, in)
				}
				if err != nil {
					return err
				}
				checkFill(t, in, from)
				_, err = r.Wait(ctx)
				return err
			})
			for _, e := range es {
				e.mu.Lock()
				for _, pr := range e.peers {
					want := ringIdle
					if next := (e.rank + 1) % size; pr.rank == next || (pr.rank+1)%size == e.rank {
						want = ringConnected
					}
					if pr.port != nil && e.ring(pr.rank).state != want {
						t.Errorf("rank %d is %v with rank %d, want %v", e.rank, e.ring(pr.rank).state, pr.rank, want)
					}
				}
				e.mu.Unlock()
			}
		}
	})
}

// A rank that a first message goes to takes it while its program does nothing, and all pairs may begin at
// the same time.
func TestAllConnectAtOnce(t *testing.T) {
	overWays(t, func(t *testing.T, w way) {
		es := job(t, w, 5)
		each(t, es, func(ctx context.Context, e *Engine) error {
			for rank := range es {
				if rank != e.rank {
					if err := e.Send(ctx, e.to(rank, 1), fill(100, e.rank), Standard); err != nil {
						return err
					}
				}
			}
			return nil
		})
		each(t, es, func(ctx context.Context, e *Engine) error {
			in := make([]byte, 100)
			for range len(es) - 1 {
				s := e.from(0, 1)
				s.Rank, s.Source = AnySource, AnySource
				st, err := e.Recv(ctx, s, in)
				if err != nil {
					return err
				}
				checkFill(t, in, st.Source)
			}
			return nil
		})
	})
}

// The death of a rank that this one is not connected with is an error of all that depends on it.
func TestStrangerKilled(t *testing.T) {
	overWays(t, func(t *testing.T, w way) {
		es, child := withChild(t, w, "idler")
		a, b := es[0], es[1]
		ctx := within(t)
		wild, err := a.Irecv(a.from(AnySource, 5), nil)
		if err != nil {
			t.Fatal(err)
		}
		s := a.from(1, 5)
		s.Collective = true
		part, err := a.Irecv(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !a.unmet(2) {
			t.Error("rank 0 has connected with rank 2")
		}
		child.Kill()
		for what, r := range map[string]*Request{"wildcard receive": wild, "receive of a collective": part} {
			if _, err := r.Wait(ctx); !isClass(err, ErrProcFailed) {
				t.Errorf("a %s that waits: %v", what, err)
			}
		}
		if _, err := b.Recv(ctx, b.from(2, 1), nil); !isClass(err, ErrProcFailed) {
			t.Errorf("a receive from it: %v", err)
		}
		if err := b.Send(ctx, b.to(2, 1), nil, Standard); !isClass(err, ErrProcFailed) {
			t.Errorf("a send to it: %v", err)
		}
		lives(t, a, b)
	})
}

// A rank whose engine has ended, though its process lives, is gone for those that it is not connected
// with.
func TestStrangerReleased(t *testing.T) {
	overWays(t, func(t *testing.T, w way) {
		es := job(t, w, 3)
		a, b, c := es[0], es[1], es[2]
		ctx := within(t)
		wild, err := a.Irecv(a.from(AnySource, 5), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.release(); err != nil {
			t.Error(err)
		}
		if _, err := wild.Wait(ctx); !isClass(err, ErrProcFailed) {
			t.Errorf("a wildcard receive that waits: %v", err)
		}
		if _, err := b.Recv(ctx, b.from(2, 1), nil); !isClass(err, ErrProcFailed) {
			t.Errorf("a receive from it: %v", err)
		}
		lives(t, a, b)
		for _, e := range es[:2] {
			if err := e.release(); err != nil {
				t.Error(err)
			}
		}
		clear(es)
	})
}

// A rank that this one regards as gone learns of it, also if they were not connected, and even if it waits
// for others.
func TestStrangerRefused(t *testing.T) {
	overWays(t, func(t *testing.T, w way) {
		es := job(t, w, 3)
		a, b := es[0], es[1]
		ctx := within(t)
		wild, err := b.Irecv(b.from(AnySource, 5), nil)
		if err != nil {
			t.Fatal(err)
		}
		a.Exclude([]int{1})
		if _, err := wild.Wait(ctx); !isClass(err, ErrProcFailed) {
			t.Errorf("the receive: %v", err)
		}
		for _, e := range es { // they do not all come to Finalize
			if err := e.release(); err != nil {
				t.Error(err)
			}
		}
		clear(es)
	})
}

// When so many ranks are dead that no flood need reach this one, it looks for others itself.
func TestSearchBehindManyDeaths(t *testing.T) {
	for size, want := range map[int]int{2: 2, 4: 3, 8: 4, 16: 6, 200: 12} {
		if n := separators(size); n != want {
			t.Errorf("%d ranks: %d deaths, want %d", size, n, want)
		}
	}
	es := job(t, ways[0], 9)
	a := es[0]
	deaths := separators(len(es))
	if deaths >= len(es)-1 {
		t.Fatalf("%d deaths of %d ranks leave none to look for", deaths, len(es))
	}
	for i := range deaths {
		for _, state := range a.ringStates()[deaths:] {
			if state != ringIdle {
				t.Errorf("after %d deaths it has looked for others: %v", i, state)
			}
		}
		a.noteDeath(1 + i)
	}
	ctx := within(t)
	until(ctx, t, func() bool {
		return !slices.ContainsFunc(a.ringStates()[deaths:], func(s ringState) bool { return s != ringConnected })
	})
	var ends sync.WaitGroup
	for _, e := range es { // they do not all come to Finalize
		ends.Go(func() {
			if err := e.release(); err != nil {
				t.Error(err)
			}
		})
	}
	ends.Wait()
	clear(es)
}
