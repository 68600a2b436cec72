package link

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A get that is being entered while the link ends is over with it.
func TestGetBegunAtTheEnd(t *testing.T) {
	o, _ := importer(t)
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	f := new(fetch)
	f.set(&Read{Handle: 1, Dst: make([]byte, 8)})
	o.imu.Lock() // as admit, which has found the link whole
	o.fail(ErrGone)
	for closed := false; !closed; {
		o.rmu.Lock()
		closed = o.fd < 0
		o.rmu.Unlock()
	}
	time.Sleep(10 * time.Millisecond) // for the end to come as far as it can
	q := outgoing{m: Message{Handle: 1}, f: f}
	o.enter(&q)
	r := Request{o: o, seq: q.seq, f: f}
	if done, err := r.Wait(ctx); !done || !errors.Is(err, ErrGone) {
		t.Errorf("the get: %v, %v", done, err)
	}
}
