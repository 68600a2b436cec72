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
	full := func(at time.Time, want int) {
		t.Helper()
		n := 1
		for l.more(n) {
			n++
		}
		l.full = at
		l.gone()
		if got := fewestParts + l.extra; got != want {
			t.Errorf("a load of %d parts, the next one of %d, want %d", n, got, want)
		}
	}
	for _, want := range []int{8, 16, 16} {
		full(quick, want)
	}
	l.more(1)
	l.gone()
	if l.extra != mostParts-fewestParts {
		t.Error("a load that was not full changes it")
	}
	for _, want := range []int{8, 4, 4} {
		full(slow, want)
	}
	l = load{}
	for range 3 {
		if l.more(fewestParts) || !l.more(fewestParts-1) || !l.full.IsZero() {
			t.Fatal("where the far end is not near, a load is not always the same")
		}
		l.gone()
	}
}

// What one call may write is begun and no more, and all of it arrives.
func TestLoadIsWritten(t *testing.T) {
	for _, c := range []struct {
		load  load
		parts int
	}{{load{}, fewestParts}, {load{near: true}, fewestParts}, {laden(), mostParts}} {
		o, far := importer(t)
		o.tmu.Lock()
		o.tx.load = c.load
		o.tmu.Unlock()
		const size = (mostParts + 3) * wire.MaxChunk
		if _, err := o.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
		o.tmu.Lock()
		if n := o.tx.count; n != c.parts {
			t.Errorf("%+v: %d frames are begun, want %d", c.load, n, c.parts)
		}
		o.tmu.Unlock()
		swallow(t, far, framed(size))
	}
}

// Full loads arrive, also when connections end in their middle.
func TestManyInFullLoads(t *testing.T) {
	const window = 2 * mostParts
	for _, size := range []int{gatherable, wire.MaxChunk} {
		for _, broken := range []bool{false, true} {
			var all []faults
			if broken {
				some := int64(inside + 9*size + 999)
				all = []faults{{there: []simnet.Fault{{At: some, Kind: simnet.Reset}}}, {there: []simnet.Fault{{At: 2 * some, Kind: simnet.Cut}}}}
			}
			manyInFlight(t, "laden", nil, Terms{Limit: time.Minute}, laden(), size, window, 2*window+3, all)
		}
	}
}
