package link

import (
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/link/pacing"
	"github.com/vmmc-go/vmmc/internal/simnet"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// The time of a load is taken from when all of it was begun until it is written: by a link whose
// loads took no time, and then long, as the test says when they began.
func TestBurstIsTimed(t *testing.T) {
	rq, far := requesterTo(t)
	rq.tmu.Lock()
	rq.tx.burst.LowRTT = true
	rq.tmu.Unlock()
	loads := []int{4, 8, 16, 16, 8, 4}
	all := 0
	for _, n := range loads {
		all += n
	}
	before := time.Now()
	if _, err := rq.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, all*chunk)}); err != nil {
		t.Fatal(err)
	}
	written, begun := 0, uint64(0)
	for i, n := range loads {
		begun++ // all of it is one frame's
		var l pacing.Burst
		for until := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			rq.tmu.Lock()
			if rq.tx.framesQueued == begun { // and the peer has not read it, so it is not written
				l = rq.tx.burst
				after := time.Now()
				if l.FullSince.Before(before) || l.FullSince.After(after) {
					t.Errorf("load %d was full at %v, it was begun between %v and %v", i, l.FullSince, before, after)
				}
				if rq.tx.burst.FullSince = after.Add(time.Hour); i >= 3 {
					rq.tx.burst.FullSince = after.Add(-time.Hour)
				}
			}
			rq.tmu.Unlock()
			if l.LowRTT {
				break
			}
			if i == 0 && rq.begunBeyond(begun) {
				t.Skip("the system's sockets have room for a whole load")
			}
			if time.Now().After(until) {
				t.Fatalf("load %d is not begun: %s", i, rq.state())
			}
		}
		before = time.Now()
		more := n*chunk + wire.HeaderSize
		if written += n; written == all {
			more -= 4 // the last word is in a header
		}
		discardFrom(t, far, more)
	}
}

// begunBeyond says whether more frames than n were begun.
func (rq *Requester) begunBeyond(n uint64) bool {
	rq.tmu.Lock()
	defer rq.tmu.Unlock()
	return rq.tx.framesQueued > n
}

// However much one call writes, one turn of a link writes no more than it did with the smallest
// loads.
func TestPumpIsBounded(t *testing.T) {
	for _, begin := range []pacing.Burst{{}, {LowRTT: true, ExtraParts: pacing.MinParts}, pacing.Full()} {
		rq, far := requesterTo(t)
		rq.tmu.Lock()
		rq.tx.burst = begin
		rq.inboxMu.Lock()
		const size, messages = 600, 2 * maxBurst
		for range messages { // as they come to wait while another one is written
			q := outgoing{msg: Message{Handle: 1, Src: make([]byte, size)}, size: size}
			q.seq, q.serial = rq.assignSeq(&q.msg, q.size)
			rq.inbox.push(q)
			rq.queuedOps.Add(1)
		}
		rq.inboxReady.Store(true)
		rq.inboxMu.Unlock()
		rq.tx.flushing = true // the test comes again
		for turn := uint64(1); turn <= messages/maxBurst; turn++ {
			if rq.tx.unwritten() > 0 {
				rq.tmu.Unlock()
				t.Skipf("the system's sockets have no room for %d bytes", maxBurst*framed(size))
			}
			rq.pump()
			if got := rq.tx.framesWritten; got != turn*maxBurst {
				t.Errorf("loads of %d parts: %d frames are written after %d turns, want %d", begin.MaxParts(), got, turn, turn*maxBurst)
			}
		}
		rq.tx.flushing = false
		rq.pump()
		rq.tmu.Unlock()
		discardFrom(t, far, messages*framed(size))
	}
}

// What one call may write is begun and no more, and all of it arrives.
func TestBurstIsWritten(t *testing.T) {
	for _, c := range []struct {
		load          pacing.Burst
		frames, parts int
	}{{pacing.Burst{}, pacing.MinParts, pacing.MinParts}, {pacing.Burst{LowRTT: true}, 1, pacing.MinParts}, {pacing.Full(), 1, pacing.MaxParts}} {
		rq, far := requesterTo(t)
		rq.tmu.Lock()
		rq.tx.burst = c.load
		rq.tmu.Unlock()
		const size = (pacing.MaxParts + 3) * chunk
		if _, err := rq.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
		rq.tmu.Lock()
		if n, bytes := rq.tx.partCount, rq.tx.burst.Bytes; n != c.frames || bytes != c.parts*chunk {
			t.Errorf("%+v: %d frames of %d bytes are begun, want %d of %d", c.load, n, bytes, c.frames, c.parts*chunk)
		}
		rq.tmu.Unlock()
		for got, over := 0, false; !over; {
			h, payload := catch(t, far)
			if h.Type != wire.Data || h.Off != uint64(got) {
				t.Fatalf("after %d bytes comes %+v", got, h)
			}
			got, over = got+len(payload), h.Flags&wire.Last != 0
			if over && got != size-4 {
				t.Errorf("%d bytes have come, want %d", got, size-4)
			}
		}
	}
}

// Full loads arrive, also when connections end in their middle, and on those that come after them.
func TestManyInFullBursts(t *testing.T) {
	const (
		before = 9 // messages on the first connection that breaks, and half of those on the next one
		window = 4 * pacing.MaxParts
		count  = window + 4*before // so that a window is left beyond what the second one has brought
	)
	for _, size := range []int{gatherable, chunk} {
		for _, broken := range []bool{false, true} {
			var all []faults
			if broken {
				some := int64(inside + before*size + 999)
				all = []faults{{there: []simnet.Fault{{At: some, Kind: simnet.Reset}}}, {there: []simnet.Fault{{At: 2 * some, Kind: simnet.Cut}}}}
			}
			manyInFlight(t, "laden", nil, Terms{ReconnectLimit: time.Minute}, pacing.Full(), size, window, count, all)
		}
	}
}
