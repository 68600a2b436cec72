package link

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// A get that is being entered while the link ends is over with it.
func TestGetBegunAtTheEnd(t *testing.T) {
	rq, _ := requesterTo(t)
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	f := new(fetch)
	f.set(&Read{Handle: 1, Dst: make([]byte, 8)})
	rq.inboxMu.Lock() // as admit, which has found the link whole
	rq.fail(ErrGone)
	for closed := false; !closed; {
		rq.rmu.Lock()
		closed = rq.fd < 0
		rq.rmu.Unlock()
	}
	time.Sleep(10 * time.Millisecond) // for the end to come as far as it can
	q := outgoing{msg: Message{Handle: 1}, fetch: f}
	rq.enqueueLocked(&q)
	r := Request{requester: rq, seq: q.seq, fetch: f}
	if done, err := r.Wait(ctx); !done || !errors.Is(err, ErrGone) {
		t.Errorf("the get: %v, %v", done, err)
	}
}

// However many goroutines ask at once, no more gets are unanswered than an
// exporter bears: one too many would end the link.
func TestManyGetsAtOnce(t *testing.T) {
	mem := memory(t, 4096)
	p := join(t, false, &Target{Handle: 1, Mem: mem, Read: true, Write: true})
	ctx := t.Context()
	for range 20 {
		var all sync.WaitGroup
		begin := make(chan struct{})
		for range 8 * maxFetches {
			all.Go(func() {
				<-begin
				r, err := p.out.GetAsync(ctx, Read{Handle: 1, Dst: make([]byte, 64)})
				if err == nil {
					_, err = r.Wait(ctx)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		close(begin)
		all.Wait()
	}
}
