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

// rests has no waiter who would write what is left, as the last one has just gone.
func rests(t *testing.T, o *Out) {
	t.Helper()
	for !o.tryQuiet() {
		time.Sleep(time.Millisecond)
	}
	o.rest()
}

// What a socket has no room for is written without another call, wherever the link is: the background is to come at once.
func TestWhatIsLeftIsWritten(t *testing.T) {
	const size = 4 << 20
	for name, prepare := range map[string]func(*testing.T, *Out){
		"armed":   func(*testing.T, *Out) {},
		"at rest": rests,
		"a sleeper": func(t *testing.T, o *Out) {
			sleeper(t, o)
			rests(t, o)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, far := importer(t)
			prepare(t, o)
			for range 2 { // the second one comes when there is no room at all
				if _, err := o.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, size)}); err != nil {
					t.Fatal(err)
				}
				if stuck, armed := left(o); !stuck || !armed {
					t.Fatalf("anything left: %v, somebody to come for it: %v", stuck, armed)
				}
			}
			swallow(t, far, 2*framed(size))
		})
	}
}

// No event comes while somebody writes what is left between his looks, and one does once he does not.
func TestWhatIsLeftIsWritersFirst(t *testing.T) {
	o, far := importer(t)
	if _, err := o.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, 4<<20)}); err != nil {
		t.Fatal(err)
	}
	o.attend()
	if stuck, armed := left(o); !stuck || armed {
		t.Errorf("anything left: %v, an event to come for it while somebody attends: %v", stuck, armed)
	}
	o.tmu.Lock()
	o.offer() // by another one
	o.tmu.Unlock()
	if _, armed := left(o); armed {
		t.Error("an event is to come though somebody attends")
	}
	o.leave()
	if _, armed := left(o); !armed {
		t.Error("nobody is to come for what is left")
	}
	swallow(t, far, framed(4<<20))
}

// sleeper has somebody sleep until the test is over.
func sleeper(t *testing.T, o *Out) {
	t.Helper()
	ctx, wake := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = o.e.Wait(ctx, wait.Look{Word: new(atomic.Uint32)})
	}()
	t.Cleanup(func() { wake(); <-over })
	for !o.e.sleepers.Asleep() {
		time.Sleep(time.Millisecond)
	}
}

// framed is how many bytes a message takes on the stream; its last word is in a header.
func framed(size int) int {
	frames := (size + chunk - 1) / chunk
	return size + frames*wire.HeaderSize - 4
}

// swallow reads just as much from a socket, which must not take long to come.
func swallow(t *testing.T, fd, size int) {
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

// left says whether anything is, and whether an event is to come for it.
func left(o *Out) (stuck, armed bool) {
	o.tmu.Lock()
	defer o.tmu.Unlock()
	return o.tx.stuck.Load(), o.tx.armed
}

// Who waits for room is woken also where somebody else, who only asks, has written what was left. Who of them comes
// first is chance, so it is tried several times.
func TestRoomIsToldOf(t *testing.T) {
	for range 8 {
		sendBesideAsker(t)
	}
}

func sendBesideAsker(t *testing.T) {
	t.Helper()
	const size = 16 << 20
	o, far := importer(t)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{}, 2)
	go func() { // until the far end acknowledges, which it does not
		_, _ = o.Send(ctx, Message{Handle: 1, Src: make([]byte, size)})
		over <- struct{}{}
	}()
	go func() {
		for ctx.Err() == nil {
			o.ping(o.seq.Load())
			runtime.Gosched()
		}
		over <- struct{}{}
	}()
	defer func() { cancel(); <-over; <-over }()
	swallow(t, far, framed(size))
}
