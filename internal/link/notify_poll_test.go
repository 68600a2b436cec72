package link

import (
	"context"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/shmlayout"
)

// streamNotifier is a link without pages, whose notifications are counted; and how to send one.
func streamNotifier(t *testing.T, handler func(n uint32)) (p *pair, ran *atomic.Uint32, send func()) {
	t.Helper()
	ran = new(atomic.Uint32)
	p = join(t, false, &Target{Handle: 1, Mem: memory(t, 64), Write: true, Notify: func(int, uint32, []byte) { handler(ran.Add(1)) }})
	return p, ran, func() {
		t.Helper()
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		if _, err := p.out.Send(ctx, Message{Handle: 1, Src: make([]byte, 8), Notify: true}); err != nil {
			t.Fatal(err)
		}
	}
}

// The notify poller runs notifications that no other goroutine would see.
func TestNotifyPoller(t *testing.T) {
	over := make(chan struct{})
	p, ran, send := streamNotifier(t, func(n uint32) {
		if n == 2 {
			<-over
		}
	})
	send()
	eventually(t, "the first handler has not run", func() bool { return ran.Load() == 1 })
	q := &p.b.dispatcher
	eventually(t, "the goroutine of the notifications looks on", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.waitingForJobs && p.in.tryTokenDisarmed()
	})
	for !p.in.token.tryRelease() { // unarmed, without a holder
	}
	q.posted.Store(0)
	send()
	time.Sleep(10 * time.Millisecond)
	if n := ran.Load(); n != 1 {
		t.Fatalf("no poll was made, and %d handlers have run", n)
	}
	eventually(t, "the notify poller has not run the second handler", func() bool {
		if q.posted.Load() == 0 {
			p.b.pollAfterHandler()
		}
		return ran.Load() == 2
	})
	eventually(t, "while a handler runs the link is not armed", func() bool { return p.in.readArmed.Load() && !p.b.polling.Load() })
	close(over)
}

// A waiter may poll before the notify poller.
func TestNotifyPollerYields(t *testing.T) {
	e, _ := engine(t)
	e.notifyPoller.deadline = math.MaxInt64
	for range 200 {
		e.notifyPoller.yieldWanted.Store(false)
		e.notifyPoller.active.Store(true)
		e.polling.Store(true)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			for !e.notifyPoller.done() {
				runtime.Gosched()
			}
			e.notifyPoller.active.Store(false)
			e.polling.Store(false)
		}()
		eventually(t, "the notify poller does not yield", e.acquirePoller)
		<-gone
		e.polling.Store(false)
	}
	e.polling.Store(true) // held by a waiter, which does not
	if e.acquirePoller() {
		t.Error("two look at the same time")
	}
	e.polling.Store(false)
}

// All credits come back, also where too few are due for an acknowledgement of their own.
func TestCreditsReturn(t *testing.T) {
	p, ran, send := streamNotifier(t, func(uint32) {})
	p.b.Block()
	const burst = shmlayout.Credits/4 - 1
	for range burst {
		send()
	}
	eventually(t, "not all notifications have come", func() bool {
		p.in.notifyMu.Lock()
		defer p.in.notifyMu.Unlock()
		return len(p.in.notifications) == burst
	})
	if _, err := p.b.Unblock(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "not all credits have come back", func() bool { return p.out.creditsReturned.Load() == burst })
	if n := ran.Load(); n != burst {
		t.Errorf("%d handlers have run, %d credits are back", n, burst)
	}
	for i := range uint32(3 * shmlayout.Credits) {
		send()
		eventually(t, "a handler has not run", func() bool { return ran.Load() == burst+i+1 })
	}
	eventually(t, "not all credits have come back", func() bool { return p.out.creditsReturned.Load() == burst+3*shmlayout.Credits })
}

// Credits that were put off do not wait for what runs next.
func TestCreditsReturnBefore(t *testing.T) {
	engine, over := make(chan *Engine, 1), make(chan struct{})
	p, _, send := streamNotifier(t, func(uint32) { (<-engine).Event(nil, func() { <-over }) })
	defer close(over)
	engine <- p.b
	send()
	eventually(t, "a credit waits for another one's handler", func() bool { return p.out.creditsReturned.Load() == 1 })
}

// A link that resumes while a waiter is about to disarm it is disarmed, and known to be.
func TestResumedIsDisarmed(t *testing.T) {
	p, _, _ := streamNotifier(t, func(uint32) {})
	s := &p.in.stream
	for range 100 {
		s.rmu.Lock()
		s.readArmed.Store(true)
		done := make(chan bool)
		go func() { done <- s.tryTokenDisarmed() }()
		for range 1000 { // until it waits for rmu, most likely
			runtime.Gosched()
		}
		s.readArmed.Store(true) // as with a new connection
		s.rmu.Unlock()
		if !<-done {
			continue // another goroutine has it
		}
		if s.readArmed.Load() {
			t.Fatal("the new descriptor is disarmed, and taken for armed")
		}
		s.releaseArmed()
	}
}
