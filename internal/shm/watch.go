package shm

import (
	"fmt"
	"os"
	"unsafe"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// newPrivate returns a region of zeros that no other process can ever map. Reading it takes no
// memory.
func newPrivate(size int) (*Region, error) {
	p, err := newMapping(func() (unsafe.Pointer, error) { return unix.MapPrivate(size) })
	if err != nil {
		return nil, err
	}
	return own(p, size, true, -1), nil
}

// Watch reports which pages of a part of a region this process has stored to, through that mapping
// of it. Stores through another mapping are not seen.
type Watch struct {
	r  *Region // Keeps the pages mapped while they are watched.
	w  *unix.PageWatch
	of int
}

// PageRun is a run of whole pages, as offsets in the watched part.
type PageRun = unix.PageRun

// NewWatch protects n bytes of r from off on, whole pages. The region must not be renewed while it
// is watched: that would end the watching silently.
func NewWatch(r *Region, off, n int) (*Watch, error) {
	if off%PageSize != 0 || n%PageSize != 0 || n <= 0 || off < 0 || off+n > r.size {
		return nil, fmt.Errorf("watch %d bytes at %d of %d: not whole pages of it", n, off, r.size)
	}
	w, err := unix.NewPageWatch(unsafe.Add(r.base, off), n)
	if err != nil {
		return nil, err
	}
	return &Watch{r: r, w: w, of: n}, nil
}

// Protect makes the next store to each of these pages be reported.
func (w *Watch) Protect(off, n int) error {
	if off < 0 || n < 0 || off+n > w.of {
		return fmt.Errorf("protect %d bytes at %d of %d", n, off, w.of)
	}
	return w.w.Protect(off, n)
}

// Written finds runs of pages in [from, to) that were stored to since they were protected. With
// protect it protects them again in the same step. It stops when out is full; end is how far it has
// come.
func (w *Watch) Written(from, to int, protect bool, out []PageRun) (n, end int, err error) {
	if from < 0 || to > w.of {
		return 0, from, fmt.Errorf("look at %d to %d of %d", from, to, w.of)
	}
	return w.w.Written(from, to, protect, out)
}

// Close ends the watching; stores continue as if there had been none.
func (w *Watch) Close() { w.w.Close() }

// CanWatch returns why this system cannot watch memory, or nil.
func CanWatch() error {
	r, err := New("vmmc-probe", PageSize, false)
	if err != nil {
		return err
	}
	defer r.Retire()
	w, err := NewWatch(r, 0, PageSize)
	if err != nil {
		return err
	}
	defer w.Close()
	var run [1]PageRun
	r.Bytes()[0] = 1
	for _, want := range []int{1, 0} {
		n, _, err := w.Written(0, PageSize, true, run[:])
		if err != nil {
			return err
		}
		if n != want {
			return fmt.Errorf("%d pages were stored to, the system says %d", want, n)
		}
	}
	return nil
}

// Alias puts the pages of from, n bytes of it at off, in the place of r's pages from at on: both
// are the same memory until [Region.Unalias]. All are whole pages. Neither region is renewed
// meanwhile.
func (r *Region) Alias(at int, from *Region, off, n int) error {
	if (at|off|n)%PageSize != 0 || at < 0 || off < 0 || n <= 0 || at+n > r.size || off+n > from.size {
		return fmt.Errorf("alias %d bytes at %d of %d: not whole pages of it", n, off, from.size)
	}
	from.mu.Lock()
	defer from.mu.Unlock()
	if from.retired {
		return os.ErrClosed
	}
	return unix.MapAlias(unsafe.Add(r.base, at), unsafe.Add(from.base, off), n)
}

// Unalias gives r its own pages back, with what the others hold now. Stores that are made meanwhile
// may be lost.
func (r *Region) Unalias(at, n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.retired || r.fd < 0 {
		return os.ErrClosed
	}
	p, err := newMapping(func() (unsafe.Pointer, error) { return unix.MapAt(r.fd, at, n, true, false) })
	if err != nil {
		return err
	}
	Copy(unsafe.Slice((*byte)(p), n), r.Bytes()[at:at+n])
	_ = unix.Unmap(p, n)
	return unix.MapBack(unsafe.Add(r.base, at), r.fd, at, n)
}
