package unix

import (
	"errors"
	"sync"
	"unsafe"

	sys "golang.org/x/sys/unix"
)

// Taking memory away from others must not fail because this process is at a limit of its mappings
// or of its address space. A few mappings are therefore kept for it: what fails for want of room is
// tried again without them. Each is shared memory of its own, so that the kernel merges none with a
// neighbour.
const (
	reserves    = 8
	reserveSize = 256 << 10
)

var reserve struct {
	sync.Mutex
	maps [reserves]unsafe.Pointer // nil: could not be had
}

// fill maps what is missing of the reserve; the lock is held.
func fill() {
	for i, p := range reserve.maps {
		if p == nil {
			reserve.maps[i], _ = sys.MmapPtr(-1, 0, nil, reserveSize, sys.PROT_NONE, sys.MAP_SHARED|sys.MAP_ANONYMOUS|sys.MAP_NORESERVE)
		}
	}
}

// empty unmaps the reserve; the lock is held.
func empty() {
	for i, p := range reserve.maps {
		if p != nil && sys.MunmapPtr(p, reserveSize) == nil {
			reserve.maps[i] = nil
		}
	}
}

var filled sync.Once

// keepReserve makes the reserve when memory is first made or mapped that can be shared.
func keepReserve() {
	filled.Do(func() {
		reserve.Lock()
		defer reserve.Unlock()
		fill()
	})
}

// withReserve does f, and again with the reserve's room if there was none.
func withReserve(f func() error) error {
	err := f()
	if !errors.Is(err, sys.ENOMEM) {
		return err
	}
	reserve.Lock()
	defer reserve.Unlock()
	empty()
	err = f()
	fill()
	return err
}

// WithRoom does f, which makes room, while the reserve's is free: the Go runtime may need some for
// a collection, and ends the program where it has none.
func WithRoom(f func()) {
	reserve.Lock()
	empty()
	reserve.Unlock()
	f()
	reserve.Lock()
	fill()
	reserve.Unlock()
}
