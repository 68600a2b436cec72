package link

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// An exporter that acknowledges a get, as it does when it begins to answer, and then says nothing more is
// noticed like one that says nothing at all.
func TestSilenceBeforeAnAnswer(t *testing.T) {
	for _, limit := range []time.Duration{0, 100 * time.Millisecond} {
		e, fd, far := half(t)
		terms := Terms{Silence: 100 * time.Millisecond, Limit: limit}
		terms.Redial = func(context.Context, uint64, uint64, uint32) (int, Cipher, wire.Answer, error) {
			return -1, nil, wire.Answer{}, errors.New("no way there")
		}
		o, err := NewOut(e, fd, nil, terms, func(uint32, uint64, error) {}, func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
		got := make(chan error, 1)
		go func() { got <- o.Get(ctx, Read{Handle: 1, Dst: make([]byte, 64)}) }()
		h := hear(t, far)
		say(t, far, wire.Header{Type: wire.Ack, Ack: h.Seq}, nil)
		if err := <-got; !errors.Is(err, ErrGone) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("limit %v: a get that is never answered: %v", limit, err)
		}
		stop()
	}
}

// Whoever is told that a link goes on has not been told of its next loss before: that waits for the link's locks.
func TestResumedIsToldUnderTheLocks(t *testing.T) {
	e, fd, _ := half(t)
	var o *Out
	free := make(chan bool, 2)
	terms := Terms{Limit: time.Hour, News: func(bool, error) {
		f := o.rmu.TryLock()
		if f {
			o.rmu.Unlock()
		}
		free <- f
	}}
	next, far, err := unix.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(far)
	terms.Redial = func(context.Context, uint64, uint64, uint32) (int, Cipher, wire.Answer, error) {
		return next, nil, wire.Answer{}, nil
	}
	if o, err = NewOut(e, fd, nil, terms, func(uint32, uint64, error) {}, func(error) {}); err != nil {
		t.Fatal(err)
	}
	o.lose(errors.New("as if it was lost"))
	for _, what := range []string{"lost", "resumed"} {
		if <-free {
			t.Errorf("another thread may come in between when it is told that the link was %s", what)
		}
	}
}
