package link

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// A wait whose condition held is over, though it does not hold any more.
func TestWaitForTransientCondition(t *testing.T) {
	e, _ := engine(t)
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	var flag atomic.Uint32
	over := make(chan error, 1)
	go func() {
		over <- e.Wait(ctx, wait.Cond{Until: func() bool { return flag.CompareAndSwap(1, 0) }, LocalOnly: true})
	}()
	for !e.sleepers.Asleep() {
		runtime.Gosched()
	}
	flag.Store(1)
	e.Wake()
	if err := <-over; err != nil {
		t.Errorf("a wait for a flag that it took: %v", err)
	}
}

// A wait ends with its context though each look finds that a peer has sent something.
func TestWaitWhileAPeerNeverStops(t *testing.T) {
	e, fd, far := halfLink(t)
	rs, err := NewResponder(e, fd, nil, Terms{}, nil, nil, func(uint32) {}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	e.markHot(&rs.stream)
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	late := time.Now().Add(5 * time.Second)
	err = e.Wait(ctx, wait.Cond{Until: func() bool {
		sendRaw(t, far, wire.Header{Type: wire.Bell}, nil)
		return time.Now().After(late)
	}})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a wait that looks on and on: %v", err)
	}
}

// A waiter begins with plain looks only where it has nothing else to poll.
func TestPlainLooksNeedOnlyMemory(t *testing.T) {
	c := newCopier(t)
	if c.a.PlainLooks() == 0 {
		t.Error("memory is alone, and there are no plain looks")
	}
	c.send(t, 0, false)
	if c.a.PlainLooks() != 0 {
		t.Error("there are plain looks while a copy is left to waiters")
	}
	if err := c.out.backlog.wait(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	c.a.hot[0].Store(&c.out.stream)
	if c.a.PlainLooks() != 0 {
		t.Error("there are plain looks while a link is busy")
	}
	c.a.hot[0].Store(nil)
	if c.a.PlainLooks() == 0 {
		t.Error("there are no plain looks any more")
	}
}
