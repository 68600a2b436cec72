package link

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// The tail prober does not wait for an active writer, but the time counts.
func TestActiveWriterIsNotProbed(t *testing.T) {
	rq, _ := requesterTo(t)
	rq.tmu.Lock()
	for n := 1; n < 8; n++ {
		if !rq.tailProbe.probe(probeInterval) { // which would wait for ever if it looked
			t.Error("a link with an active writer is not probed any more")
		}
	}
	rq.tmu.Unlock()
	if rq.tailProbe.busyTime != 7*probeInterval {
		t.Errorf("it was not looked at for %v, want %v", rq.tailProbe.busyTime, 7*probeInterval)
	}
	if rq.tailProbe.probe(probeInterval); rq.tailProbe.busyTime != 0 {
		t.Errorf("it was looked at, and %v are left", rq.tailProbe.busyTime)
	}
}

// An exporter that acknowledges a get, as it does when it begins to answer, and then says nothing
// more is noticed like one that says nothing at all.
func TestSilenceBeforeAnAnswer(t *testing.T) {
	for _, limit := range []time.Duration{0, 100 * time.Millisecond} {
		e, fd, far := halfLink(t)
		terms := Terms{SilenceLimit: 100 * time.Millisecond, ReconnectLimit: limit}
		terms.Redial = func(context.Context, uint64, uint64, uint32) (int, Cipher, wire.Answer, error) {
			return -1, nil, wire.Answer{}, errors.New("no way there")
		}
		rq, err := NewRequester(e, fd, nil, terms, func(uint32, uint64, error) {}, func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
		got := make(chan error, 1)
		go func() { got <- rq.Get(ctx, Read{Handle: 1, Dst: make([]byte, 64)}) }()
		h := recvRaw(t, far)
		sendRaw(t, far, wire.Header{Type: wire.Ack, Ack: h.Seq}, nil)
		if err := <-got; !errors.Is(err, ErrGone) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("limit %v: a get that is never answered: %v", limit, err)
		}
		stop()
	}
}

// The notice of a resumed link comes before that of its next loss: the loss waits for the link's
// locks.
func TestResumedIsToldUnderTheLocks(t *testing.T) {
	e, fd, _ := halfLink(t)
	var rq *Requester
	free := make(chan bool, 2)
	terms := Terms{ReconnectLimit: time.Hour, OnConnChange: func(shmlayout.ConnState, error) {
		f := rq.rmu.TryLock()
		if f {
			rq.rmu.Unlock()
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
	if rq, err = NewRequester(e, fd, nil, terms, func(uint32, uint64, error) {}, func(error) {}); err != nil {
		t.Fatal(err)
	}
	rq.connLost(errors.New("as if it was lost"))
	for _, what := range []string{"lost", "resumed"} {
		if <-free {
			t.Errorf("another thread may come in between when it is told that the link was %s", what)
		}
	}
}
