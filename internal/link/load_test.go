package link

import (
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/simnet"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// laden is the load of a connection that has taken full ones in no time.
func laden() load { return load{near: true, extra: mostParts - fewestParts} }

// Only a load that was full and took no time makes the next one more, and one that took long makes it less.
func TestLoadGrows(t *testing.T) {
	quick, slow := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	l := load{near: true}
	full := func(at time.Time, size, want int) {
		t.Helper()
		n := 1
		for l.more(n, size) {
			n++
		}
		if !l.full.IsZero() {
			l.full = at
		}
		l.gone()
		if got := l.parts(); got != want {
			t.Errorf("a load of %d parts of %d bytes, the next one of %d, want %d", n, size, got, want)
		}
	}
	for _, want := range []int{8, 16, 16} {
		full(quick, gatherable-4, want)
	}
	l.more(1, chunk)
	l.gone()
	if l.parts() != mostParts {
		t.Error("a load that was not full changes it")
	}
	for _, want := range []int{8, 4, 4} {
		full(slow, gatherable-4, want)
	}
	for range 3 {
		full(quick, 1<<10, fewestParts)
	}
	l = load{near: true, extra: mostParts - fewestParts}
	full(slow, 1<<10, mostParts)
	l = load{}
	for range 3 {
		if l.more(fewestParts, chunk) || !l.more(fewestParts-1, chunk) || !l.full.IsZero() {
			t.Fatal("where the far end is not near, a load is not always the same")
		}
		l.gone()
	}
}

// A frame to a near end is as long as what the load has room for, one to another end is no longer than a chunk, and a load weighs what it has of chunks.
func TestFrameFillsLoad(t *testing.T) {
	l := load{near: true}
	for _, c := range []struct {
		count, size int
		more        bool
		most        int
	}{{1, chunk / 2, true, fewestParts*chunk - chunk/2}, {2, 3 * chunk, true, chunk}, {3, chunk/2 - 4, false, chunk}} {
		if more := l.more(c.count, c.size); more != c.more || l.most() != c.most {
			t.Errorf("behind a frame of %d bytes, the %d., may come more: %v, of %d bytes, want %v, %d", c.size, c.count, more, l.most(), c.more, c.most)
		}
	}
	l.bytes += 4
	if w := l.weight(3); w != 4 {
		t.Errorf("three frames of %d bytes weigh %d parts, want 4", l.bytes, w)
	}
	if w := l.weight(9); w != 9 {
		t.Errorf("nine frames weigh %d parts", w)
	}
	l.full = time.Time{}
	l.gone()
	if l.most() != fewestParts*chunk {
		t.Errorf("after a load a frame may have %d bytes, want %d", l.most(), fewestParts*chunk)
	}
	if l = laden(); l.most() != wire.MaxChunk {
		t.Errorf("a frame that is the largest load may have %d bytes, want %d", l.most(), wire.MaxChunk)
	}
	l.near = false
	if l.more(1, chunk); l.most() != chunk {
		t.Errorf("a frame to an end that is not near may have %d bytes, want %d", l.most(), chunk)
	}
}

// The time of a load is taken from when all of it was begun until it is written: by a link whose loads took no time, and then long, as
// the test says when they began.
func TestLoadIsTimed(t *testing.T) {
	o, far := importer(t)
	o.tmu.Lock()
	o.tx.load.near = true
	o.tmu.Unlock()
	loads := []int{4, 8, 16, 16, 8, 4}
	all := 0
	for _, n := range loads {
		all += n
	}
	before := time.Now()
	if _, err := o.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, all*chunk)}); err != nil {
		t.Fatal(err)
	}
	written, begun := 0, uint64(0)
	for i, n := range loads {
		begun++ // all of it is one frame's
		var l load
		for until := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			o.tmu.Lock()
			if o.tx.begun == begun { // and nobody has read it, so it is not written
				l = o.tx.load
				after := time.Now()
				if l.full.Before(before) || l.full.After(after) {
					t.Errorf("load %d was full at %v, it was begun between %v and %v", i, l.full, before, after)
				}
				if o.tx.load.full = after.Add(time.Hour); i >= 3 {
					o.tx.load.full = after.Add(-time.Hour)
				}
			}
			o.tmu.Unlock()
			if l.near {
				break
			}
			if i == 0 && o.begunBeyond(begun) {
				t.Skip("the system's sockets have room for a whole load")
			}
			if time.Now().After(until) {
				t.Fatalf("load %d is not begun: %s", i, o.state())
			}
		}
		before = time.Now()
		more := n*chunk + wire.HeaderSize
		if written += n; written == all {
			more -= 4 // the last word is in a header
		}
		swallow(t, far, more)
	}
}

// begunBeyond says whether more frames than n were begun.
func (o *Out) begunBeyond(n uint64) bool {
	o.tmu.Lock()
	defer o.tmu.Unlock()
	return o.tx.begun > n
}

// However much one call writes, one turn of a link writes no more than it did with the smallest loads.
func TestTurnIsBounded(t *testing.T) {
	for _, begin := range []load{{}, {near: true, extra: fewestParts}, laden()} {
		o, far := importer(t)
		o.tmu.Lock()
		o.tx.load = begin
		o.imu.Lock()
		const size, messages = 600, 2 * burst
		for range messages { // as they come to wait while another one is written
			q := outgoing{m: Message{Handle: 1, Src: make([]byte, size)}, size: size}
			q.seq, q.serial = o.numbers(&q.m, q.size)
			o.inbox.push(q)
			o.queued.Add(1)
		}
		o.due.Store(true)
		o.imu.Unlock()
		o.tx.soon = true // the test comes again
		for turn := uint64(1); turn <= messages/burst; turn++ {
			if o.tx.left() > 0 {
				o.tmu.Unlock()
				t.Skipf("the system's sockets have no room for %d bytes", burst*framed(size))
			}
			o.pump()
			if got := o.tx.gone; got != turn*burst {
				t.Errorf("loads of %d parts: %d frames are written after %d turns, want %d", begin.parts(), got, turn, turn*burst)
			}
		}
		o.tx.soon = false
		o.pump()
		o.tmu.Unlock()
		swallow(t, far, messages*framed(size))
	}
}

// What one call may write is begun and no more, and all of it arrives.
func TestLoadIsWritten(t *testing.T) {
	for _, c := range []struct {
		load          load
		frames, parts int
	}{{load{}, fewestParts, fewestParts}, {load{near: true}, 1, fewestParts}, {laden(), 1, mostParts}} {
		o, far := importer(t)
		o.tmu.Lock()
		o.tx.load = c.load
		o.tmu.Unlock()
		const size = (mostParts + 3) * chunk
		if _, err := o.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
		o.tmu.Lock()
		if n, bytes := o.tx.count, o.tx.load.bytes; n != c.frames || bytes != c.parts*chunk {
			t.Errorf("%+v: %d frames of %d bytes are begun, want %d of %d", c.load, n, bytes, c.frames, c.parts*chunk)
		}
		o.tmu.Unlock()
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
func TestManyInFullLoads(t *testing.T) {
	const (
		before = 9 // messages on the first connection that breaks, and half of those on the next one
		window = 4 * mostParts
		count  = window + 4*before // so that a window is left beyond what the second one has brought
	)
	for _, size := range []int{gatherable, chunk} {
		for _, broken := range []bool{false, true} {
			var all []faults
			if broken {
				some := int64(inside + before*size + 999)
				all = []faults{{there: []simnet.Fault{{At: some, Kind: simnet.Reset}}}, {there: []simnet.Fault{{At: 2 * some, Kind: simnet.Cut}}}}
			}
			manyInFlight(t, "laden", nil, Terms{Limit: time.Minute}, laden(), size, window, count, all)
		}
	}
}
