package link

import (
	"context"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/page"
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

// Who looks out has notifications run that nobody else would hear of.
func TestLookOut(t *testing.T) {
	over := make(chan struct{})
	p, ran, send := streamNotifier(t, func(n uint32) {
		if n == 2 {
			<-over
		}
	})
	send()
	soon(t, "the first handler has not run", func() bool { return ran.Load() == 1 })
	q := &p.b.notes
	soon(t, "the goroutine of the notifications looks on", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.waits && p.in.tryQuiet()
	})
	p.in.token.Store(free) // with nobody who listens
	q.posted.Store(0)
	send()
	time.Sleep(10 * time.Millisecond)
	if n := ran.Load(); n != 1 {
		t.Fatalf("nobody has looked, and %d handlers have run", n)
	}
	soon(t, "who looks out has not had the second handler run", func() bool {
		if q.posted.Load() == 0 {
			p.b.lookOut()
		}
		return ran.Load() == 2
	})
	soon(t, "while a handler runs the link is left to nobody", func() bool { return p.in.listening.Load() && !p.b.spinning.Load() })
	close(over)
}

// Who waits for something has its turn to look before who looks out.
func TestLookOutGivesWay(t *testing.T) {
	e, _ := engine(t)
	e.lookout.until = math.MaxInt64
	for range 200 {
		e.lookout.wanted.Store(false)
		e.lookout.looks.Store(true)
		e.spinning.Store(true)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			for !e.lookout.due() {
				runtime.Gosched()
			}
			e.lookout.looks.Store(false)
			e.spinning.Store(false)
		}()
		soon(t, "who looks out does not give way", e.turn)
		<-gone
		e.spinning.Store(false)
	}
	e.spinning.Store(true) // of a waiter, who does not
	if e.turn() {
		t.Error("two look at the same time")
	}
	e.spinning.Store(false)
}

// All credits come back, also where too few are due for an acknowledgement of their own.
func TestCreditsReturn(t *testing.T) {
	p, ran, send := streamNotifier(t, func(uint32) {})
	p.b.Block()
	const burst = page.Credits/4 - 1
	for range burst {
		send()
	}
	soon(t, "not all notifications have come", func() bool {
		p.in.nmu.Lock()
		defer p.in.nmu.Unlock()
		return len(p.in.notes) == burst
	})
	if _, err := p.b.Unblock(); err != nil {
		t.Fatal(err)
	}
	soon(t, "not all credits have come back", func() bool { return p.out.returned.Load() == burst })
	if n := ran.Load(); n != burst {
		t.Errorf("%d handlers have run, %d credits are back", n, burst)
	}
	for i := range uint32(3 * page.Credits) {
		send()
		soon(t, "a handler has not run", func() bool { return ran.Load() == burst+i+1 })
	}
	soon(t, "not all credits have come back", func() bool { return p.out.returned.Load() == burst+3*page.Credits })
}

// Credits that were put off do not wait for what runs next.
func TestCreditsReturnBefore(t *testing.T) {
	engine, over := make(chan *Engine, 1), make(chan struct{})
	p, _, send := streamNotifier(t, func(uint32) { (<-engine).Event(nil, func() { <-over }) })
	defer close(over)
	engine <- p.b
	send()
	soon(t, "a credit waits for another one's handler", func() bool { return p.out.returned.Load() == 1 })
}

// A link that resumes while a waiter is about to disarm it is disarmed, and known to be.
func TestResumedIsDisarmed(t *testing.T) {
	p, _, _ := streamNotifier(t, func(uint32) {})
	s := &p.in.stream
	for range 100 {
		s.rmu.Lock()
		s.listening.Store(true)
		done := make(chan bool)
		go func() { done <- s.tryQuiet() }()
		for range 1000 { // until it waits for rmu, most likely
			runtime.Gosched()
		}
		s.listening.Store(true) // as with a new connection
		s.rmu.Unlock()
		if !<-done {
			continue // somebody else has it
		}
		if s.listening.Load() {
			t.Fatal("the new descriptor is disarmed, and taken for armed")
		}
		s.release()
	}
}
