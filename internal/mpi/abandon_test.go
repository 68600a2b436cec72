package mpi

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var errGoneInTest = errors.New("test: the rank is gone")

// loses has a rank find that another one is gone.
func (e *Engine) loses(rank int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.peers[rank].fail(errGoneInTest)
}

// inCollective makes a receive one of a collective.
func (s *Source) inCollective() *Source {
	s.Collective = true
	return s
}

// inCollective makes a send one of a collective.
func (t *Target) inCollective() *Target {
	t.Collective = true
	return t
}

// lives fails the test if a rank takes another one for gone, or cannot exchange messages with it.
func lives(t *testing.T, a, b *Engine) {
	t.Helper()
	ctx := within(t)
	for _, n := range []int{0, 100_000} {
		for _, p := range [][2]*Engine{{a, b}, {b, a}} {
			s, err := p[0].Isend(p[0].to(p[1].rank, 77), fill(n, 7), Standard)
			if err != nil {
				t.Fatalf("rank %d sends to rank %d, which lives: %v", p[0].rank, p[1].rank, err)
			}
			in := make([]byte, n)
			if _, err := p[1].Recv(ctx, p[1].from(p[0].rank, 77), in); err != nil {
				t.Fatalf("rank %d receives from rank %d, which lives: %v", p[1].rank, p[0].rank, err)
			}
			if string(in) != string(fill(n, 7)) {
				t.Error("other data has arrived")
			}
			if _, err := s.Wait(ctx); err != nil {
				t.Error(err)
			}
		}
	}
	for _, e := range []*Engine{a, b} {
		until(ctx, t, func() bool { e.step(); return e.Stats().Requests == 0 })
	}
}

// until waits until a condition holds.
func until(ctx context.Context, t *testing.T, ok func() bool) {
	t.Helper()
	for !ok() {
		if ctx.Err() != nil {
			t.Fatal("it does not come to that")
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// A receive that begins after a receive of a collective has failed does not get that one's data.
func TestFailedReceiveKeepsItsIndex(t *testing.T) {
	es := job(t, ways[0], 3)
	a, b := es[0], es[1]
	const n = 20_000
	var sends []*Request
	for tag := 1; tag <= 2; tag++ {
		s, err := b.Isend(b.to(0, tag), fill(n, tag), Standard)
		if err != nil {
			t.Fatal(err)
		}
		sends = append(sends, s)
	}
	until(within(t), t, func() bool { a.step(); return a.Stats().Unexpected == 2 })
	b.mu.Lock() // b takes no answers for a while
	first, err := a.Irecv(a.from(1, 1).inCollective(), make([]byte, n))
	if err != nil {
		b.mu.Unlock()
		t.Fatal(err)
	}
	a.loses(2)
	in := make([]byte, n)
	second, err := a.Irecv(a.from(1, 2), in)
	b.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Wait(within(t)); !isClass(err, ErrProcFailed) {
		t.Errorf("the receive of the collective: %v", err)
	}
	if _, err := second.Wait(within(t)); err != nil {
		t.Fatal(err)
	}
	if string(in) != string(fill(n, 2)) {
		t.Error("the second receive has got other data")
	}
	for _, s := range sends {
		if _, err := s.Wait(within(t)); err != nil {
			t.Error(err)
		}
	}
	lives(t, a, b)
}

// A receive of a collective that fails while data comes in drops the rest. Its sender lives.
func TestReceiveFailsWhileDataArrives(t *testing.T) {
	eachWay(t, alone, func(t *testing.T, w way) {
		es := job(t, w, 3)
		a, b := es[0], es[1]
		lives(t, a, b)
		const n = 4 << 20
		r, err := a.Irecv(a.from(1, 1).inCollective(), make([]byte, n))
		if err != nil {
			t.Fatal(err)
		}
		ctx := within(t)
		a.mu.Lock()
		s, err := b.Isend(b.to(0, 1), fill(n, 1), Standard)
		for err == nil && r.off == 0 && ctx.Err() == nil { // a's lock is held, so it takes packets here alone
			a.pollAll()
		}
		if err == nil {
			if r.state != matched {
				t.Errorf("the receive is in state %d", r.state)
			}
			a.peers[2].fail(errGoneInTest)
		}
		a.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Wait(within(t)); !isClass(err, ErrProcFailed) {
			t.Errorf("the receive: %v", err)
		}
		if _, err := s.Wait(within(t)); err != nil {
			t.Errorf("the send: %v", err)
		}
		lives(t, a, b)
	})
}

// A send of a collective that fails in any state leaves its receiver in order.
func TestSendFailsInEachState(t *testing.T) {
	eachWay(t, alone, func(t *testing.T, w way) {
		const n = 8 << 20
		for _, c := range []struct {
			name  string
			state int
		}{{"queued", queued}, {"left", left}, {"streaming", streaming}} {
			t.Run(c.name, func(t *testing.T) {
				es := job(t, w, 3)
				a, b := es[0], es[1]
				lives(t, a, b)
				in := make([]byte, n)
				r, err := b.Irecv(b.from(0, 1), in)
				if err != nil {
					t.Fatal(err)
				}
				out := fill(n, 1)
				ctx := within(t)
				a.mu.Lock()
				pr := a.peers[1]
				unblock := func() {}
				if c.state == queued { // no room for the envelope
					unblock = block(pr.port)
				}
				s := a.newRequest(false)
				a.startSend(s, a.to(1, 1).inCollective(), pr, out, Standard)
				for c.state == streaming && s.off == 0 && ctx.Err() == nil {
					a.pollAll()
				}
				if s.state != c.state {
					t.Errorf("the send is in state %d, want %d", s.state, c.state)
				}
				a.peers[2].fail(errGoneInTest)
				unblock()
				a.mu.Unlock()
				if _, err := s.Wait(within(t)); !isClass(err, ErrProcFailed) {
					t.Errorf("the send: %v", err)
				}
				clear(out) // it is the caller's again
				if c.state == queued {
					if !r.Cancel() {
						t.Error("a message has come whose send has failed before its envelope left")
					}
				} else if _, err := r.Wait(within(t)); err != nil {
					t.Errorf("the receive: %v", err)
				} else if string(in) != string(fill(n, 1)) {
					t.Error("the receive has got other data")
				}
				lives(t, a, b)
			})
		}
	})
}

// A blocking send of a collective that fails is not used for another message while its peer names it.
func TestFailedSendIsNotRecycled(t *testing.T) {
	es := job(t, ways[0], 3)
	a, b := es[0], es[1]
	const n = 100_000
	failed := make(chan error)
	go func() { failed <- a.Send(within(t), a.to(1, 1).inCollective(), fill(n, 1), Standard) }()
	until(within(t), t, func() bool { b.step(); return b.Stats().Unexpected == 1 })
	a.mu.Lock() // a takes no answers
	in := make([]byte, n)
	first, err := b.Irecv(b.from(0, 1), in) // so the message is matched, and is not withdrawn
	a.peers[2].fail(errGoneInTest)
	a.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !isClass(err, ErrProcFailed) {
		t.Errorf("the send: %v", err)
	}
	again := make(chan error)
	go func() { again <- a.Send(within(t), a.to(1, 2), fill(n, 2), Standard) }()
	other := make([]byte, n)
	if _, err := b.Recv(within(t), b.from(0, 2), other); err != nil {
		t.Fatal(err)
	}
	checkFill(t, other, 2)
	if _, err := first.Wait(within(t)); err != nil {
		t.Fatal(err)
	}
	checkFill(t, in, 1)
	if err := <-again; err != nil {
		t.Error(err)
	}
	lives(t, a, b)
}

// An index that a peer names late does not name a later request.
func TestIndexHasAGeneration(t *testing.T) {
	es := job(t, ways[0], 2)
	a := es[0]
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.newRequest(false)
	old.register()
	index := old.index
	if a.lookUp(index) != old {
		t.Error("an index does not name its request")
	}
	old.unregister()
	r := a.newRequest(false)
	r.register()
	if r.index == index || a.lookUp(index) != nil || a.lookUp(r.index) != r {
		t.Errorf("index %#x is used again at once, by %#x", index, r.index)
	}
	r.unregister()
}

// A send that was given up, and that no receive matches, does not keep the ranks from finishing.
func TestFinishAfterAbandonedSend(t *testing.T) {
	overWays(t, func(t *testing.T, w way) {
		es := job(t, w, 2)
		a, b := es[0], es[1]
		ctx, stop := context.WithCancel(within(t))
		ended := make(chan error)
		go func() { ended <- a.Send(ctx, a.to(1, 1), fill(100_000, 1), Standard) }()
		until(within(t), t, func() bool { b.step(); return b.Stats().Unexpected == 1 })
		stop()
		if err := <-ended; !isClass(err, ErrCanceled) {
			t.Errorf("the send: %v", err)
		}
		limit, stop := context.WithTimeout(context.Background(), 20*time.Second)
		defer stop()
		errs := make(chan error)
		for _, e := range es {
			go func() { errs <- e.Finish(limit, nil) }()
		}
		for range es {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
}

// A rank that finds a violation takes no packets of its peer any more. The peer learns it, and does not
// wait for ever.
func TestViolationEndsBothSides(t *testing.T) {
	overWays(t, func(t *testing.T, w way) {
		es := job(t, w, 2)
		a, b := es[0], es[1]
		out, err := b.Isend(b.to(0, 1), fill(100_000, 1), Standard)
		if err != nil {
			t.Fatal(err)
		}
		in, err := b.Irecv(b.from(0, 1), make([]byte, 8))
		if err != nil {
			t.Fatal(err)
		}
		b.mu.Lock()
		pr := b.peers[0]
		pr.control = append(pr.control, Header{kind: kindData, rreq: 12345})
		pr.pump()
		b.mu.Unlock()
		limit, stop := context.WithTimeout(within(t), 20*time.Second)
		defer stop()
		for what, r := range map[string]*Request{"send": out, "receive": in} {
			if _, err := r.Wait(limit); !isClass(err, ErrProcFailed) {
				t.Errorf("a %s of the rank that is refused: %v", what, err)
			}
		}
		if err := a.Send(limit, a.to(1, 1), nil, Standard); !isClass(err, ErrProcFailed) {
			t.Errorf("a send of the rank that refuses: %v", err)
		}
	})
}

// A look for a message that no rank sends any more is an error, as a probe is.
func TestIprobeOfARankThatIsGone(t *testing.T) {
	es := job(t, ways[0], 3)
	a := es[0]
	for _, source := range []int{2, AnySource} {
		if _, _, ok, err := a.Iprobe(a.from(source, 1), false); ok || err != nil {
			t.Errorf("source %d, which lives: %v, %v", source, ok, err)
		}
	}
	a.loses(2)
	for source, gone := range map[int]bool{1: false, 2: true, AnySource: true} {
		_, _, ok, err := a.Iprobe(a.from(source, 1), false)
		if ok || isClass(err, ErrProcFailed) != gone || (err != nil) != gone {
			t.Errorf("source %d: %v, %v", source, ok, err)
		}
	}
}

// A rank whose Finish has ended with its context knows of ranks that went meanwhile.
func TestFinishGivenUpKnowsWhoIsGone(t *testing.T) {
	es := job(t, ways[0], 3)
	a := es[0]
	ctx, stop := context.WithTimeout(within(t), 100*time.Millisecond)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- a.Finish(ctx, nil) }()
	until(within(t), t, func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.finishing })
	a.loses(2)
	if err := <-done; err == nil {
		t.Fatal("it has ended")
	}
	if _, err := a.Recv(within(t), a.from(AnySource, 1), nil); !isClass(err, ErrProcFailed) {
		t.Errorf("a receive from any rank: %v", err)
	}
}

// What a refused peer writes afterwards is no news, and nothing is stored over the refusal.
func TestRefusalStays(t *testing.T) {
	es := job(t, ways[0], 2)
	meet(t, es)
	a := es[0]
	a.loses(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.peers[1].port.(*ring)
	r.seenHead.Store(r.head.Load() - 1)
	r.nextTold = r.next - uint32(r.size)
	if r.News() || r.owesTaken() {
		t.Errorf("news %v, owes %v", r.News(), r.owesTaken())
	}
}

// A receive whose context ends as its message arrives either gets the message, or leaves it to the next
// receive.
func TestGivenUpReceiveLosesNothing(t *testing.T) {
	for _, probed := range []bool{false, true} {
		t.Run(fmt.Sprintf("probed=%t", probed), func(t *testing.T) {
			es := job(t, ways[0], 2)
			a, b := es[0], es[1]
			ctx := within(t)
			rnd := rand.New(rand.NewPCG(1, 2))
			in, given := make([]byte, 8), 0
			receive := func(ctx context.Context) (err error) {
				if probed {
					var m *Message
					if _, m, err = b.Probe(ctx, b.from(0, 0), true); err == nil {
						_, err = m.Recv(ctx, in)
					}
					return err
				}
				_, err = b.Recv(ctx, b.from(0, 0), in)
				return err
			}
			for i := range 5000 {
				short, stop := context.WithCancel(ctx)
				var wg sync.WaitGroup
				before, after := rnd.IntN(3000), rnd.IntN(300)
				wg.Go(func() {
					spinFor(before)
					if err := a.Send(ctx, a.to(1, 0), fill(8, i), Standard); err != nil {
						t.Error(err)
					}
					spinFor(after)
					stop()
				})
				err := receive(short)
				wg.Wait()
				if isClass(err, ErrCanceled) {
					given++
					err = receive(ctx)
				}
				if err != nil || string(in) != string(fill(8, i)) {
					t.Fatalf("message %d is lost: %v", i, err)
				}
			}
			t.Logf("%d receives were given up", given)
		})
	}
}

// spinFor passes a little time.
func spinFor(n int) {
	var x atomic.Uint32
	for range n {
		x.Add(1)
	}
}
