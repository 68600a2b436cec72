package link

import (
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// An acknowledgement that a long message asks for waits for more while somebody looks, and no longer: not beyond a few looks
// in vain, nor when whoever looks goes, nor where there is enough for one. A short message's does not wait at all.
func TestAcknowledgementsAreShared(t *testing.T) {
	const size = ackLater
	looks := func(n int) func(*In) {
		return func(in *In) {
			for range n {
				in.receive(1)
			}
		}
	}
	for _, c := range []struct {
		name     string
		messages int
		size     int
		then     func(*In)
		acked    bool
	}{
		{"looks on", 1, size, looks(lull - 1), false},
		{"looks in vain", 1, size, looks(lull), true},
		{"goes to rest", 1, size, func(in *In) { in.rest() }, true},
		{"goes to sleep", 1, size, func(in *In) { in.release() }, true},
		{"not enough", int(share(size)/size) - 1, size, looks(0), false},
		{"enough", int(share(size) / size), size, looks(0), true},
		{"not enough of longer ones", 1, wire.MaxChunk, looks(0), false},
		{"enough of longer ones", 2, wire.MaxChunk, looks(0), true},
		{"short", 1, 64, looks(0), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := memory(t, wire.MaxChunk)
			e, fd, far := half(t)
			in, err := NewIn(e, fd, nil, Terms{}, []*Target{{Handle: 1, Mem: mem, Write: true}}, nil, func(uint32) {}, func(error) {})
			if err != nil {
				t.Fatal(err)
			}
			for !in.tryQuiet() {
				time.Sleep(time.Millisecond)
			}
			for seq := range uint64(c.messages) {
				said := make(chan struct{})
				go func() { // the socket may have no room for all of it
					defer close(said)
					say(t, far, wire.Header{
						Type: wire.Data, Flags: wire.Last | wire.AckNow,
						Handle: 1, Seq: seq + 1, Size: uint64(c.size), Chunk: uint32(c.size - 4),
					}, make([]byte, c.size-4))
				}()
				for in.applied.Load() <= seq && in.err() == nil { // with no look in vain
					if err := unix.AwaitInput(in.fd, 10*time.Second); err != nil {
						t.Fatal(err)
					}
					in.receive(1)
				}
				<-said
			}
			c.then(in)
			if err := in.err(); err != nil {
				t.Fatal(err)
			}
			var io unix.IO
			n, err := io.Peek(far, make([]byte, 1))
			if err != nil || n > 0 != c.acked {
				t.Errorf("acknowledged: %v (%v), want %v", n > 0, err, c.acked)
			}
			if !c.acked {
				in.rest() // and then it is
			}
			if h := hear(t, far); h.Type != wire.Ack || h.Ack != uint64(c.messages) {
				t.Errorf("in the place of the acknowledgement of message %d is %+v", c.messages, h)
			}
			if c.name != "goes to rest" && c.name != "goes to sleep" && c.acked {
				in.rest()
			}
		})
	}
}
