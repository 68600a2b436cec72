package link

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// fill writes bells until the socket has no room, of which the link knows nothing but, later, their
// number.
func fill(t *testing.T, fd int) (bells int) {
	t.Helper()
	b := make([]byte, wire.HeaderSize)
	h := wire.Header{Type: wire.Bell}
	var io unix.IO
	for {
		h.Put(b, uint32(bells))
		switch n, err := io.Send(fd, b, nil); {
		case err != nil || n != 0 && n != len(b):
			t.Fatalf("the socket has taken %d bytes of bell %d: %v", n, bells, err)
		case n == 0:
			return bells
		}
		bells++
	}
}

// queueFiller says how many frames the connection has had that the link knows nothing of.
func (s *stream) queueFiller(frames int) {
	s.tmu.Lock()
	s.tx.frameNumber = uint32(frames)
	s.tmu.Unlock()
}

// waitQueued waits for the first frame, of which the socket has not taken all.
func (s *stream) waitQueued(t *testing.T) {
	t.Helper()
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		s.tmu.Lock()
		begun, gone := s.tx.framesQueued, s.tx.framesWritten
		s.tmu.Unlock()
		switch {
		case begun == 1 && gone == 0:
			return
		case begun > 0 || time.Now().After(until):
			t.Fatalf("%d frames are begun and %d written, want 1 and 0", begun, gone)
		}
	}
}

// A get for whose question the socket has no room is asked when there is.
func TestGetWhileWriteBlocked(t *testing.T) {
	e, fd, far := halfLink(t)
	bells := fill(t, fd)
	rq, err := NewRequester(e, fd, nil, Terms{}, func(uint32, uint64, error) {}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	rq.queueFiller(bells)
	got := make([]byte, 8)
	over := make(chan error, 1)
	go func() { over <- rq.Get(t.Context(), Read{Handle: 7, Off: 16, Dst: got}) }()
	rq.waitQueued(t) // else the bells might be gone before
	for range bells {
		if h, _ := catch(t, far); h.Type != wire.Bell {
			t.Fatalf("in the place of a bell is %+v", h)
		}
	}
	h, _ := catch(t, far)
	if h.Type != wire.Get || h.Seq != 1 || h.Handle != 7 || h.Off != 16 || h.Size != 8 {
		t.Fatalf("in the place of the get is %+v", h)
	}
	sendRaw(t, far, wire.Header{Type: wire.Reply, Flags: wire.Last, Handle: 7, Seq: 1, Size: 8, Chunk: 4, Word: 0x44434241}, []byte("1234"))
	if err := <-over; err != nil || string(got) != "1234ABCD" {
		t.Errorf("got %q: %v", got, err)
	}
}

// Answers come in the order of their gets: a short one at once, or in its turn where it is not
// alone, the socket has no room, or a long one is before it.
func TestReplyWhileWriteBlocked(t *testing.T) {
	mem := memory(t, 1<<20)
	for i := range mem {
		mem[i] = byte(i / 64)
	}
	e, fd, far := halfLink(t)
	bells := fill(t, fd)
	rs, err := NewResponder(e, fd, nil, Terms{}, []*Target{{Handle: 7, Mem: mem, Write: true, Read: true}}, nil, func(uint32) {}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	rs.queueFiller(bells)
	gets := []wire.Header{{Off: 0, Size: 64}, {Off: 64, Size: 64}, {Off: 128, Size: 100_000}, {Off: 256, Size: 4}, {Off: 4096, Size: 64}}
	for i := range gets {
		gets[i].Type, gets[i].Seq, gets[i].Handle = wire.Get, uint64(i+1), 7
	}
	ask := func(gets []wire.Header) {
		for _, h := range gets {
			sendRaw(t, far, h, nil)
		}
	}
	ask(gets[:1])
	rs.waitQueued(t) // alone, and no room
	ask(gets[1:4])
	for range bells {
		if h, _ := catch(t, far); h.Type != wire.Bell {
			t.Fatalf("in the place of a bell is %+v", h)
		}
	}
	answered := func(g *wire.Header) {
		t.Helper()
		var b []byte
		for last := false; !last; {
			h, payload := catch(t, far)
			if h.Type != wire.Reply || h.Seq != g.Seq || h.Off != uint64(len(b)) {
				t.Fatalf("in the place of the answer to get %d, at %d, is %+v", g.Seq, len(b), h)
			}
			b = append(b, payload...)
			if last = h.Flags&wire.Last != 0; last {
				b = append(b, byte(h.Word), byte(h.Word>>8), byte(h.Word>>16), byte(h.Word>>24))
			}
		}
		if !bytes.Equal(b, mem[g.Off:g.Off+g.Size]) {
			t.Errorf("the answer to get %d is wrong", g.Seq)
		}
	}
	for i := range gets[:4] {
		answered(&gets[i])
	}
	ask(gets[4:])
	answered(&gets[4])
}

// dribble is a cipher that changes nothing, and takes a few bytes at a time, or none.
type dribble struct {
	io, in unix.IO
	n      int
}

func (d *dribble) Send(fd int, pieces ...[]byte) (int, error) {
	d.n = (d.n + 1) % 5
	for _, p := range pieces {
		if len(p) > 0 && d.n > 0 {
			return d.io.Send(fd, p[:min(len(p), 13*d.n)], nil)
		}
	}
	return 0, nil
}

func (d *dribble) Recv(fd int, b []byte) (int, error) {
	if fd < 0 {
		return 0, nil
	}
	return d.in.Recv(fd, b, nil)
}

func (d *dribble) HasData() bool { return false }
func (d *dribble) Drop()         {}

// Questions and answers of which the socket takes a part come whole and in order, beside all else
// that is sent.
func TestShortFrameInParts(t *testing.T) {
	const n, words = 4, 100
	mem := memory(t, 1<<16)
	for i := range words {
		mem[4*i] = byte(i)
	}
	counters := mem[1<<15:]
	for _, checked := range []bool{false, true} {
		fd, far, err := unix.StreamPair()
		if err != nil {
			t.Fatal(err)
		}
		clear(counters)
		a, _ := engine(t)
		b, _ := engine(t)
		gone := func(context.Context, uint64, uint64, uint32) (int, Cipher, wire.Answer, error) {
			return -1, nil, wire.Answer{}, ErrGone
		}
		terms := func() Terms {
			return Terms{Checked: checked, ReconnectLimit: time.Minute, Cipher: new(dribble), Redial: gone}
		}
		rs, err := NewResponder(b, far, nil, terms(), []*Target{{Handle: 1, Mem: mem, Write: true, Read: true}}, nil, func(uint32) {}, func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		rq, err := NewRequester(a, fd, nil, terms(), func(uint32, uint64, error) {}, func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		p := &pair{in: rs, out: rq}
		p.padSoon(words)
		var all sync.WaitGroup
		for g := range n {
			all.Go(func() {
				got := make([]byte, 4*words)
				for i := range words {
					size := 4 * (i + 1)
					if err := rq.Get(t.Context(), Read{Handle: 1, Dst: got[:size]}); err != nil || !bytes.Equal(got[:size], mem[:size]) {
						t.Errorf("get %d: %x, %v", i, got[:size], err)
						return
					}
					if old, err := rq.Atomic(t.Context(), AtomicOp{Handle: 1, Off: 1<<15 + 8*uint64(g), Op: wire.FetchAdd, A: 1}); err != nil || old != uint64(i) {
						t.Errorf("atomic %d: %d, %v", i, old, err)
						return
					}
					if _, err := rq.Send(t.Context(), Message{Handle: 1, Off: 1<<14 + 8*uint64(g), Src: []byte{byte(i), 0, 0, 0}}); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		if err := rq.WaitApplied(t.Context(), nil); err != nil {
			t.Error(err)
		}
		for g := range n {
			if mem[1<<14+8*g] != words-1 || counters[8*g] != words {
				t.Errorf("of goroutine %d are there message %d and %d atomics, want %d and %d", g, mem[1<<14+8*g], counters[8*g], words-1, words)
			}
		}
		if lost, _ := rq.ConnStats(); lost > 0 {
			t.Errorf("the connection was lost %d times", lost)
		}
	}
}
