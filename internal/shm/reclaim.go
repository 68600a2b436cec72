package shm

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
	"weak"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// maxRetired is how many retired regions may keep their address range until the program's own
// garbage collections find them unused. The system lets a process have about 65,000 mappings
// (vm.max_map_count). The Go runtime needs some too, and ends the program where it cannot have
// them.
const maxRetired = 4096

// A mapping is the address range of a region.
type mapping struct {
	base unsafe.Pointer
	size int
	of   weak.Pointer[Region]
	over atomic.Bool // it is unmapped, or is being unmapped
}

// retired are the mappings of regions that were retired and are not unmapped.
var retired struct {
	mu    sync.Mutex
	maps  map[*mapping]struct{}
	since int  // how many were added since the last collection began
	begun int  // collections, in all
	asked bool // a goroutine is to collect, and has not begun

	collecting sync.Mutex // before mu
}

// noteRetired counts a retired mapping. When there are too many, it starts a collection and does
// not wait for it. A program that has switched collections off, or whose heap is small, may never
// make one itself.
func noteRetired(m *mapping) {
	retired.mu.Lock()
	defer retired.mu.Unlock()
	if retired.maps == nil {
		retired.maps = map[*mapping]struct{}{}
	}
	retired.maps[m] = struct{}{}
	retired.since++
	if tooMany(1) && !retired.asked {
		retired.asked = true
		go func() {
			retired.collecting.Lock()
			defer retired.collecting.Unlock()
			collect()
		}()
	}
}

// tooMany reports whether a collection is worthwhile. What the last one left is still in use, so
// that many must have been retired since. The caller holds retired.mu.
func tooMany(times int) bool {
	return len(retired.maps) >= times*maxRetired && retired.since >= times*maxRetired
}

// collect unmaps all retired regions that are not reachable. retired.collecting is held.
func collect() {
	retired.mu.Lock()
	retired.begun++
	retired.since, retired.asked = 0, false
	retired.mu.Unlock()
	runtime.GC()
	retired.mu.Lock()
	var unused []*mapping
	for m := range retired.maps {
		if m.of.Value() == nil {
			unused = append(unused, m)
		}
	}
	retired.mu.Unlock()
	for _, m := range unused { // their cleanups may run later
		m.unmap()
	}
}

// unmap ends the mapping of a region that is not reachable.
func (m *mapping) unmap() {
	if m.over.Swap(true) {
		return
	}
	_ = unix.Unmap(m.base, m.size)
	retired.mu.Lock()
	delete(retired.maps, m)
	retired.mu.Unlock()
}

// newMapping calls f to make a mapping. It first waits for a collection if regions are retired
// faster than collections find them. Where there is no room, it tries once more after a collection.
func newMapping[T any](f func() (T, error)) (T, error) {
	retired.mu.Lock()
	many := tooMany(2)
	retired.mu.Unlock()
	if many {
		retired.collecting.Lock() // another goroutine may be collecting
		retired.mu.Lock()
		many = tooMany(2)
		retired.mu.Unlock()
		if many {
			collect()
		}
		retired.collecting.Unlock()
	}
	v, err := f()
	if errors.Is(err, syscall.ENOMEM) && makeRoom() {
		return f()
	}
	return v, err
}

// makeRoom unmaps what is retired and not in use. It reports whether anything was retired.
func makeRoom() bool {
	retired.mu.Lock()
	none, begun := len(retired.maps) == 0, retired.begun
	retired.mu.Unlock()
	if none {
		return false
	}
	retired.collecting.Lock()
	defer retired.collecting.Unlock()
	retired.mu.Lock()
	// another goroutine's collection began after the failure, and has ended
	done := retired.begun > begun
	retired.mu.Unlock()
	if !done {
		unix.WithRoom(collect)
	}
	return true
}
