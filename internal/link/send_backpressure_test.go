package link

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// releasedUnarmed leaves the link without a waiter that would write the rest, as if the last one
// had just gone.
func releasedUnarmed(t *testing.T, rq *Requester) {
	t.Helper()
	for !rq.tryTokenDisarmed() {
		time.Sleep(time.Millisecond)
	}
	rq.releaseUnarmed()
}

// What a socket has no room for is written without another call, wherever the link is: the
// background is to come at once.
func TestUnwrittenDataIsWritten(t *testing.T) {
	const size = 4 << 20
	for name, prepare := range map[string]func(*testing.T, *Requester){
		"armed":   func(*testing.T, *Requester) {},
		"unarmed": releasedUnarmed,
		"a sleeper": func(t *testing.T, rq *Requester) {
			startSleeper(t, rq)
			releasedUnarmed(t, rq)
		},
	} {
		t.Run(name, func(t *testing.T) {
			rq, far := requesterTo(t)
			prepare(t, rq)
			for range 2 { // the second one comes when there is no room at all
				if _, err := rq.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, size)}); err != nil {
					t.Fatal(err)
				}
				if stuck, armed := blockedAndArmed(rq); !stuck || !armed {
					t.Fatalf("anything left: %v, a flush arranged: %v", stuck, armed)
				}
			}
			discardFrom(t, far, 2*framed(size))
		})
	}
}

// No event comes while a goroutine writes the rest between its polls, and one does once it stops.
func TestActiveWriterWritesFirst(t *testing.T) {
	rq, far := requesterTo(t)
	if _, err := rq.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, 4<<20)}); err != nil {
		t.Fatal(err)
	}
	rq.beginWrite()
	if stuck, armed := blockedAndArmed(rq); !stuck || armed {
		t.Errorf("anything left: %v, a write event armed beside an active writer: %v", stuck, armed)
	}
	rq.tmu.Lock()
	rq.tryFlush() // by another one
	rq.tmu.Unlock()
	if _, armed := blockedAndArmed(rq); armed {
		t.Error("a write event is armed beside an active writer")
	}
	rq.endWrite()
	if _, armed := blockedAndArmed(rq); !armed {
		t.Error("no flush is arranged for the rest")
	}
	discardFrom(t, far, framed(4<<20))
}

// startSleeper starts a goroutine that sleeps until the test is over.
func startSleeper(t *testing.T, rq *Requester) {
	t.Helper()
	ctx, wake := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = rq.e.Wait(ctx, wait.Cond{Word: new(atomic.Uint32)})
	}()
	t.Cleanup(func() { wake(); <-over })
	for !rq.e.sleepers.Asleep() {
		time.Sleep(time.Millisecond)
	}
}

// framed is how many bytes a message takes on the stream; its last word is in a header.
func framed(size int) int {
	frames := (size + chunk - 1) / chunk
	return size + frames*wire.HeaderSize - 4
}

// discardFrom reads just as much from a socket, which must not take long to come.
func discardFrom(t *testing.T, fd, size int) {
	t.Helper()
	var io unix.IO
	b := make([]byte, 1<<20)
	last := time.Now()
	for got := 0; got < size; {
		if err := unix.AwaitInput(fd, time.Second); err != nil { // a signal may end it early
			t.Fatal(err)
		}
		n, err := io.Recv(fd, b[:min(len(b), size-got)], nil)
		switch {
		case n > 0:
			got, last = got+n, time.Now()
		case err != nil || time.Since(last) > 10*time.Second:
			t.Fatalf("after %d bytes of %d: %v", got, size, err)
		}
	}
}

// blockedAndArmed says whether anything is, and whether an event is to come for it.
func blockedAndArmed(rq *Requester) (stuck, armed bool) {
	rq.tmu.Lock()
	defer rq.tmu.Unlock()
	return rq.tx.writeBlocked.Load(), rq.tx.writeArmed
}

// A goroutine that waits for room is woken also where another one, which only requests an
// acknowledgement, has written the rest. Which of them comes first is chance, so it is tried
// several times.
func TestWriteSpaceIsSignaled(t *testing.T) {
	for range 8 {
		sendBesideAsker(t)
	}
}

func sendBesideAsker(t *testing.T) {
	t.Helper()
	const size = 16 << 20
	rq, far := requesterTo(t)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{}, 2)
	go func() { // until the far end acknowledges, which it does not
		_, _ = rq.Send(ctx, Message{Handle: 1, Src: make([]byte, size)})
		over <- struct{}{}
	}()
	go func() {
		for ctx.Err() == nil {
			rq.requestAckOf(rq.lastSeq.Load())
			runtime.Gosched()
		}
		over <- struct{}{}
	}()
	defer func() { cancel(); <-over; <-over }()
	discardFrom(t, far, framed(size))
}
