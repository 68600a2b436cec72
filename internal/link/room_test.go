package link

import (
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
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
	left := 0
	for range 20 { // the guard may have come in between
		o, far := importer(t)
		rests(t, o)
		if _, err := o.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
		o.tmu.Lock()
		if !o.tx.stuck.Load() {
			t.Fatalf("a socket has taken %d bytes that nobody reads", size)
		}
		if !o.tx.armed {
			left++
		}
		o.tmu.Unlock()
		var io unix.IO
		b := make([]byte, 1<<20)
		frames := (size + wire.MaxChunk - 1) / wire.MaxChunk
		for got, want := 0, size+frames*wire.HeaderSize-4; got < want; { // the last word is in a header
			if err := unix.AwaitInput(far, 10*time.Second); err != nil {
				t.Fatal(err)
			}
			n, err := io.Recv(far, b, nil)
			if err != nil || n == 0 {
				t.Fatalf("after %d bytes of %d: %v", got, want, err)
			}
			got += n
		}
	}
	if left == 0 {
		t.Error("at no time the rest was left to a waiter")
	}
}

// A link that no waiter has left at rest is the background's at once.
func TestWhatIsLeftWithoutAWaiter(t *testing.T) {
	o, _ := importer(t)
	if _, err := o.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, 4<<20)}); err != nil {
		t.Fatal(err)
	}
	o.tmu.Lock()
	defer o.tmu.Unlock()
	if !o.tx.armed {
		t.Error("nobody is to come for what is left")
	}
}
