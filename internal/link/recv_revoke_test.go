package link

import (
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/link/pacing"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// An export can end while an answer to a get of one importer is in flight, and another importer's
// message has just come: what is left of the answer is copied, and the race detector has nothing to
// say of it.
func TestWithdrawnBesideAStore(t *testing.T) {
	const size = 1 << 20
	mem := make([]byte, size) // of the heap, which the detector knows
	export := func() (rs *Responder, far int) {
		e, fd, far := halfLink(t)
		rs, err := NewResponder(e, fd, nil, Terms{}, []*Target{{Handle: 1, Mem: mem, Write: true, Read: true}}, nil, func(uint32) {}, func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		return rs, far
	}
	answers, getter := export()
	_, putter := export()
	sendRaw(t, getter, wire.Header{Type: wire.Get, Handle: 1, Seq: 1, Size: size}, nil)
	stuck := func() bool {
		answers.tmu.Lock()
		defer answers.tmu.Unlock()
		return answers.tx.writeBlocked.Load() && answers.tx.unwritten() > 0
	}
	for until := time.Now().Add(10 * time.Second); !stuck(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("a socket has taken %d bytes that are never read", size)
		}
	}
	sendRaw(t, putter, wire.Header{Type: wire.Data, Flags: wire.Last | wire.AckNow, Handle: 1, Seq: 1, Off: size - 128, Size: 64, Chunk: 60}, make([]byte, 60))
	if h, _ := catch(t, putter); h.Type != wire.Ack {
		t.Errorf("in the place of the acknowledgement is %+v", h)
	}
	answers.Revoke(1)
	for got := 0; got < size; {
		h, payload := catch(t, getter)
		if h.Type != wire.Reply {
			t.Fatalf("after %d bytes of the answer comes %+v", got, h)
		}
		got += len(payload)
		if h.Flags&wire.Last != 0 {
			got += 4
		}
	}
}

// Each import of a link that ends asks for copies of what is left, which is long: it is copied
// once.
func TestPayloadDetachedOnce(t *testing.T) {
	rq, far := requesterTo(t)
	const size = 2 * pacing.MaxParts * chunk
	rq.tmu.Lock()
	rq.tx.burst = pacing.Burst{ExtraParts: pacing.MaxParts - pacing.MinParts} // not near: there it would be one frame
	rq.tmu.Unlock()
	src := make([]byte, size)
	if _, err := rq.SendAsync(t.Context(), Message{Handle: 1, Src: src}); err != nil {
		t.Fatal(err)
	}
	rq.tmu.Lock()
	count, last := rq.tx.partCount, &rq.tx.parts[pacing.MaxParts-1]
	if count != pacing.MaxParts {
		rq.tmu.Unlock()
		t.Fatalf("%d frames are begun, want %d", count, pacing.MaxParts)
	}
	lent := &last.payload[0]
	rq.tx.detachPayload()
	own := &last.payload[0]
	if own == lent {
		t.Error("what is left is not copied")
	}
	if rq.tx.detachPayload(); &last.payload[0] != own {
		t.Error("a copy is copied")
	}
	rq.tmu.Unlock()
	discardFrom(t, far, pacing.MaxParts*(chunk+wire.HeaderSize))
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) { // the next load's memory is lent again
		rq.tmu.Lock()
		begun, kept := rq.tx.framesQueued, last.copied
		rq.tmu.Unlock()
		if begun > pacing.MaxParts {
			if kept {
				t.Error("what is lent is taken for a copy")
			}
			break
		}
		if time.Now().After(until) {
			t.Fatalf("nothing more is begun: %s", rq.state())
		}
	}
	discardFrom(t, far, framed(size)-pacing.MaxParts*(chunk+wire.HeaderSize))
}
