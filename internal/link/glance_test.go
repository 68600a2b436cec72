package link

import (
	"bytes"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// soon waits for what comes by itself.
func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	for start := time.Now(); !is(); time.Sleep(time.Millisecond / 4) {
		if time.Since(start) > 10*time.Second {
			t.Fatalf("after 10s %s", what)
		}
	}
}

// inflow is a pair over which a message of some 256 KiB has come, and how to send more.
func inflow(t *testing.T) (p *pair, mem []byte, send func(fill byte) []byte) {
	t.Helper()
	const size = 256 << 10
	mem = memory(t, size)
	p = join(t, false, &Target{Handle: 1, Mem: mem, Write: true})
	send = func(fill byte) []byte {
		t.Helper()
		src := bytes.Repeat([]byte{fill}, size)
		if _, err := p.out.SendAsync(t.Context(), Message{Handle: 1, Src: src}); err != nil {
			t.Fatal(err)
		}
		return src
	}
	send(1)
	if err := p.out.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.b.glancer.came.Load() == 0 {
		t.Fatal("such a message has come, and it is not noted when")
	}
	return p, mem, send
}

// The background leaves a link where a waiter comes by often, and that one takes what is there.
func TestGlance(t *testing.T) {
	p, mem, send := inflow(t)
	g, later := &p.b.guard, unix.Monotonic()+int64(time.Hour)
	g.mu.Lock()
	g.timer.Set(0)
	g.closed = true // it arms nothing
	g.mu.Unlock()
	t.Cleanup(func() {
		g.mu.Lock()
		g.closed = false
		g.mu.Unlock()
	})
	fd, far, err := unix.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(far)
	back, err := NewOut(p.b, fd, nil, Terms{}, func(uint32, uint64, error) {}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	waiter := Request{o: back} // of what is over
	p.b.glancer.looked.Store(later)
	src := send(2)
	soon(t, "the background has not left the link to a waiter", func() bool {
		return p.in.guarded.Load() && !p.in.listening.Load() && p.in.token.Load() == free
	})
	over := make(chan error, 1)
	go func() { over <- p.out.Settle(t.Context()) }()
	select {
	case err := <-over:
		t.Fatalf("nobody has looked, and all has come: %v", err)
	case <-time.After(10 * time.Millisecond):
	}
	soon(t, "the waiter has not got the message", func() bool {
		p.b.glancer.came.Store(later)
		if _, err := waiter.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-over:
			return err == nil
		default:
			return false
		}
	})
	if !bytes.Equal(mem, src) {
		t.Error("what has come is not what was sent")
	}
}

// What the background has left to a waiter that does not come any more arrives all the same.
func TestLeftAndForgotten(t *testing.T) {
	p, mem, send := inflow(t)
	p.b.glancer.looked.Store(unix.Monotonic() + int64(time.Hour))
	for i := range 20 {
		src := send(byte(i))
		if err := p.out.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(mem, src) {
			t.Fatal("what has come is not what was sent")
		}
	}
}

// Short messages are none of which a waiter takes any before it goes on.
func TestGlanceNeedsReason(t *testing.T) {
	for n, want := range map[uint64]bool{8: false, 32 << 10: false, glanceFrom: true, 16 << 20: true} {
		var g glancer
		g.arrived(n)
		if got := g.came.Load() != 0; got != want {
			t.Errorf("%d bytes are a reason: %v", n, got)
		}
		if g.comes() {
			t.Error("somebody comes by, it says, and nobody ever has")
		}
	}
	p, _, send := inflow(t)
	for !p.in.tryQuiet() {
		time.Sleep(time.Millisecond)
	}
	p.b.glancer.came.Store(unix.Monotonic() + int64(time.Hour))
	p.b.glance()
	if p.in.token.Load() != held {
		t.Error("it took a link that another one holds")
	}
	p.in.release()
	p.b.glancer.came.Store(unix.Monotonic() - int64(time.Second))
	p.b.glancer.looked.Store(0)
	p.b.glance()
	if p.b.glancer.looked.Load() != 0 {
		t.Error("it has looked, a second after the last message of that kind")
	}
	send(3)
	if err := p.out.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
}
