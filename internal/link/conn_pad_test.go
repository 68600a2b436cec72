package link

import (
	"bytes"
	"testing"

	"github.com/vmmc-go/vmmc/internal/simnet"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// longest is what a TCP socket takes the longest segment to be.
func (s *stream) longest(t *testing.T) int {
	t.Helper()
	s.rmu.Lock()
	defer s.rmu.Unlock()
	n, err := unix.LongestSegment(s.fd)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Behind some short messages, or answers, one long segment is sent, so that TCP acknowledges no
// sooner than the receiver takes them out.
func TestPad(t *testing.T) {
	mem := memory(t, 4096)
	near, far := tcpPair(t)
	a, _ := engine(t)
	b, _ := engine(t)
	rs, err := NewResponder(b, far, nil, Terms{}, []*Target{{Handle: 1, Mem: mem, Write: true, Read: true}}, nil, func(uint32) {}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	rq, err := NewRequester(a, near, nil, Terms{}, func(uint32, uint64, error) {}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	if !rq.rx.canPeek {
		t.Skip("this kernel has no SO_PEEK_OFF for TCP: before Linux 6.9")
	}
	for i := range 2 * padAfter {
		if _, err := rq.Send(t.Context(), Message{Handle: 1, Off: 100, Src: bytes.Repeat([]byte{byte(i + 1)}, 100)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := rq.WaitApplied(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if rq.bulkInFlight() {
		t.Error("a pad is taken for a long message that is not acknowledged")
	}
	const all = wire.HeaderSize + len(padding)
	if n := rs.longest(t); n < all {
		t.Errorf("after short messages the exporter's longest segment is %d bytes, want %d", n, all)
	}
	if n := rq.longest(t); n >= all {
		t.Errorf("before any answer the importer's longest segment is %d bytes", n)
	}
	got := make([]byte, 100)
	for range 2 * padAfter {
		if err := rq.Get(t.Context(), Read{Handle: 1, Off: 100, Dst: got}); err != nil {
			t.Fatal(err)
		}
		if want := bytes.Repeat([]byte{2 * padAfter}, 100); !bytes.Equal(got, want) {
			t.Fatalf("got %x, want %x", got, want)
		}
	}
	if n := rq.longest(t); n < all {
		t.Errorf("after short answers the importer's longest segment is %d bytes, want %d", n, all)
	}
}

// padSoon makes a pad due after so many short frames of either side, at least one; the frame that
// makes it due sends it.
func (p *pair) padSoon(n int) {
	for _, s := range []*stream{&p.out.stream, &p.in.stream} {
		s.tmu.Lock()
		s.tx.framesToPad = n
		s.tmu.Unlock()
	}
}

// A connection that ends in a pad, or beside it, loses nothing.
func TestConnLostInAPad(t *testing.T) {
	const size = wire.HeaderSize + 96 // on the wire
	for at := int64(size); at < 3*size+wire.HeaderSize+int64(len(padding)); at += 53 {
		mem := memory(t, 4096)
		b := bridged(t, t, Terms{}, []*Target{{Handle: 1, Mem: mem, Write: true, Read: true}}, faults{there: []simnet.Fault{{At: at, Kind: simnet.Cut}}})
		b.padSoon(2)
		for i := range 8 {
			if _, err := b.out.Send(t.Context(), Message{Handle: 1, Off: uint64(100 * i), Src: bytes.Repeat([]byte{byte(i + 1)}, 100)}); err != nil {
				t.Fatal(at, err)
			}
		}
		if err := b.out.WaitApplied(t.Context(), nil); err != nil {
			t.Fatal(at, err)
		}
		for i := range 800 {
			if mem[i] != byte(i/100+1) {
				t.Fatalf("cut at %d: byte %d is %d", at, i, mem[i])
			}
		}
		if n, resumed := b.out.ConnStats(); n != 1 || resumed != 1 {
			t.Errorf("cut at %d: %d connections were lost, %d resumed", at, n, resumed)
		}
		b.close()
	}
}
