package mpi

import (
	"context"
	"fmt"
	"testing"
)

// When a communicator is revoked that has messages in all states, no rank keeps anything of it, also
// of messages that arrive later, and that a matched probe has taken.
func TestRevokeLeavesNothing(t *testing.T) {
	overWays(t, func(t *testing.T, w way) {
		const revoked = 1 << 33
		es := job(t, w, 3)
		ctx := within(t)
		on := func(e *Engine, rank, tag int) *Target {
			to := e.to(rank, tag)
			to.Context = revoked
			return to
		}
		var taken []*Message
		for _, e := range es {
			for rank := range es {
				for tag, size := range []int{1, 1000, MaxEager, 100_000} { // the last one waits for a receive
					if _, err := e.Isend(on(e, rank, tag), fill(size, tag), Standard); err != nil {
						t.Fatal(err)
					}
				}
			}
			from := e.from(0, 50)
			from.Context = revoked
			if _, err := e.Irecv(from, make([]byte, 8)); err != nil {
				t.Fatal(err)
			}
		}
		for _, tag := range []int{0, 3} {
			from := es[2].from(1, tag)
			from.Context = revoked
			_, m, err := es[2].Probe(ctx, from, true)
			if err != nil {
				t.Fatal(err)
			}
			taken = append(taken, m)
		}
		// Rank 1 revokes. What rank 0 sends at the same time may arrive after that.
		if err := es[1].Revoke(revoked, es[1].all()); err != nil {
			t.Fatal(err)
		}
		for err := error(nil); err == nil && ctx.Err() == nil; {
			_, err = es[0].Isend(on(es[0], 1, 9), fill(100, 9), Standard)
		}
		each(t, es, func(ctx context.Context, e *Engine) error {
			for !e.Revoked(revoked) {
				if ctx.Err() != nil {
					return fmt.Errorf("it is not revoked: %w", ctx.Err())
				}
			}
			return nil
		})
		for _, m := range taken {
			if _, err := m.Recv(ctx, make([]byte, 100_000)); !isClass(err, ErrRevoked) {
				t.Errorf("a message that a matched probe has taken: %v", err)
			}
		}
		each(t, es, func(ctx context.Context, e *Engine) error {
			for {
				e.step()
				s := e.Stats()
				if s.Posted == 0 && s.Unexpected == 0 && s.Cells == 0 && s.Requests == 0 {
					return nil
				}
				if ctx.Err() != nil {
					return fmt.Errorf("it keeps %+v", s)
				}
			}
		})
	})
}

// A revocation that no rank sends ends the connection, and revokes nothing.
func TestFalseRevocations(t *testing.T) {
	for about, c := range map[string]struct {
		context uint64
		data    []byte
	}{
		"of collectives":         {3, nil},
		"of what is not revoked": {OutOfBand(2) &^ 1, nil},
		"half a rank":            {2, []byte{1, 0}},
		"a rank beyond the job":  {2, []byte{2, 0, 0, 0}},
		"of others":              {2, []byte{0, 0, 0, 0}},
		"too many ranks":         {2, []byte{0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0}},
	} {
		t.Run(about, func(t *testing.T) {
			es := job(t, ways[0], 2)
			meet(t, es)
			a, b := es[0], es[1]
			ctx := within(t)
			b.mu.Lock()
			if !b.peers[0].port.Send(&Header{kind: kindRevoke, context: c.context}, c.data) {
				t.Error("the ring of a rank that has sent nothing is full")
			}
			b.mu.Unlock()
			for len(a.Failed(a.all())) == 0 {
				if ctx.Err() != nil {
					t.Fatal("the rank that sends it is not gone")
				}
			}
			a.mu.Lock()
			if len(a.revoked) != 0 {
				t.Errorf("%v are revoked", a.revoked)
			}
			a.mu.Unlock()
			for _, e := range es { // rank 1 is gone, so not all come to Finalize
				if err := e.release(); err != nil {
					t.Error(err)
				}
			}
			clear(es)
		})
	}
}
