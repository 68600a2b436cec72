package shm

import (
	"fmt"
	"os"
	"unsafe"

	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// Regions of which parts are shared: several exports of one memory, each with its own end.

// OpenPart is [Open] for n bytes at off of memory that has size bytes. It maps the pages that they
// lie in, and returns their offset in the region.
func OpenPart(fd, size, off, n int, write bool) (r *Region, at int, err error) {
	if off < 0 || n <= 0 || off > size-n || size != RoundUp(size) {
		foreign.Close(fd)
		return nil, 0, fmt.Errorf("%w: %d bytes at %d of memory that has %d", ErrAnnounced, n, off, size)
	}
	at = off % PageSize
	r, err = openAt(fd, size, off-at, RoundUp(at+n), write, true)
	return r, at, err
}

// DescriptorOf is [Region.Descriptor] for a process that is to reach n bytes at off. ok is false,
// without an error, if these bytes are not in what the descriptor gives, because some of their
// pages have moved.
func (r *Region) DescriptorOf(off, n int) (fd int, ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.private {
		return -1, false, nil
	}
	if r.fd < 0 {
		return -1, false, os.ErrClosed
	}
	for i := off / PageSize; r.moved != nil && i*PageSize < off+n; i++ {
		if r.moved[i] {
			return -1, false, nil
		}
	}
	fd, err = unix.Dup(r.fd)
	r.shared = r.shared || err == nil
	return fd, err == nil, err
}

// Shared reports whether a descriptor of the pages was given out since the region was made or
// renewed as a whole.
func (r *Region) Shared() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shared
}

// Whole reports whether descriptors give all of the region's pages.
func (r *Region) Whole() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.moved == nil // private memory has moved, too
}

// RenewPart is [Region.Renew] for n bytes at off, whole pages. Descriptors, later ones too, do not
// give these pages until the whole region is renewed; the other pages stay what they are. A process
// that receives a descriptor meanwhile does not get them. The pages are copied in place.
func (r *Region) RenewPart(off, n int) error {
	r.renewing.Lock()
	defer r.renewing.Unlock()
	if err := r.copyPending(); err != nil {
		return err
	}
	for _, s := range r.runs(off, n) {
		if err := r.own(s); err != nil {
			return err
		}
	}
	return nil
}

// span is n bytes from off on, whole pages.
type span struct{ off, n int }

// runs returns the spans within n bytes at off that have not moved.
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

// mark records that pages have moved. The caller holds mu.
func (r *Region) mark(s span) {
	if r.moved == nil {
		r.moved = make([]bool, r.size/PageSize)
	}
	for i := s.off / PageSize; i < (s.off+s.n)/PageSize; i++ {
		r.moved[i] = true
	}
}

// replace maps a fresh memfd with a copy of the region over it, and clears the old pages of the
// given runs, which other processes have mapped too. The caller owns the memfd.
func (r *Region) replace(name string, runs []span) (fd int, err error) {
	if err := CheckRoom(r.size); err != nil { // for a moment there are both
		return -1, err
	}
	if fd, err = unix.Memfd(name, int64(r.size)); err != nil {
		return -1, err
	}
	p, err := newMapping(func() (unsafe.Pointer, error) { return unix.Map(fd, r.size, true, true) })
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	Copy(unsafe.Slice((*byte)(p), r.size), r.Bytes())
	_ = unix.Unmap(p, r.size)
	r.mu.Lock()
	defer r.mu.Unlock()
	err = os.ErrClosed
	if !r.retired && (r.fd >= 0 || r.private) {
		old := r.orphans(runs)
		if err = unix.MapOver(r.base, fd, r.size); err == nil {
			for i, s := range runs {
				r.erase(s, old[i])
			}
		}
		unalias(old)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// copyStride is how much memory is copied in place before the old pages are given back.
const copyStride = 4 << 20

// own makes the pages of a run private to this process, in place: the mapping of the memfd becomes
// a private one, whose pages are copied one after the other. That takes no descriptor, no address
// space and no file, and memory for one stride only, unless the memfd is sealed. The caller holds
// renewing.
func (r *Region) own(s span) error {
	r.mu.Lock()
	if r.retired || r.fd < 0 {
		r.mu.Unlock()
		return os.ErrClosed
	}
	old := r.orphans([]span{s})
	err := unix.MapOwn(unsafe.Add(r.base, s.off), r.fd, s.off, s.n)
	if err == nil {
		r.mark(s)
		r.uncopied = append(r.uncopied, s)
	}
	r.mu.Unlock()
	if err == nil {
		err = r.copyPending()
	}
	if err == nil {
		clear(old[0])
	}
	unalias(old)
	return err
}

// copyPending copies the pages that are still to be copied. The caller holds renewing.
func (r *Region) copyPending() error {
	for len(r.uncopied) > 0 {
		s := r.uncopied[0]
		n := min(s.n, copyStride)
		if err := unix.OwnPages(unsafe.Add(r.base, s.off), n); err != nil {
			return err
		}
		r.mu.Lock()
		if r.retired || r.fd < 0 {
			r.mu.Unlock()
			r.uncopied = nil
			return os.ErrClosed
		}
		r.erase(span{s.off, n}, nil)
		r.mu.Unlock()
		if r.uncopied[0] = (span{s.off + n, s.n - n}); s.n == n {
			r.uncopied = r.uncopied[1:]
		}
	}
	return nil
}

// orphans returns second mappings of runs whose old pages cannot be cleared otherwise: those of a
// memfd that is sealed read-only. They are made before the pages leave this range. A mapping that
// the system refuses is left out, and its pages are not cleared; an importer that has them mapped
// has seen what is in them. The caller holds mu.
func (r *Region) orphans(runs []span) [][]byte {
	out := make([][]byte, len(runs))
	if info, err := unix.Inspect(r.fd); err != nil || !info.ReadOnly {
		return out
	}
	for i, s := range runs {
		if p, err := unix.Alias(unsafe.Add(r.base, s.off), s.n); err == nil {
			out[i] = unsafe.Slice((*byte)(p), s.n)
		}
	}
	return out
}

// erase clears the old pages of a run, by their second mapping if there is one, so that a kept
// mapping does not show earlier contents. The caller holds mu.
func (r *Region) erase(s span, second []byte) {
	if second != nil {
		clear(second)
	} else if r.fd >= 0 {
		_ = unix.Punch(r.fd, s.off, s.n)
	}
}

func unalias(maps [][]byte) {
	for _, b := range maps {
		if b != nil {
			_ = unix.Unmap(unsafe.Pointer(unsafe.SliceData(b)), len(b))
		}
	}
}
