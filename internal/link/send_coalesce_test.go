package link

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/link/pacing"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

const gatherable = 64 << 10

// sendAsync begins a message and says whether it is gathered.
func sendAsync(t *testing.T, rq *Requester, size int) (r Request, gathered bool) {
	t.Helper()
	r, err := rq.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, size)})
	if err != nil {
		t.Fatal(err)
	}
	return r, rq.inBulkBatch.Load() && rq.inboxReady.Load()
}

// offWatchdog leaves o unarmed as a waiter does, but for the watchdog, which does not know of it:
// what happens then others do.
func offWatchdog(t *testing.T, rq *Requester) {
	t.Helper()
	rq.onWatchdog.Store(true)
	releasedUnarmed(t, rq)
}

// onWatchdog gives it to the watchdog after all.
func onWatchdog(t *testing.T, rq *Requester) {
	t.Helper()
	rq.onWatchdog.Store(false)
	releasedUnarmed(t, rq)
}

// coalescing has two messages in flight and a third one that waits for more.
func coalescing(t *testing.T) (rq *Requester, far int, third Request) {
	t.Helper()
	rq, far = requesterTo(t)
	offWatchdog(t, rq)
	for range 2 {
		if _, gathered := sendAsync(t, rq, gatherable); gathered {
			t.Fatal("a message is gathered, and little is in flight")
		}
	}
	if stuck, _ := blockedAndArmed(rq); stuck {
		t.Skip("the system's sockets have no room for 128 KiB")
	}
	third, gathered := sendAsync(t, rq, gatherable)
	if !gathered {
		t.Fatal("the third message is not gathered")
	}
	return rq, far, third
}

// Coalesced messages are written once there is a call's worth, by the next waiter, by a poll of
// their request, and together with short messages.
func TestCoalescedIsWritten(t *testing.T) {
	for _, c := range []struct {
		name string
		then func(t *testing.T, rq *Requester, third Request)
		more int  // bytes on the stream, of what then sends
		soon bool // when then returns
	}{
		{"more", func(t *testing.T, rq *Requester, _ Request) {
			for range 3 {
				sendAsync(t, rq, gatherable)
			}
		}, 3 * framed(gatherable), true},
		{"long", func(t *testing.T, rq *Requester, _ Request) { sendAsync(t, rq, chunk) }, framed(chunk), true},
		{"a poll of its request", func(t *testing.T, _ *Requester, third Request) {
			if done, err := third.Result(); done || err != nil {
				t.Errorf("%v, %v, and the far end has said nothing", done, err)
			}
		}, 0, true},
		{"any waiter", func(t *testing.T, rq *Requester, _ Request) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_ = rq.e.Wait(ctx, wait.Cond{Word: new(atomic.Uint32)})
		}, 0, true},
		{"a short one", func(t *testing.T, rq *Requester, _ Request) { sendAsync(t, rq, 8) }, framed(8), false},
		{"a synchronous one", func(t *testing.T, rq *Requester, _ Request) {
			if _, err := rq.Send(t.Context(), Message{Handle: 1, Src: make([]byte, 8)}); err != nil {
				t.Error(err)
			}
		}, framed(8), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			rq, far, third := coalescing(t)
			over := make(chan struct{})
			go func() { // a synchronous sender may have to wait for room
				defer close(over)
				c.then(t, rq, third)
				if stuck, _ := blockedAndArmed(rq); c.soon && !stuck && rq.inboxReady.Load() {
					t.Error("it is not written yet, and the socket has room")
				}
				if c.soon {
					onWatchdog(t, rq) // what the socket has no room for
				}
			}()
			defer func() { <-over }()
			discardFrom(t, far, 3*framed(gatherable)+c.more)
		})
	}
}

// And in any case by the watchdog, also where waiters come again and again.
func TestWatchdogWritesCoalesced(t *testing.T) {
	gathered := 0
	for range 20 { // it may come in between
		rq, far := requesterTo(t)
		releasedUnarmed(t, rq)
		for range 3 {
			if _, left := sendAsync(t, rq, gatherable); left {
				gathered++
			}
		}
		discardFrom(t, far, 3*framed(gatherable))
	}
	if gathered == 0 {
		t.Error("no message was gathered")
	}
}

// A message is not coalesced where it may stay unwritten for long, nor is one call's worth, nor a
// message while little is in flight.
func TestNotCoalesced(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(*testing.T, *Requester, int)
		sizes   []int
	}{
		{"no waiter", func(*testing.T, *Requester, int) {}, []int{gatherable, gatherable, gatherable}},
		{"a sleeper", func(t *testing.T, rq *Requester, _ int) {
			startSleeper(t, rq)
			offWatchdog(t, rq)
		}, []int{gatherable, gatherable, gatherable}},
		{"acknowledged", func(t *testing.T, rq *Requester, far int) {
			offWatchdog(t, rq)
			sendAsync(t, rq, gatherable)
			sendAsync(t, rq, gatherable)
			sendRaw(t, far, wire.Header{Type: wire.Ack, Ack: 2}, nil)
			for rq.ackedSeq.Load() < 2 {
				if err := rq.err(); err != nil {
					t.Fatal(err)
				}
				if rq.token.tryAcquire() {
					rq.receive(maxRecvCalls)
					rq.releaseUnarmed()
				}
				runtime.Gosched()
			}
			discardFrom(t, far, 2*framed(gatherable))
		}, []int{gatherable, gatherable}},
		{"a call's worth", func(t *testing.T, rq *Requester, _ int) { offWatchdog(t, rq) }, []int{gatherable, gatherable, 2 * chunk}},
		{"more than a chunk", func(t *testing.T, rq *Requester, _ int) { offWatchdog(t, rq) }, []int{gatherable, gatherable, chunk + 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rq, far := requesterTo(t)
			c.prepare(t, rq, far)
			size := 0
			for i, n := range c.sizes {
				if _, gathered := sendAsync(t, rq, n); gathered {
					if stuck, _ := blockedAndArmed(rq); !stuck {
						t.Errorf("message %d is gathered", i)
					}
				}
				size += framed(n)
			}
			onWatchdog(t, rq)
			discardFrom(t, far, size)
		})
	}
}

// Messages are gathered up to a chunk, or to as many as any call may write, and begun then.
func TestCoalescedInOneCall(t *testing.T) {
	for _, c := range []struct{ size, messages int }{{chunk / 8, 8}, {gatherable, pacing.MinParts}, {chunk / 2, pacing.MinParts}, {chunk, pacing.MinParts}} {
		rq, far := requesterTo(t)
		offWatchdog(t, rq)
		rq.tmu.Lock()
		for range coalesceInFlight/c.size + 2 { // as if they were in flight
			rq.inFlight.Add(rq.inFlight.Len()+1, c.size)
		}
		rq.tmu.Unlock()
		for n := 1; n < c.messages; n++ {
			if _, gathered := sendAsync(t, rq, c.size); !gathered {
				t.Fatalf("message %d of %d bytes is not gathered, of %d", n, c.size, c.messages)
			}
		}
		sendAsync(t, rq, c.size)
		rq.tmu.Lock()
		if got := max(int(rq.tx.framesWritten), rq.tx.partCount); got == 0 { // some of it at least: the socket may have little room
			t.Errorf("%d messages of %d bytes are not begun", c.messages, c.size)
		}
		rq.tmu.Unlock()
		onWatchdog(t, rq)
		discardFrom(t, far, c.messages*framed(c.size))
	}
}

// Where a waiter has just looked for what comes the other way, messages are gathered though nothing
// is in flight, up to coalesceBidirectional.
func TestCoalescedBidirectional(t *testing.T) {
	for _, c := range []struct{ size, messages int }{{gatherable, coalesceMessages}, {chunk / 2, coalesceMessages}, {chunk, pacing.MinParts}, {2 * chunk, 2}, {4 * chunk, 1}} {
		rq, far := requesterTo(t)
		offWatchdog(t, rq)
		rq.e.bulkActivity.lastDrain.Store(unix.Monotonic() + int64(time.Hour))
		for n := 1; n < c.messages; n++ {
			if _, gathered := sendAsync(t, rq, c.size); !gathered {
				t.Fatalf("message %d of %d bytes is not gathered, of %d", n, c.size, c.messages)
			}
		}
		if _, gathered := sendAsync(t, rq, c.size); gathered {
			if stuck, _ := blockedAndArmed(rq); !stuck {
				t.Errorf("%d messages of %d bytes are gathered, all of them", c.messages, c.size)
			}
		}
		onWatchdog(t, rq)
		discardFrom(t, far, c.messages*framed(c.size))
	}
}
