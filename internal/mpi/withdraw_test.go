package mpi

import (
	"context"
	"errors"
	"testing"
)

// A send that was given up leaves nothing at either rank when no receive has matched it, however many
// there are.
func TestGivenUpSendsLeaveNothing(t *testing.T) {
	overWays(t, func(t *testing.T, w way) {
		es := job(t, w, 2)
		a, b := es[0], es[1]
		ended, stop := context.WithCancel(within(t))
		stop()
		const n = 200
		for i := range n {
			if err := a.Send(ended, a.to(1, 1), fill(20_000, i), Standard); !isClass(err, ErrCanceled) || !errors.Is(err, context.Canceled) {
				t.Fatalf("a send whose context has ended: %v", err)
			}
		}
		until(within(t), t, func() bool {
			a.step()
			b.step()
			return a.Stats().Requests == 0 && b.Stats().Unexpected == 0
		})
		a.mu.Lock()
		asked := a.peers[1].asked
		a.mu.Unlock()
		b.mu.Lock()
		askers := b.peers[0].askers
		b.mu.Unlock()
		if asked != 0 || askers != 0 {
			t.Errorf("%d envelopes count as not answered at the sender, and %d at the receiver", asked, askers)
		}
		lives(t, a, b)
	})
}

// Cancel of a send in each state: its message is received whole, or never, and the status says which.
func TestCancelSend(t *testing.T) {
	overWays(t, func(t *testing.T, w way) {
		es := job(t, w, 2)
		a, b := es[0], es[1]
		ctx := within(t)
		const n = 20_000
		t.Run("not matched", func(t *testing.T) {
			s, err := a.Isend(a.to(1, 1), fill(n, 1), Standard)
			if err != nil {
				t.Fatal(err)
			}
			until(ctx, t, func() bool { b.step(); return b.Stats().Unexpected == 1 })
			if s.Cancel() {
				t.Error("it is cancelled before the receiver has answered")
			}
			s.Cancel() // again: it is asked once
			if st, err := s.Wait(ctx); err != nil || !st.Cancelled {
				t.Errorf("status %+v, %v", st, err)
			}
			if _, _, ok, err := b.Iprobe(b.from(0, 1), false); ok || err != nil {
				t.Errorf("the message is there: %v, %v", ok, err)
			}
		})
		t.Run("matched meanwhile", func(t *testing.T) {
			s, err := a.Isend(a.to(1, 1), fill(n, 1), Standard)
			if err != nil {
				t.Fatal(err)
			}
			until(ctx, t, func() bool { b.step(); return b.Stats().Unexpected == 1 })
			a.mu.Lock() // a takes no answers
			in := make([]byte, n)
			r, err := b.Irecv(b.from(0, 1), in)
			gone := s.withdraw()
			a.mu.Unlock()
			if err != nil || gone {
				t.Fatal(gone, err)
			}
			if st, err := s.Wait(ctx); err != nil || st.Cancelled {
				t.Errorf("status %+v, %v", st, err)
			}
			if _, err := r.Wait(ctx); err != nil {
				t.Error(err)
			}
			checkFill(t, in, 1)
		})
		t.Run("taken by a matched probe", func(t *testing.T) {
			s, err := a.Isend(a.to(1, 1), fill(n, 1), Standard)
			if err != nil {
				t.Fatal(err)
			}
			_, m, err := b.Probe(ctx, b.from(0, 1), true)
			if err != nil {
				t.Fatal(err)
			}
			if s.Cancel() {
				t.Error("it is cancelled")
			}
			in := make([]byte, n)
			if _, err := m.Recv(ctx, in); err != nil {
				t.Fatal(err)
			}
			checkFill(t, in, 1)
			if st, err := s.Wait(ctx); err != nil || st.Cancelled || s.Cancel() {
				t.Errorf("status %+v, %v", st, err)
			}
		})
		t.Run("no room", func(t *testing.T) {
			a.mu.Lock()
			unblock := block(a.peers[1].port)
			s := a.newRequest(false)
			a.startSend(s, a.to(1, 1), a.peers[1], fill(n, 1), Standard)
			a.mu.Unlock()
			if !s.Cancel() || s.Cancel() {
				t.Error("it is not cancelled once")
			}
			a.mu.Lock()
			unblock()
			a.mu.Unlock()
			if st, err := s.Wait(ctx); err != nil || !st.Cancelled {
				t.Errorf("status %+v, %v", st, err)
			}
		})
		t.Run("self", func(t *testing.T) {
			s, err := a.Isend(a.to(0, 1), fill(n, 1), Standard)
			if err != nil {
				t.Fatal(err)
			}
			if !s.Cancel() || a.Stats().Unexpected != 0 {
				t.Error("it is not cancelled")
			}
			if st, err := s.Wait(ctx); err != nil || !st.Cancelled {
				t.Errorf("status %+v, %v", st, err)
			}
		})
		lives(t, a, b)
	})
}

// The memory of a send that fails is copied when its caller asks for the result, and not by the goroutine
// that finds the failure, which holds the lock of all ranks' messages.
func TestAbandonCopiesNothingUnderTheLock(t *testing.T) {
	es := job(t, ways[0], 3)
	a, b := es[0], es[1]
	const n = 1 << 20
	ctx := within(t)
	in, out := make([]byte, n), fill(n, 1)
	s, err := a.Isend(a.to(1, 1).inCollective(), out, Standard)
	if err != nil {
		t.Fatal(err)
	}
	until(ctx, t, func() bool { b.step(); return b.Stats().Unexpected == 1 })
	b.mu.Lock() // b answers nothing
	a.loses(2)
	a.mu.Lock()
	if s.detached || &s.buf[0] != &out[0] {
		t.Error("the lock's holder has copied the message")
	}
	a.mu.Unlock()
	if _, err := s.Wait(ctx); !isClass(err, ErrProcFailed) {
		t.Errorf("the send: %v", err)
	}
	a.mu.Lock()
	if !s.detached || &s.buf[0] == &out[0] {
		t.Error("the caller has its result, and its memory is still in use")
	}
	a.mu.Unlock()
	clear(out)
	b.mu.Unlock()
	until(ctx, t, func() bool { a.step(); b.step(); return a.Stats().Requests == 0 })
	if _, _, ok, err := b.Iprobe(b.from(0, 1), false); ok || err != nil {
		t.Errorf("the message was not withdrawn: %v, %v", ok, err)
	}
	r, err := b.Irecv(b.from(0, 1), in)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Cancel() {
		t.Error("a receive has got the message that was withdrawn")
	}
	lives(t, a, b)
}

// A wait that ends with its context leaves the request to go on. A call that ends with it is over.
func TestPendingAndCanceled(t *testing.T) {
	es := job(t, ways[0], 2)
	a, b := es[0], es[1]
	ended, stop := context.WithCancel(within(t))
	stop()
	in := make([]byte, 8)
	r, err := a.Irecv(a.from(1, 1), in)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(ended); !isClass(err, ErrPending) {
		t.Errorf("a wait: %v", err)
	}
	if _, err := WaitAny(ended, []*Request{nil, r}); !isClass(err, ErrPending) {
		t.Errorf("a wait for any: %v", err)
	}
	if _, err := r.Result(); !isClass(err, ErrPending) {
		t.Errorf("the result of a request that is not over: %v", err)
	}
	if err := b.Send(within(t), b.to(0, 1), fill(8, 5), Standard); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(within(t)); err != nil { // it has gone on
		t.Error(err)
	}
	checkFill(t, in, 5)
	over := map[string]func() error{
		"Recv":  func() error { _, err := a.Recv(ended, a.from(1, 1), in); return err },
		"Send":  func() error { return a.Send(ended, a.to(1, 1), in, Synchronous) },
		"Probe": func() error { _, _, err := a.Probe(ended, a.from(1, 1), false); return err },
		"Complete": func() error {
			q, err := a.Irecv(a.from(1, 1), in)
			if err == nil {
				_, err = q.Complete(ended)
			}
			return err
		},
	}
	for what, f := range over {
		if err := f(); !isClass(err, ErrCanceled) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
	}
	until(within(t), t, func() bool { a.step(); b.step(); return a.Stats().Requests == 0 })
	if s := a.Stats(); s.Posted != 0 {
		t.Errorf("calls that are over have left %+v", s)
	}
}

// A rank sends only so many envelopes without data, and the others take no more. The rest waits, in
// order, and the data of those that are matched goes on.
func TestEnvelopesAreBounded(t *testing.T) {
	overWays(t, func(t *testing.T, w way) {
		es := job(t, w, 2)
		a, b := es[0], es[1]
		ctx := within(t)
		a.mu.Lock()
		a.peers[1].asked += maxAsked - 2 // all but two are in use
		a.mu.Unlock()
		const n, size = 10, 20_000
		var rs []*Request
		for i := range n {
			r, err := a.Isend(a.to(1, i%2), fill(size, i), Standard)
			if err != nil {
				t.Fatal(err)
			}
			rs = append(rs, r)
		}
		if _, _, err := b.Probe(ctx, b.from(0, 1), false); err != nil {
			t.Fatal(err)
		}
		if s := b.Stats(); s.Unexpected != 2 {
			t.Errorf("%d envelopes have come, want 2", s.Unexpected)
		}
		for i := range n {
			in := make([]byte, size)
			if _, err := b.Recv(ctx, b.from(0, i%2), in); err != nil {
				t.Fatal(err)
			}
			checkFill(t, in, i)
			if _, err := rs[i].Wait(ctx); err != nil {
				t.Fatal(err)
			}
		}
		a.mu.Lock()
		a.peers[1].asked -= maxAsked - 2
		if a.peers[1].asked != 0 {
			t.Errorf("%d envelopes are not answered", a.peers[1].asked)
		}
		a.mu.Unlock()
	})
}

// A rank that sends more envelopes than it may is gone, and what it has sent takes no memory.
func TestHostileEnvelopes(t *testing.T) {
	es := job(t, ways[0], 2)
	meet(t, es)
	a, b := es[0], es[1]
	ctx := within(t)
	gone := func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.peers[1].err != nil
	}
	most := 0
	for i := 0; !gone() && ctx.Err() == nil; i++ {
		b.mu.Lock()
		h := Header{kind: kindRTS, source: 1, length: 1, sreq: uint32(i + 1)}
		ok := i > maxAsked || b.peers[0].port.Send(&h, nil)
		b.mu.Unlock()
		if !ok {
			i--
		}
		a.step()
		b.step()
		most = max(most, a.Stats().Unexpected)
	}
	if ctx.Err() != nil {
		t.Fatal("the rank that floods is not gone")
	}
	if most > maxAsked {
		t.Errorf("%d envelopes were kept, %d are allowed", most, maxAsked)
	}
	if s := a.Stats(); s.Unexpected != 0 {
		t.Errorf("%d envelopes of a rank that is gone are kept", s.Unexpected)
	}
	for _, e := range es { // they do not both come to Finalize
		if err := e.release(); err != nil {
			t.Error(err)
		}
	}
	clear(es)
}

// A rank that says it has forgotten what was not withdrawn is gone. To withdraw what is not there is
// no error: an answer may be under way.
func TestFalseWithdrawals(t *testing.T) {
	es := job(t, ways[0], 2)
	meet(t, es)
	a, b := es[0], es[1]
	ctx := within(t)
	forge := func(h Header) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !b.peers[0].port.Send(&h, nil) {
			t.Fatal("there is no room")
		}
	}
	forge(Header{kind: kindWithdraw, sreq: 77})
	lives(t, a, b)
	s, err := a.Isend(a.to(1, 1), fill(20_000, 1), Standard)
	if err != nil {
		t.Fatal(err)
	}
	forge(Header{kind: kindWithdrawn, sreq: s.index})
	if _, err := s.Wait(ctx); !isClass(err, ErrProcFailed) {
		t.Errorf("the send: %v", err)
	}
	for _, e := range es {
		if err := e.release(); err != nil {
			t.Error(err)
		}
	}
	clear(es)
}
