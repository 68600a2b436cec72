package shm

import (
	"fmt"
	"os"
	"unsafe"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// A region of which parts are shared: several exports of one memory, each with
// its own end.

// OpenPart is [Open] for n bytes at off of memory that has size bytes: it maps
// the pages that they lie in, and says where they are in the region.
func OpenPart(fd, size, off, n int, write bool) (r *Region, at int, err error) {
	if off < 0 || n <= 0 || off > size-n || size != RoundUp(size) {
		_ = unix.Close(fd)
		return nil, 0, fmt.Errorf("%w: %d bytes at %d of memory that has %d", ErrAnnounced, n, off, size)
	}
	at = off % PageSize
	r, err = openAt(fd, size, off-at, RoundUp(at+n), write, true)
	return r, at, err
}

// DescriptorOf is [Region.Descriptor] for whoever is to reach n bytes at off. ok
// is false, without an error, if they do not lie in what the descriptor gives,
// because some of their pages have moved.
func (r *Region) DescriptorOf(off, n int) (fd int, ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fd < 0 {
		return -1, false, os.ErrClosed
	}
	for i := off / PageSize; r.moved != nil && i*PageSize < off+n; i++ {
		if r.moved[i] {
			return -1, false, nil
		}
	}
	r.handed = true
	fd, err = unix.Dup(r.fd)
	return fd, err == nil, err
}

// Handed says whether a descriptor of the pages has left since the region was
// made or renewed as a whole.
func (r *Region) Handed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.handed
}

// Whole says whether descriptors give all of the region's pages.
func (r *Region) Whole() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.moved == nil
}

// RenewPart is [Region.Renew] for n bytes at off, whole pages. They are out of
// what descriptors give, those handed out later too, until the whole region is
// renewed; the other pages stay what they are. Whoever is handed a descriptor
// meanwhile does not get them.
func (r *Region) RenewPart(name string, off, n int) error {
	r.renewing.Lock()
	defer r.renewing.Unlock()
	for _, s := range r.runs(off, n) {
		r.mark(s, true) // before the copying: nobody is to write to the old pages from here on
		fd, err := r.replace(name, s.off, s.n, []span{s})
		if err != nil {
			r.mark(s, false)
			return err
		}
		_ = unix.Close(fd) // the mapping keeps the pages, and nobody else is to have them
	}
	return nil
}

// span is n bytes from off on, whole pages.
type span struct{ off, n int }

// runs are the spans within n bytes at off that have not moved.
func (r *Region) runs(off, n int) (out []span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.moved == nil && n > 0 {
		return []span{{off, n}}
	}
	for at := off; at < off+n; at += PageSize {
		last := len(out) - 1
		switch {
		case r.moved[at/PageSize]:
		case last >= 0 && out[last].off+out[last].n == at:
			out[last].n += PageSize
		default:
			out = append(out, span{at, PageSize})
		}
	}
	return out
}

func (r *Region) mark(s span, moved bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.moved == nil {
		r.moved = make([]bool, r.size/PageSize)
	}
	for i := s.off / PageSize; i < (s.off+s.n)/PageSize; i++ {
		r.moved[i] = moved
	}
}

// replace maps a fresh memfd with a copy of n bytes over them, and clears those
// spans of old pages that are others' too. The caller owns the memfd.
func (r *Region) replace(name string, off, n int, others []span) (fd int, err error) {
	if fd, err = unix.Memfd(name, int64(n)); err != nil {
		return -1, err
	}
	p, err := unix.Map(fd, n, true, true)
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	Copy(unsafe.Slice((*byte)(p), n), r.Bytes()[off:off+n])
	_ = unix.Unmap(p, n)
	r.mu.Lock()
	defer r.mu.Unlock()
	err = os.ErrClosed
	if !r.retired && r.fd >= 0 {
		// The old pages are cleared by a second mapping made before they leave this
		// range, so that a kept mapping shows none of what came before.
		old := r.aliases(others)
		if err = unix.MapOver(unsafe.Add(r.base, off), fd, n); err == nil {
			for _, b := range old {
				clear(b)
			}
		}
		for _, b := range old {
			_ = unix.Unmap(unsafe.Pointer(unsafe.SliceData(b)), len(b))
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// aliases are second mappings of spans; one that the system refuses is left out,
// and those pages are not cleared.
func (r *Region) aliases(spans []span) (out [][]byte) {
	for _, s := range spans {
		if p, err := unix.Alias(unsafe.Add(r.base, s.off), s.n); err == nil {
			out = append(out, unsafe.Slice((*byte)(p), s.n))
		}
	}
	return out
}
