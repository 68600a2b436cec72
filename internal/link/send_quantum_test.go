package link

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// bulkArriving has the engine take it that long messages come, until the test is over.
func bulkArriving(e *Engine) { e.bulkActivity.lastBulk.Store(unix.Monotonic() + int64(time.Hour)) }

// While long messages come, a write event is armed for the rest only if no other goroutine writes
// it, and it is written without another call.
func TestUnwrittenDataBidirectional(t *testing.T) {
	const size = 4 << 20
	for name, c := range map[string]struct {
		prepare, after func(*testing.T, *Requester)
		armed          bool
	}{
		"armed":   {armed: true},
		"unarmed": {prepare: releasedUnarmed},
		"a sleeper": {prepare: func(t *testing.T, rq *Requester) {
			startSleeper(t, rq)
			releasedUnarmed(t, rq)
		}, armed: true},
		"unarmed, then a sleeper": {prepare: releasedUnarmed, after: startSleeper, armed: true},
		"after a wait": {after: func(t *testing.T, rq *Requester) {
			rq.beginWrite()
			releasedUnarmed(t, rq)
			rq.endWriteSoon()
		}},
		"after a wait of a link that is armed": {after: func(_ *testing.T, rq *Requester) {
			rq.beginWrite()
			rq.endWriteSoon()
		}, armed: true},
		"before a sleep": {prepare: releasedUnarmed, after: func(_ *testing.T, rq *Requester) {
			rq.beginWrite()
			rq.endWrite()
		}, armed: true},
	} {
		t.Run(name, func(t *testing.T) {
			rq, far := requesterTo(t)
			bulkArriving(rq.e)
			if c.prepare != nil {
				c.prepare(t, rq)
			}
			for range 2 {
				if _, err := rq.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, size)}); err != nil {
					t.Fatal(err)
				}
			}
			if c.after != nil {
				c.after(t, rq)
			}
			if c.armed {
				// a sleeper is counted before it arms links
				eventually(t, "no event is to come for what is left", func() bool {
					stuck, armed := blockedAndArmed(rq)
					return stuck && armed
				})
			} else if stuck, armed := blockedAndArmed(rq); !stuck || armed && rq.onWatchdog.Load() { // the watchdog may have come meanwhile, which arms
				t.Errorf("anything left: %v, an event to come for it: %v", stuck, armed)
			}
			discardFrom(t, far, 2*framed(size))
		})
	}
}

// So is what is left of the answer to a get.
func TestUnwrittenReplyBidirectional(t *testing.T) {
	const size = 4 << 20
	e, fd, far := halfLink(t)
	rs, err := NewResponder(e, fd, nil, Terms{}, []*Target{{Handle: 1, Mem: make([]byte, size), Read: true}}, nil, func(uint32) {}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	sendRaw(t, far, wire.Header{Type: wire.Get, Handle: 1, Seq: 1, Size: size}, nil)
	eventually(t, "an unread answer is wholly written", rs.tx.writeBlocked.Load)
	bulkArriving(e)
	rs.beginWrite()
	for !rs.tryTokenDisarmed() {
		time.Sleep(time.Millisecond)
	}
	rs.releaseUnarmed()
	rs.endWriteSoon()
	discardFrom(t, far, framed(size))
}

// A writer that has used its quantum writes no more before the next one, whatever room there is.
func TestWriteQuantumEnds(t *testing.T) {
	const size = 4 << 20
	rq, far := requesterTo(t)
	rq.beginWrite() // no other goroutine writes
	if _, err := rq.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, size)}); err != nil {
		t.Fatal(err)
	}
	taken := 0
	room := func() {
		discardFrom(t, far, 64<<10)
		taken += 64 << 10
	}
	pump := func() (wrote int) {
		rq.tmu.Lock()
		defer rq.tmu.Unlock()
		before := rq.tx.unwritten()
		rq.pump()
		if !rq.tx.writeBlocked.Load() {
			t.Error("more is left, and no flush is arranged")
		}
		return before - rq.tx.unwritten()
	}
	set := func(turn int) {
		rq.tmu.Lock()
		rq.tx.quantumLeft = turn
		rq.tmu.Unlock()
	}
	set(1)
	room()
	if pump() == 0 {
		t.Error("nothing is written of a turn that begins")
	}
	room()
	if n := pump(); n > 0 {
		t.Errorf("%d bytes are written when the turn is over", n)
	}
	set(0)
	if pump() == 0 {
		t.Error("nothing is written, and there is room and no bound")
	}
	rq.endWrite()
	discardFrom(t, far, framed(size)-taken)
}

// A goroutine that writes for others always arranges for the rest of a quantum, and what a waiter
// leaves is written although its event was skipped.
func TestNoUnwrittenDataIsForgotten(t *testing.T) {
	const size = 64 << 20
	for name, look := range map[string]func(*Requester){
		"looking": func(rq *Requester) { rq.e.poll(context.Background(), &wait.Cond{Word: new(atomic.Uint32)}, nil) },
		"passing": func(rq *Requester) { rq.e.batch.flush(nil) },
		"pausing": func(rq *Requester) {
			rq.beginWrite()
			rq.flushSome(true)
			rq.endWriteSoon()
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 10 {
				rq, far := requesterTo(t)
				bulkArriving(rq.e)
				if _, err := rq.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, size)}); err != nil {
					t.Fatal(err)
				}
				over := make(chan struct{})
				go func() {
					defer close(over)
					for range 50 { // and then no goroutine comes any more
						if _, err := rq.SendAsync(context.Background(), Message{Handle: 1, Src: make([]byte, 4)}); err != nil {
							return
						}
						look(rq)
					}
				}()
				discardFrom(t, far, framed(size))
				<-over
				rq.fail(ErrClosed)
			}
		})
	}
}

// A synchronous message for which its sender cannot look arrives, though an event for one before it
// was passed over.
func TestSkipPoll(t *testing.T) {
	const size = 4 << 20
	rq, far := requesterTo(t)
	if _, err := rq.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, size)}); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for rq.tx.writeBlocked.Load() || rq.inboxReady.Load() {
			rq.flushSome(false)
		}
	}()
	discardFrom(t, far, framed(size))
	<-over
	bulkArriving(rq.e)
	rq.e.polling.Store(true) // another waiter looks
	defer rq.e.polling.Store(false)
	releasedUnarmed(t, rq)
	ctx, stop := context.WithCancel(t.Context())
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = rq.Send(ctx, Message{Handle: 1, Src: make([]byte, size)}) // until the far end acknowledges, which it does not
	}()
	defer func() { stop(); <-sent }()
	discardFrom(t, far, framed(size))
}
