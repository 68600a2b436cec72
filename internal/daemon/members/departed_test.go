package members

import (
	"runtime"
	"slices"
	"testing"

	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

func nth(i int) nodeproto.ProcessID {
	return nodeproto.ProcessID{
		Node: "one", PID: uint32(i % 5), Incarnation: uint64(i) * 0x9e3779b97f4a7c15,
	}
}

// Of those that have ended the latest are known, in order, however many there were.
func TestLatestDeparted(t *testing.T) {
	var d departed
	n := 0
	for _, to := range []int{
		0, 1, 10, maxDeparted - 1, maxDeparted, maxDeparted + 1, 3*maxDeparted + 7,
	} {
		for ; n < to; n++ {
			d.add(nth(n))
		}
		first := max(0, n-maxDeparted)
		for i := max(0, first-3); i < first; i++ {
			if d.has(nth(i)) {
				t.Errorf("of %d, the %d. is known still", n, i)
			}
		}
		for i := first; i < n; i += max(1, (n-first)/10) {
			if !d.has(nth(i)) {
				t.Errorf("of %d, the %d. is not known", n, i)
			}
		}
		if o := nth(n); n > 0 && (d.has(o) || d.has(nodeproto.ProcessID{
			Node: "two", PID: nth(n - 1).PID, Incarnation: nth(n - 1).Incarnation,
		})) {
			t.Errorf("of %d, one is known that was not among them", n)
		}
		var want, got []nodeproto.ProcessID
		for i := max(first, n-3); i < n; i++ {
			want = append(want, nth(i))
		}
		for _, e := range d.latest(3) {
			got = append(got, e.ProcessID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("of %d, the latest are %v, want %v", n, got, want)
		}
	}
}

// Those that have ended take no more memory as more do.
func TestDepartedTakeNoMoreMemory(t *testing.T) {
	var d departed
	n := 0
	heap := func(to int) int64 {
		for ; n < to; n++ {
			d.add(nth(n))
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap(maxDeparted)
	if grown := heap(100*maxDeparted) - before; grown > 100<<10 {
		t.Errorf("%d more took %d bytes", 99*maxDeparted, grown)
	}
	runtime.KeepAlive(&d)
}
