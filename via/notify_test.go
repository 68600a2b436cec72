package via_test

import (
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/via"
)

// next waits for a value of a handler.
func next[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(bound):
		t.Fatal("the handler was not called")
	}
	panic("unreachable")
}

// none checks that no handler was called.
func none[T any](t testing.TB, c <-chan T) {
	t.Helper()
	select {
	case v := <-c:
		t.Fatalf("a handler was called once more, with %v", v)
	default:
	}
}

// A handler has one descriptor, which it takes from the queue: one that is complete already, or the
// next one. The program calls nothing meanwhile.
func TestNotify(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		for _, level := range levels {
			a, b, x, y := joined(t, w, level)
			got := make(chan *via.Descriptor, 16)
			h := func(d *via.Descriptor) { got <- d }
			// Registered before the completion: two, served in their order.
			second := make(chan *via.Descriptor, 1)
			want(t, "the first", x.ReceiveNotify(h), 0)
			want(t, "the second", x.ReceiveNotify(func(d *via.Descriptor) { second <- d }), 0)
			r := []*via.Descriptor{a.at(0, 64), a.at(64, 64), a.at(128, 64)}
			for _, d := range r {
				post(t, x.PostReceive(d))
			}
			for i := range r {
				post(t, y.PostSend(b.at(64*i, 64)))
			}
			if d := next(t, got); d != r[0] || d.Status != via.Done|via.OpReceive {
				t.Fatalf("the first handler has %+v", d)
			}
			if d := next(t, second); d != r[1] {
				t.Fatalf("the second handler has %+v", d)
			}
			// Registered after the completion.
			if d := received(t, x, 0); d != r[2] {
				t.Fatalf("the third receive is %+v", d)
			}
			// Complete already, but for those of reliable reception.
			for range r {
				want(t, "SEND", y.SendNotify(h), 0)
				if d := next(t, got); d.Status != via.Done|via.OpSend {
					t.Fatalf("the handler of SENDs has %+v", d)
				}
			}
			// Once only: the next completion is the program's.
			post(t, x.PostReceive(r[0])) // it is the program's again
			post(t, y.PostSend(b.at(0, 64)))
			received(t, x, 0)
			sent(t, y, 0)
			none(t, got)
			none(t, second)
			want(t, "destroy", errorsOf(y.Disconnect(), y.Destroy()), 0)
		}
	})
}

// errorsOf returns the first error.
func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// A handler may register itself again, and post the descriptor again: each message has one call.
func TestNotifyAgain(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		const n = 500
		a, b, x, y := joined(t, w, via.ReliableReception)
		got := make(chan int, n)
		count := 0
		var h func(d *via.Descriptor)
		h = func(d *via.Descriptor) {
			count++
			if d.Status&via.ErrorMask != 0 {
				got <- -1
				return
			}
			if errorsOf(x.ReceiveNotify(h), x.PostReceive(d)) != nil {
				count = -2
			}
			got <- count
		}
		want(t, "register", x.ReceiveNotify(h), 0)
		for i := range 8 {
			post(t, x.PostReceive(a.at(64*i, 64)))
		}
		s := b.at(0, 64)
		for i := range n {
			post(t, y.PostSend(s))
			sent(t, y, 0)
			if c := next(t, got); c != i+1 {
				t.Fatalf("call %d for message %d", c, i+1)
			}
		}
		// The descriptors that are flushed have a call, too: of one handler, one.
		want(t, "disconnect", x.Disconnect(), 0)
		if c := next(t, got); c != -1 {
			t.Fatalf("call %d for the flushed receive", c)
		}
		flushed(t, x.ReceiveDone, 7)
		none(t, got)
	})
}

// Handlers of a completion queue: one entry each, in the order of the registrations; those that are
// left are forgotten with the queue.
func TestNotifyCompletionQueue(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		a, b := start(t, w)
		cq, err := a.NewCompletionQueue(16)
		want(t, "create", err, 0)
		x, err := a.NewVI(a.attr(via.ReliableDelivery), cq, cq)
		want(t, "create", err, 0)
		y := b.vi(t, via.ReliableDelivery)
		connect(t, a.listen(t, "cq"), x, y)
		want(t, "handler of an attached queue", x.ReceiveNotify(func(*via.Descriptor) {}), via.ErrInvalidParameter)
		want(t, "handler of an attached queue", x.SendNotify(func(*via.Descriptor) {}), via.ErrInvalidParameter)
		type called struct {
			handler int
			c       via.Completion
		}
		got := make(chan called, 16)
		register := func(i int) {
			want(t, "register", cq.Notify(func(c via.Completion) { got <- called{i, c} }), 0)
		}
		register(0)
		register(1)
		for i := range 3 {
			post(t, x.PostReceive(a.at(64*i, 64)))
		}
		for i := range 3 {
			post(t, y.PostSend(b.at(64*i, 64)))
		}
		for i := range 2 {
			if c := next(t, got); c != (called{i, via.Completion{VI: x, Receive: true}}) {
				t.Fatalf("call %+v", c)
			}
		}
		eventually(t, "the third one has arrived", func() bool { return cq.Entries() == 1 })
		register(2) // there is an entry already
		if c := next(t, got); c != (called{2, via.Completion{VI: x, Receive: true}}) {
			t.Fatalf("call %+v", c)
		}
		for range 3 {
			d, err := x.ReceiveDone()
			checked(t, d, err, via.OpReceive)
		}
		register(3) // and nothing more completes
		want(t, "destroy", errorsOf(x.Disconnect(), x.Destroy(), cq.Destroy()), 0)
		want(t, "register at a destroyed queue", cq.Notify(func(via.Completion) {}), via.ErrInvalidParameter)
		want(t, "close", a.Close(), 0) // waits for calls
		none(t, got)
	})
}

// Handlers that are nil, too many, or of what is destroyed are refused. Those that are left when a VI
// is destroyed are forgotten.
func TestNotifyRefused(t *testing.T) {
	a, _ := start(t, ways[0])
	x := a.vi(t, via.Unreliable)
	got := make(chan *via.Descriptor, 1)
	h := func(d *via.Descriptor) { got <- d }
	cq, err := a.NewCompletionQueue(1)
	want(t, "create", err, 0)
	want(t, "nil", x.SendNotify(nil), via.ErrInvalidParameter)
	want(t, "nil", x.ReceiveNotify(nil), via.ErrInvalidParameter)
	want(t, "nil", cq.Notify(nil), via.ErrInvalidParameter)
	for range 1024 {
		want(t, "register", errorsOf(x.ReceiveNotify(h), cq.Notify(func(via.Completion) { got <- nil })), 0)
	}
	want(t, "one too many", x.ReceiveNotify(h), via.ErrResource)
	want(t, "one too many", cq.Notify(func(via.Completion) {}), via.ErrResource)
	want(t, "destroy", x.Destroy(), 0)
	want(t, "of a destroyed VI", x.ReceiveNotify(h), via.ErrInvalidParameter)
	if n := a.Sleepers(); n != 1024 {
		t.Errorf("%d handlers wait, want the completion queue's", n)
	}
	want(t, "close", a.Close(), 0)
	want(t, "of a closed NIC", cq.Notify(func(via.Completion) {}), via.ErrInvalidParameter)
	if n := a.Sleepers(); n != 0 {
		t.Errorf("%d handlers wait for a NIC that is closed", n)
	}
	none(t, got)
}

// A handler costs no memory of the Go heap for a message.
func TestNotifyAllocations(t *testing.T) {
	if race {
		t.Skip("the race detector allocates")
	}
	a, b, x, y := joined(t, ways[0], via.ReliableDelivery)
	s, r := b.at(0, 64), a.at(0, 64)
	got := make(chan struct{}, 1)
	h := func(*via.Descriptor) { got <- struct{}{} }
	ctx := within(t)
	once := func() {
		if x.ReceiveNotify(h) != nil || x.PostReceive(r) != nil || y.PostSend(s) != nil {
			t.Fatal("post")
		}
		<-got
		if _, err := y.SendWait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for range 2000 {
		once()
	}
	if n := testing.AllocsPerRun(2000, once); n > 0 {
		t.Errorf("%v allocations for a message", n)
	}
}
