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

// What a socket has no room for is written without another call, also where a waiter has left the link at rest before:
// then the background hears of it only when the guard has found that nobody comes again.
func TestWhatIsLeftIsWritten(t *testing.T) {
	const size = 4 << 20
	unarmed := 0
	for range 20 { // the guard may have come in between
		o, far := importer(t)
		rests(t, o)
		if _, err := o.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
		if stuck, armed := left(o); !stuck {
			t.Fatalf("a socket has taken %d bytes that nobody reads", size)
		} else if !armed {
			unarmed++
		}
		swallow(t, far, framed(size))
	}
	if unarmed == 0 {
		t.Error("at no time the rest was left to a waiter")
	}
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
	frames := (size + wire.MaxChunk - 1) / wire.MaxChunk
	return size + frames*wire.HeaderSize - 4
}

// swallow reads just as much from a socket, which must not take long to come.
func swallow(t *testing.T, fd, size int) {
	t.Helper()
	var io unix.IO
	b := make([]byte, 1<<20)
	for got := 0; got < size; {
		if err := unix.AwaitInput(fd, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		n, err := io.Recv(fd, b[:min(len(b), size-got)], nil)
		if err != nil || n == 0 {
			t.Fatalf("after %d bytes of %d: %v", got, size, err)
		}
		got += n
	}
}

// left says whether anything is, and whether an event is to come for it.
func left(o *Out) (stuck, armed bool) {
	o.tmu.Lock()
	defer o.tmu.Unlock()
	return o.tx.stuck.Load(), o.tx.armed
}

// Without a waiter that has left the link at rest, and where somebody sleeps, the background is to come at once.
func TestWhatIsLeftIsTheBackgroundsAtOnce(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T, *Out){
		"no waiter": func(*testing.T, *Out) {},
		"a sleeper": func(t *testing.T, o *Out) {
			sleeper(t, o)
			rests(t, o)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, _ := importer(t)
			prepare(t, o)
			if _, err := o.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, 4<<20)}); err != nil {
				t.Fatal(err)
			}
			if stuck, armed := left(o); !stuck || !armed {
				t.Errorf("anything left: %v, somebody to come for it: %v", stuck, armed)
			}
		})
	}
}

// A waiter that comes again and again, and leaves the link at rest, does not keep the background from what is left: the guard
// gives it away at each tick, also of a link that is used.
func TestWhatIsLeftBesideWaits(t *testing.T) {
	o, _ := importer(t)
	unguarded(t, o) // the test is the guard
	if _, err := o.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, 4<<20)}); err != nil {
		t.Fatal(err)
	}
	if stuck, armed := left(o); !stuck || armed {
		t.Fatalf("anything left: %v, somebody to come for it before the guard: %v", stuck, armed)
	}
	g := guard{resting: []*stream{&o.stream}}
	o.used.Store(true)
	if kept := g.tick(); !kept {
		t.Error("a link that is used is not the guard's any more")
	}
	if _, armed := left(o); !armed {
		t.Error("nobody is to come for what is left")
	}
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
