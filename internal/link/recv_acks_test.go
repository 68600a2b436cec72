package link

import (
	"slices"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/link/pacing"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// sharer is an exporter whose token a test holds, which looks as a waiter does, and what its far
// end has said.
type sharer struct {
	*Responder
	t   *testing.T
	far int
	seq uint64
}

// takes says a message of size bytes in chunks, and receives it with no look in vain.
func (s *sharer) takes(size int, flags uint8) {
	s.t.Helper()
	const chunk = 32 << 10 // the socket has room for it
	s.seq++
	for off := 0; off < size; off += chunk {
		n := min(chunk, size-off)
		h := wire.Header{Type: wire.Data, Handle: 1, Seq: s.seq, Off: uint64(off), Size: uint64(size), Chunk: uint32(n)}
		if off+n == size {
			n -= 4
			h.Flags, h.Chunk = flags|wire.Last, uint32(n)
		}
		sendRaw(s.t, s.far, h, make([]byte, n))
		over := func() bool { return s.appliedSeq.Load() == s.seq || s.cur.arrived == uint64(off+n) && !s.rx.midFrame() }
		for until := time.Now().Add(10 * time.Second); ; s.receive(1) {
			if err := s.err(); err != nil || time.Now().After(until) {
				s.t.Fatalf("message %d of %d bytes is not received: %v", s.seq, size, err)
			}
			if over() {
				break
			}
		}
	}
}

func (s *sharer) looks(n int) {
	for range n {
		s.receive(1)
	}
}

// said is what the far end has of the exporter.
func (s *sharer) said() (frames []wire.Type) {
	s.t.Helper()
	var io unix.IO
	for {
		if n, err := io.Peek(s.far, make([]byte, 1)); err != nil {
			s.t.Fatal(err)
		} else if n == 0 {
			return frames
		}
		h, _ := catch(s.t, s.far)
		if h.Type == wire.Ack && h.Ack != s.seq {
			s.t.Errorf("acknowledged are %d messages of %d", h.Ack, s.seq)
		}
		frames = append(frames, h.Type)
	}
}

// An acknowledgement whose message announces more in flight waits for that while the receiver
// polls, but not beyond a few empty polls, nor beyond maxAckAge in all, nor when the receiver stops
// polling, nor when there is enough for one, nor when something else is to be sent. A request that
// announces nothing does not wait.
func TestAcknowledgementsAreShared(t *testing.T) {
	const (
		size  = 64 << 10
		asks  = wire.AckNow
		crowd = wire.AckNow | wire.Shared
	)
	ack := []wire.Type{wire.Ack}
	for _, c := range []struct {
		name string
		do   func(*sharer)
		want []wire.Type
	}{
		{"alone", func(s *sharer) { s.takes(size, asks) }, ack},
		{"one alone among others", func(s *sharer) { s.takes(size, crowd); s.takes(64, asks) }, ack},
		{"looks on", func(s *sharer) { s.takes(size, crowd); s.looks(maxAckAge/emptyPollAge - 1) }, nil},
		{"looks in vain", func(s *sharer) { s.takes(size, crowd); s.looks(maxAckAge / emptyPollAge) }, ack},
		{"goes to rest", func(s *sharer) { s.takes(size, crowd); s.releaseUnarmed() }, ack},
		{"goes to sleep", func(s *sharer) { s.takes(size, crowd); s.releaseArmed() }, ack},
		{"not enough", func(s *sharer) {
			for range pacing.AckStride(size)/size - 1 {
				s.takes(size, crowd)
			}
		}, nil},
		{"enough", func(s *sharer) {
			for range pacing.AckStride(size) / size {
				s.takes(size, crowd)
			}
		}, ack},
		{"not enough of longer ones", func(s *sharer) { s.takes(chunk, crowd) }, nil},
		{"enough of longer ones", func(s *sharer) { s.takes(chunk, crowd); s.takes(chunk, crowd) }, ack},
		{"short ones go on", func(s *sharer) {
			s.takes(size, crowd)
			for range maxAckAge {
				s.takes(64, 0)
				if !s.ackDeferred {
					return
				}
			}
		}, ack},
		{"a get", func(s *sharer) {
			s.takes(size, crowd)
			s.seq++
			sendRaw(s.t, s.far, wire.Header{Type: wire.Get, Handle: 1, Seq: s.seq, Size: size}, nil)
			s.looks(1)
		}, []wire.Type{wire.Ack, wire.Reply}},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := memory(t, chunk)
			e, fd, far := halfLink(t)
			rs, err := NewResponder(e, fd, nil, Terms{}, []*Target{{Handle: 1, Mem: mem, Write: true, Read: true}}, nil, func(uint32) {}, func(error) {})
			if err != nil {
				t.Fatal(err)
			}
			for !rs.tryTokenDisarmed() {
				time.Sleep(time.Millisecond)
			}
			s := &sharer{Responder: rs, t: t, far: far}
			c.do(s)
			if got := s.said(); !slices.Equal(got, c.want) {
				t.Errorf("the far end has %v, want %v", got, c.want)
			}
			if err := rs.err(); err != nil {
				t.Error(err)
			}
			if len(c.want) > 0 {
				return
			}
			rs.releaseUnarmed()
			if got := s.said(); !slices.Equal(got, ack) {
				t.Errorf("when the token is free, the far end has %v, want %v", got, ack)
			}
		})
	}
}

// The side that ends a link acknowledges what was applied, whether the acknowledgement was deferred
// or is not due yet: its importer would not know of it.
func TestAcknowledgedAtTheEnd(t *testing.T) {
	for _, c := range []struct {
		name  string
		terms Terms
		do    func(*sharer)
		want  []wire.Type
	}{
		{"nothing has come", Terms{}, func(*sharer) {}, nil},
		{"all is acknowledged", Terms{}, func(s *sharer) { s.takes(64, wire.AckNow); s.said() }, nil},
		{"put off", Terms{}, func(s *sharer) { s.takes(64<<10, wire.AckNow|wire.Shared) }, []wire.Type{wire.Ack}},
		{"not due", Terms{}, func(s *sharer) { s.takes(64, 0) }, []wire.Type{wire.Ack}},
		{"of a link that may be resumed", Terms{ReconnectLimit: time.Minute}, func(s *sharer) { s.takes(64, 0) }, []wire.Type{wire.Ack, wire.Bye}},
		{"behind the end of an import, which cannot be said any more", Terms{}, func(s *sharer) {
			s.takes(64, 0)
			s.tmu.Lock()
			s.tx.control = append(s.tx.control, wire.Header{Type: wire.Revoke, Handle: 2, Word: wire.CodeRevoked, Ack: s.seq})
			s.tmu.Unlock()
		}, nil},
		{"behind a frame that is half written", Terms{ReconnectLimit: time.Minute}, func(s *sharer) {
			s.takes(64, 0)
			s.tmu.Lock()
			s.tx.framesQueued++
			s.tmu.Unlock()
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, fd, far := halfLink(t)
			rs, err := NewResponder(e, fd, nil, c.terms, []*Target{{Handle: 1, Mem: memory(t, chunk), Write: true}}, nil, func(uint32) {}, func(error) {})
			if err != nil {
				t.Fatal(err)
			}
			for !rs.tryTokenDisarmed() {
				time.Sleep(time.Millisecond)
			}
			s := &sharer{Responder: rs, t: t, far: far}
			c.do(s)
			rs.Close()
			var got []wire.Type
			var io unix.IO
			for until := time.Now().Add(10 * time.Second); ; {
				n, err := io.Peek(far, make([]byte, 1))
				if err != nil { // the end
					break
				}
				if time.Now().After(until) {
					t.Fatal("the link does not end")
				}
				if n == 0 {
					time.Sleep(time.Millisecond)
					continue
				}
				h, _ := catch(t, far)
				if h.Type == wire.Ack && h.Ack != s.seq {
					t.Errorf("acknowledged are %d messages of %d", h.Ack, s.seq)
				}
				got = append(got, h.Type)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("the far end has %v, want %v", got, c.want)
			}
			rs.releaseArmed()
		})
	}
}

// A message says that others are in flight only where so many are that a sender with fewer in
// flight never waits for it.
func TestCanShareAck(t *testing.T) {
	for _, c := range []struct {
		size, before int
		want         bool
	}{
		{gatherable, 6, false},
		{gatherable, 7, true},
		{chunk, 2, false},
		{chunk, 3, true},
		{chunk + 4, 1000, false},
		{8, 1000, false},
	} {
		rq, _ := requesterTo(t)
		rq.tmu.Lock()
		for range c.before {
			rq.inFlight.Add(rq.inFlight.Len()+1, c.size)
		}
		if got := rq.canShareAck(c.size); got != c.want {
			t.Errorf("with %d messages of %d bytes in flight: %v, want %v", c.before, c.size, got, c.want)
		}
		rq.tmu.Unlock()
	}
}

// The last of many asks for an acknowledgement that may be shared, the first for one of its own.
func TestManyAskForShared(t *testing.T) {
	rq, far := requesterTo(t)
	const n = 8
	for range n {
		sendAsync(t, rq, gatherable)
	}
	for i := range n {
		h, _ := catch(t, far)
		switch got := h.Flags & (wire.AckNow | wire.Shared); {
		case i == 0 && got != wire.AckNow, i == n-1 && got != wire.AckNow|wire.Shared:
			t.Errorf("message %d has flags %#x", i+1, h.Flags)
		}
	}
}
