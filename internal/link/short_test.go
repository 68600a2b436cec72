package link

import (
	"bytes"
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// A message whose sender gives up when the socket has taken a part of its one frame, or nothing, goes
// whole all the same, and what follows comes behind it.
func TestShortMessageGivenUp(t *testing.T) {
	for _, c := range []struct {
		name  string
		terms Terms
		size  int
	}{
		{"not kept", Terms{}, small},
		{"kept", Terms{Limit: time.Minute}, small},
		{"in parts", Terms{Limit: time.Minute}, 40_000},
		{"with a checksum", Terms{Checked: true, Limit: time.Minute}, 40_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, fd, far := half(t)
			o, err := NewOut(e, fd, nil, c.terms, func(uint32, uint64, error) {}, func(error) {})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(o.Close)
			o.tmu.Lock()
			o.asked = math.MaxUint64 // no ping comes between the messages
			o.tmu.Unlock()
			send := func(ctx context.Context, n uint64) (uint64, error) {
				return o.Send(ctx, Message{Handle: 1, Src: bytes.Repeat([]byte{byte(n)}, c.size)})
			}
			last := uint64(0)
			for err == nil {
				last++
				ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
				var seq uint64
				if seq, err = send(ctx, last); seq != last {
					t.Fatalf("message %d is the %d.: %v", last, seq, err)
				}
				stop()
			}
			if !errors.Is(err, ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("message %d: %v", last, err)
			}
			over := make(chan error, 1)
			go func() {
				_, err := send(t.Context(), last+1)
				over <- err
			}()
			for seq := uint64(1); seq <= last+1; seq++ {
				h := hear(t, far)
				b := make([]byte, h.Chunk)
				var io unix.IO
				for at := 0; at < len(b); {
					n, err := io.Recv(far, b[at:], nil)
					if err != nil {
						t.Fatal(err)
					}
					at += n
				}
				if h.Type != wire.Data || h.Seq != seq || !bytes.Equal(b, bytes.Repeat([]byte{byte(seq)}, c.size-4)) {
					t.Fatalf("in the place of message %d is %+v", seq, h)
				}
			}
			if err := <-over; err != nil {
				t.Error(err)
			}
		})
	}
}
