package link

import (
	"bytes"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// eventually waits for what comes by itself.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for start := time.Now(); !is(); time.Sleep(time.Millisecond / 4) {
		if time.Since(start) > 10*time.Second {
			t.Fatalf("after 10s %s", what)
		}
	}
}

// bulkInflow is a pair over which a message of some 256 KiB has come, and how to send more.
func bulkInflow(t *testing.T) (p *pair, mem []byte, send func(fill byte) []byte) {
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
	if err := p.out.WaitApplied(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if p.b.bulkActivity.lastBulk.Load() == 0 {
		t.Fatal("such a message has come, and it is not noted when")
	}
	return p, mem, send
}

// The background leaves a link where a waiter comes by often, and that one takes what is there.
func TestDrainReady(t *testing.T) {
	p, mem, send := bulkInflow(t)
	g, later := &p.b.watchdog, unix.Monotonic()+int64(time.Hour)
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
	back, err := NewRequester(p.b, fd, nil, Terms{}, func(uint32, uint64, error) {}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	waiter := Request{requester: back} // of what is over
	p.b.bulkActivity.lastDrain.Store(later)
	src := send(2)
	eventually(t, "the background has not left the link to a waiter", func() bool {
		return p.in.onWatchdog.Load() && !p.in.readArmed.Load() && p.in.token.State() == tokenFree
	})
	over := make(chan error, 1)
	go func() { over <- p.out.WaitApplied(t.Context(), nil) }()
	select {
	case err := <-over:
		t.Fatalf("no poll was made, and all has come: %v", err)
	case <-time.After(10 * time.Millisecond):
	}
	eventually(t, "the waiter has not got the message", func() bool {
		p.b.bulkActivity.lastBulk.Store(later)
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
func TestDrainReadyWritesRest(t *testing.T) {
	p, mem, send := bulkInflow(t)
	p.b.bulkActivity.lastDrain.Store(unix.Monotonic() + int64(time.Hour))
	for i := range 20 {
		src := send(byte(i))
		if err := p.out.WaitApplied(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(mem, src) {
			t.Fatal("what has come is not what was sent")
		}
	}
}

// Short messages are none of which a waiter takes any before it goes on.
func TestDrainReadyNeedsBulk(t *testing.T) {
	for n, want := range map[uint64]bool{8: false, 32 << 10: false, bulkSize: true, 16 << 20: true} {
		var g bulkActivity
		g.noteArrival(n)
		if got := g.lastBulk.Load() != 0; got != want {
			t.Errorf("%d bytes are a reason: %v", n, got)
		}
		if g.waiterExpected() {
			t.Error("a waiter is expected, and none ever came")
		}
	}
	p, _, send := bulkInflow(t)
	for !p.in.tryTokenDisarmed() {
		time.Sleep(time.Millisecond)
	}
	p.b.bulkActivity.lastBulk.Store(unix.Monotonic() + int64(time.Hour))
	p.b.drainReady()
	if p.in.token.State() != tokenHeld {
		t.Error("it took a link that another one holds")
	}
	p.in.releaseArmed()
	p.b.bulkActivity.lastBulk.Store(unix.Monotonic() - int64(time.Second))
	p.b.bulkActivity.lastDrain.Store(0)
	p.b.drainReady()
	if p.b.bulkActivity.lastDrain.Load() != 0 {
		t.Error("it has looked, a second after the last message of that kind")
	}
	send(3)
	if err := p.out.WaitApplied(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}
