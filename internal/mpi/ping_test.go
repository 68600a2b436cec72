package mpi

import (
	"context"
	"testing"
)

// The engine of each rank answers, whatever its program does.
func TestPing(t *testing.T) {
	overWays(t, func(t *testing.T, w way) {
		es := job(t, w, 3)
		a := es[0]
		for rank := range es {
			for range 2 * maxPings {
				if d, err := a.Ping(within(t), rank); err != nil || (d <= 0) != (rank == 0) {
					t.Fatalf("rank %d: %v, %v", rank, d, err)
				}
			}
		}
		for _, e := range es {
			if s := e.Stats(); s.Requests != 0 {
				t.Errorf("rank %d has left %+v", e.rank, s)
			}
		}
	})
}

// A ping that is given up counts until it is answered, and only so many do. One of a rank that goes
// fails.
func TestPingsAreBounded(t *testing.T) {
	es := job(t, ways[0], 3)
	a, b := es[0], es[1]
	ended, stop := context.WithCancel(within(t))
	stop()
	b.mu.Lock() // it answers nothing
	for range maxPings {
		if _, err := a.Ping(ended, 1); !isClass(err, ErrCanceled) {
			t.Errorf("a ping that is given up: %v", err)
		}
	}
	if _, err := a.Ping(within(t), 1); !isClass(err, ErrOther) {
		t.Errorf("one ping more: %v", err)
	}
	b.mu.Unlock()
	until(within(t), t, func() bool { a.step(); return a.Stats().Requests == 0 })
	if _, err := a.Ping(within(t), 1); err != nil {
		t.Errorf("after the answers: %v", err)
	}
	b.mu.Lock()
	failed := make(chan error, 1)
	go func() { _, err := a.Ping(within(t), 1); failed <- err }()
	until(within(t), t, func() bool { return a.Stats().Requests == 1 })
	a.loses(1)
	b.mu.Unlock()
	if err := <-failed; !isClass(err, ErrProcFailed) {
		t.Errorf("a ping of a rank that is gone: %v", err)
	}
	if _, err := a.Ping(within(t), 1); !isClass(err, ErrProcFailed) {
		t.Errorf("a later ping: %v", err)
	}
	end(t, es)
}

// A rank that sends more pings than it may, or answers what was not asked, is gone.
func TestFalsePings(t *testing.T) {
	for about, kind := range map[string]uint8{"pings": kindPing, "answers": kindPong} {
		t.Run(about, func(t *testing.T) {
			es := job(t, ways[0], 2)
			meet(t, es)
			a, b := es[0], es[1]
			a.mu.Lock()
			unblock := block(a.peers[1].port) // so the answers wait
			b.mu.Lock()
			for range maxPings + 1 {
				if !b.peers[0].port.Send(&Header{kind: kind, sreq: 5}, nil) {
					t.Error("there is no room")
				}
			}
			b.mu.Unlock()
			a.pollAll()
			if a.peers[1].err == nil {
				t.Error("the rank is not gone")
			}
			if n := len(a.peers[1].control); n > 0 {
				t.Errorf("%d answers for it are kept", n)
			}
			unblock()
			a.mu.Unlock()
			end(t, es)
		})
	}
}

// A revocation ends no ping: neither one that is under way, nor later ones.
func TestPingBesideARevocation(t *testing.T) {
	es := job(t, ways[0], 2)
	a, b := es[0], es[1]
	ctx := within(t)
	b.mu.Lock() // it answers nothing
	answered := make(chan error, 1)
	go func() { _, err := a.Ping(ctx, 1); answered <- err }()
	until(ctx, t, func() bool { return a.Stats().Requests == 1 })
	if err := a.Revoke(0, a.all()); err != nil {
		t.Error(err)
	}
	b.mu.Unlock()
	if err := <-answered; err != nil {
		t.Errorf("the ping that is under way: %v", err)
	}
	if _, err := a.Ping(ctx, 1); err != nil {
		t.Errorf("a later one: %v", err)
	}
}
