package link

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// Short asynchronous messages are written by the background goroutine where no goroutine waits, and
// otherwise by a waiter for something else; also where there can be no timer.
func TestBatch(t *testing.T) {
	for _, c := range []struct {
		name  string
		begin func(t *testing.T, e *Engine)
		waits bool
	}{
		{"no waiter", func(*testing.T, *Engine) {}, false},
		{"no timer", func(t *testing.T, e *Engine) {
			closed := func(is bool) {
				e.batch.mu.Lock()
				defer e.batch.mu.Unlock()
				e.batch.closed = is
			}
			closed(true)
			t.Cleanup(func() { closed(false) })
		}, false},
		{"the background does not come", func(t *testing.T, e *Engine) {
			timer, err := unix.NewTimer() // which is in no set
			if err != nil {
				t.Fatal(err)
			}
			e.batch.mu.Lock()
			defer e.batch.mu.Unlock()
			e.batch.timer = timer
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := memory(t, 4096)
			p := join(t, false, &Target{Handle: 1, Mem: mem, Write: true})
			c.begin(t, p.a)
			var seen atomic.Uint32
			for round := range uint32(3) {
				for i := range 20 {
					src := make([]byte, 8)
					src[4] = byte(round + 1)
					if _, err := p.out.SendAsync(t.Context(), Message{Handle: 1, Off: uint64(8 * i), Src: src}); err != nil {
						t.Fatal(err)
					}
				}
				arrived := make(chan bool)
				go func() {
					until := time.Now().Add(10 * time.Second)
					for shm.Word(mem, 8*19+4).Load() != round+1 && time.Now().Before(until) {
						time.Sleep(time.Millisecond)
					}
					seen.Add(1)
					p.a.sleepers.Wake()
					arrived <- time.Now().Before(until)
				}()
				if c.waits {
					if n := shm.Word(mem, 8*19+4).Load(); n != round {
						t.Errorf("round %d has arrived before it was written", n)
					}
					if err := p.a.Wait(t.Context(), wait.Cond{Word: &seen, Old: round}); err != nil {
						t.Fatal(err)
					}
				}
				if !<-arrived {
					t.Fatalf("round %d has not arrived", round)
				}
			}
		})
	}
}

// An unarmed link receives the answer to what the background has written, without the watchdog.
func TestAnswerToAnUnarmedLink(t *testing.T) {
	mem := memory(t, 64)
	mem[7] = 7
	p := join(t, false, &Target{Handle: 1, Mem: mem, Read: true})
	for !p.out.tryTokenDisarmed() {
		time.Sleep(time.Millisecond)
	}
	p.out.onWatchdog.Store(true) // the watchdog takes it for its own
	p.out.releaseUnarmed()
	dst := make([]byte, 8)
	r, err := p.out.GetAsync(t.Context(), Read{Handle: 1, Dst: dst})
	if err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(10 * time.Second)
	for done := false; !done; time.Sleep(time.Millisecond) {
		if done, err = r.Result(); err != nil || time.Now().After(until) {
			t.Fatalf("the get: %v, %v", done, err)
		}
	}
	if dst[7] != 7 {
		t.Errorf("it has brought %x", dst)
	}
}

// A message on a closed engine is not batched.
func TestBatchOfAClosedEngine(t *testing.T) {
	p := join(t, false)
	p.a.Close()
	if p.a.batch.add(p.out) {
		t.Error("a message of a closed engine is batched")
	}
}

// What was written meanwhile is not waited for: its link may be a long message's for long.
func TestBatchLeavesALongMessageAlone(t *testing.T) {
	p := join(t, false)
	p.out.tmu.Lock()
	defer p.out.tmu.Unlock()
	if !p.a.batch.add(p.out) {
		t.Fatal("there is no timer")
	}
	over := make(chan struct{})
	go func() {
		p.a.batch.flush(nil)
		close(over)
	}()
	select {
	case <-over:
	case <-time.After(10 * time.Second):
		t.Error("nothing is to be written, and the lock is waited for")
	}
}
