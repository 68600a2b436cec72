package link

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// Where a handler has blocked notifications when it returns, those of other links do not run.
func TestHandlerThatBlocksTheOthers(t *testing.T) {
	e, own := engine(t)
	var ranA, ranB atomic.Uint32
	var block atomic.Bool
	entered, put := make(chan struct{}), make(chan struct{})
	a, pa := engine(t)
	b, pb := engine(t)
	ma := linkTo(t, a, pa, e, own, func(_ int, w uint32, _ []byte) {
		if w == 1 {
			entered <- struct{}{}
			<-put
			e.Block()
			block.Store(true)
		}
		ranA.Add(1)
	})
	var bad atomic.Uint32
	mb := linkTo(t, b, pb, e, own, func(int, uint32, []byte) {
		if block.Load() {
			bad.Add(1)
		}
		ranB.Add(1)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	send := func(m *Mapped, w byte) {
		if err := m.SendNotify(ctx, 0, []byte{w, 0, 0, 0}); err != nil {
			t.Fatal(err)
		}
	}
	until := func(c *atomic.Uint32, n uint32) {
		for c.Load() < n {
			if ctx.Err() != nil {
				t.Fatal("not run")
			}
			time.Sleep(10 * time.Microsecond)
		}
	}
	for i := range uint32(20) {
		send(ma, 0)
		until(&ranA, 2*i+1)
		send(mb, 0)
		until(&ranB, 2*i+1)
		send(ma, 1)
		<-entered
		send(mb, 0)
		put <- struct{}{}
		until(&ranA, 2*i+2)
		for !e.Blocked() { // the handler's level counts from when it has returned
			if ctx.Err() != nil {
				t.Fatal("not blocked")
			}
			time.Sleep(10 * time.Microsecond)
		}
		time.Sleep(2 * time.Millisecond)
		if bad.Load() != 0 {
			t.Fatalf("round %d: a handler ran while they were blocked", i)
		}
		block.Store(false)
		if _, err := e.Unblock(); err != nil {
			t.Fatal(err)
		}
		until(&ranB, 2*i+2)
	}
}

// Block returns also when another goroutine unblocks before it does.
func TestBlockAndOneUnblockTooMany(t *testing.T) {
	n := newNotifier(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for i := range 300 {
		n.notify(t)
		done := make(chan struct{})
		go func() {
			n.b.Block()
			close(done)
		}()
		for !n.b.Blocked() {
			select {
			case <-done:
			default:
			}
		}
		if _, err := n.b.Unblock(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
		case <-ctx.Done():
			t.Fatalf("round %d: Block does not return", i)
		}
		if _, err := n.b.Unblock(); err != nil {
			t.Fatal(err)
		}
	}
}

// Notifications that run after the link's end are not counted for the next link in its place.
func TestLateNotesAreNoOtherLinks(t *testing.T) {
	n := newNotifier(t)
	n.notify(t)
	n.b.Block()
	for range 10 {
		if err := n.m.SendNotify(t.Context(), 0, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
	}
	n.out.Close()
	if err := <-n.lost; err == nil {
		t.Error("a link has ended for no reason")
	}
	n.b.mu.Lock()
	for len(n.b.streams) > 0 {
		n.b.noStreams.Wait()
	}
	n.b.mu.Unlock()
	if _, err := n.b.Unblock(); err != nil {
		t.Fatal(err)
	}
	for n.ran.Load() < 11 {
		time.Sleep(10 * time.Microsecond)
	}
	n.b.Block() // the last one's count is in
	fa, fb, err := unix.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fa) })
	rq, err := NewRequester(n.b, fb, nil, Terms{}, func(uint32, uint64, error) {}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	rq.Describe(shmlayout.LinkPeer{Node: "n", PID: 1})
	links, ended := counts(t, n.b)
	if got := links[0].Counts[shmlayout.Notifications]; got != 0 {
		t.Errorf("a new link begins with %d notifications", got)
	}
	if got := ended.Exports[shmlayout.Notifications]; got != 11 {
		t.Errorf("%d notifications of the link that has ended, want 11", got)
	}
}

// counts are what an engine has counted of its links, and of those that have ended.
func counts(t *testing.T, e *Engine) ([]shmlayout.Link, shmlayout.Ended) {
	t.Helper()
	fd, err := e.Counters()
	if err != nil {
		t.Fatal(err)
	}
	r, err := shmlayout.OpenCounters(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	l, ended, err := r.Read()
	if err != nil {
		t.Fatal(err)
	}
	return l, ended
}
