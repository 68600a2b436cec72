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

// catch takes the next frame off the socket, and fails if none comes.
func catch(t *testing.T, fd int) (h wire.Header, payload []byte) {
	t.Helper()
	var io unix.IO
	read := func(b []byte) {
		for until := time.Now().Add(10 * time.Second); len(b) > 0; {
			n, err := io.Recv(fd, b, nil)
			if err != nil || time.Now().After(until) {
				t.Fatalf("%d bytes are missing: %v", len(b), err)
			}
			b = b[n:]
		}
	}
	b := make([]byte, wire.HeaderSize)
	read(b)
	_, heard := rawPeer{t, fd}.numbers()
	if err := h.Parse(b, *heard); err != nil {
		t.Fatal(err)
	}
	*heard++
	payload = make([]byte, h.Chunk)
	read(payload)
	return h, payload
}

// A message whose sender gives up when the socket has taken a part of its one frame, or nothing,
// goes whole all the same, and what follows comes behind it.
func TestShortMessageGivenUp(t *testing.T) {
	for _, c := range []struct {
		name  string
		terms Terms
		size  int
	}{
		{"not kept", Terms{}, maxInline},
		{"kept", Terms{ReconnectLimit: time.Minute}, maxInline},
		{"in parts", Terms{ReconnectLimit: time.Minute}, 40_000},
		{"with a checksum", Terms{Checked: true, ReconnectLimit: time.Minute}, 40_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, fd, far := halfLink(t)
			rq, err := NewRequester(e, fd, nil, c.terms, func(uint32, uint64, error) {}, func(error) {})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(rq.Close)
			rq.tmu.Lock()
			rq.ackRequested = math.MaxUint64 // no ping comes between the messages
			rq.tmu.Unlock()
			send := func(ctx context.Context, n uint64) (uint64, error) {
				return rq.Send(ctx, Message{Handle: 1, Src: bytes.Repeat([]byte{byte(n)}, c.size)})
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
				if h, b := catch(t, far); h.Type != wire.Data || h.Seq != seq || !bytes.Equal(b, bytes.Repeat([]byte{byte(seq)}, c.size-4)) {
					t.Fatalf("in the place of message %d is %+v", seq, h)
				}
			}
			if err := <-over; err != nil {
				t.Error(err)
			}
		})
	}
}

// A bell that is rung while a part of a short message is not written comes behind it, though
// nothing else is ever sent.
func TestBellBehindAShortMessage(t *testing.T) {
	rq, far := requesterTo(t)
	m := Message{Handle: 1, Src: make([]byte, maxInline)}
	rq.tmu.Lock()
	for done := true; done; {
		rq.inboxMu.Lock()
		seq, serial := rq.assignSeq(&m, maxInline)
		rq.inboxMu.Unlock()
		frame := rq.tx.buildFrame(rq.tx.buf[:], &m, maxInline, seq, serial)
		rq.messageFramed(seq, false)
		done = rq.writeFrame(frame, seq)
	}
	n := rq.tx.framesQueued
	rq.tmu.Unlock()
	rq.ringBell()
	for seq := uint64(1); seq < n; seq++ {
		catch(t, far)
	}
	if err := rq.waitWritten(t.Context(), n, nil); err != nil {
		t.Fatal(err)
	}
	if h, _ := catch(t, far); h.Type != wire.Data || h.Seq != n {
		t.Errorf("in the place of message %d is %+v", n, h)
	}
	if h, _ := catch(t, far); h.Type != wire.Bell {
		t.Errorf("in the place of the bell is %+v", h)
	}
}
