package shm

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
	"unsafe"
	"weak"

	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// PageSize is the larger of 4096 bytes and the system's page (the manual's
// vmmc_PageSize; arm64 kernels with 16 and 64 KiB pages must not get 4096).
var PageSize = max(4096, os.Getpagesize())

// RoundUp rounds n up to whole pages.
func RoundUp(n int) int { return (n + PageSize - 1) / PageSize * PageSize }

// A Region is one mapped memfd. A goroutine that copies into or out of it keeps the *Region alive
// meanwhile (runtime.KeepAlive): the garbage collector unmaps the pages once no goroutine can be
// copying. That grace period costs nothing per copy.
type Region struct {
	base  unsafe.Pointer
	size  int
	write bool
	at    *mapping // Unmapped with the region.

	mu      sync.Mutex
	fd      int // -1 once given up.
	retired bool
	shared  bool   // A descriptor of these pages was given out.
	moved   []bool // Pages that are no longer fd's. nil: none.
	// All pages have moved, fd was given up, and there is no descriptor until Renew.
	private bool

	renewing sync.Mutex // before mu
	// Moved spans whose pages are not all copied yet; the next renewal continues. Guarded by
	// renewing.
	uncopied []span
}

// New makes a region of size bytes (rounded up to pages), prefaulted. With
// readOnly the descriptor can be handed out without ever granting writes.
func New(name string, size int, readOnly bool) (*Region, error) {
	return create(name, size, readOnly, true)
}

// NewSparse makes a region whose pages appear as they are touched.
func NewSparse(name string, size int, readOnly bool) (*Region, error) {
	return create(name, size, readOnly, false)
}

func create(name string, size int, readOnly, populate bool) (*Region, error) {
	if size <= 0 {
		return nil, fmt.Errorf("memory of %d bytes: the size must be positive", size)
	}
	if size > math.MaxInt-PageSize {
		return nil, fmt.Errorf("memory of %d bytes: no address space has that", size)
	}
	size = RoundUp(size)
	fd, err := unix.Memfd(name, int64(size))
	if err != nil {
		return nil, err
	}
	r, err := adopt(fd, size, true, false)
	if err != nil {
		return nil, err
	}
	if populate {
		if err := makePresent(r.Bytes(), true, size); err != nil {
			r.Retire()
			return nil, err
		}
	}
	if readOnly { // after this process's writable mapping was made: FUTURE_WRITE spares that one
		if err := unix.Seal(fd, true); err != nil {
			r.Retire()
			return nil, err
		}
	}
	return r, nil
}

// ErrAnnounced is the error of a descriptor that is not what its sender says.
var ErrAnnounced = errors.New("received memory is not what was announced")

// Open maps a descriptor that another process sent, and owns it from then on, also when it fails.
// It checks size and seals with the kernel: a memfd that can shrink would let the sender kill this
// process by SIGBUS.
func Open(fd, size int, write bool) (*Region, error) { return open(fd, size, write, true) }

// OpenSparse is Open for a region whose pages appear as they are touched.
func OpenSparse(fd, size int, write bool) (*Region, error) { return open(fd, size, write, false) }

func open(fd, size int, write, populate bool) (*Region, error) {
	return openAt(fd, size, 0, size, write, populate)
}

// openAt maps n bytes from off on: whole pages of memory that has size bytes.
func openAt(fd, size, off, n int, write, populate bool) (*Region, error) {
	info, err := unix.Inspect(fd)
	switch {
	case err != nil:
	case !info.Fixed:
		err = unix.ErrSealed
	case info.Size != int64(size) || size <= 0:
		err = fmt.Errorf("it has %d bytes, %d were announced", info.Size, size)
	case write && info.ReadOnly:
		err = errors.New("it was announced as writable but is sealed read-only")
	}
	if err != nil {
		foreign.Close(fd)
		return nil, fmt.Errorf("%w: %w", ErrAnnounced, err)
	}
	foreign.Own(fd) // memory is closed at once
	// Absent pages are not made present here: a peer could announce any size.
	r, err := adoptAt(fd, off, n, write, populate && info.Present >= info.Size)
	if err != nil {
		return nil, err
	}
	r.closeFD() // a mapping needs none, and an importer has no use for it
	return r, nil
}

// adopt maps fd, which the region then owns.
func adopt(fd, size int, write, populate bool) (*Region, error) {
	return adoptAt(fd, 0, size, write, populate)
}

func adoptAt(fd, off, size int, write, populate bool) (*Region, error) {
	p, err := newMapping(func() (unsafe.Pointer, error) { return unix.MapAt(fd, off, size, write, populate) })
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return own(p, size, write, fd), nil
}

// own makes a region of a mapping, which is unmapped with it.
func own(p unsafe.Pointer, size int, write bool, fd int) *Region {
	r := &Region{base: p, size: size, write: write, fd: fd, at: &mapping{base: p, size: size}}
	r.at.of = weak.Make(r)
	runtime.AddCleanup(r, (*mapping).unmap, r.at)
	return r
}

// DontDump leaves the region out of core dumps of this process, also where other memory is made an
// alias of it.
func (r *Region) DontDump() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.retired {
		return nil
	}
	return unix.DontDump(r.base, r.size)
}

// Size is the length of the region in bytes, a multiple of the page.
func (r *Region) Size() int { return r.size }

// Bytes is the mapped memory. It is valid while r is reachable.
func (r *Region) Bytes() []byte { return unsafe.Slice((*byte)(r.base), r.size) }

// Seal fixes the size before the descriptor leaves this process, and with
// readOnly forbids new writable mappings. It cannot be undone.
func (r *Region) Seal(readOnly bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sealed, err := r.sealed(readOnly); sealed || err != nil {
		return err
	}
	return unix.Seal(r.fd, readOnly)
}

// Sealable returns the error that Seal would return, and changes nothing.
func (r *Region) Sealable(readOnly bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.sealed(readOnly)
	return err
}

// sealed reports whether the region has the seals, or an error if it cannot have them. The caller
// holds mu.
func (r *Region) sealed(readOnly bool) (bool, error) {
	if r.private {
		return true, nil // there is nothing to seal
	}
	if r.fd < 0 {
		return false, os.ErrClosed
	}
	info, err := unix.Inspect(r.fd)
	switch {
	case err != nil || !info.Fixed:
		return false, nil
	case readOnly && !info.ReadOnly:
		return false, errors.New("memory was exported writable before and cannot be sealed read-only now: allocate other memory")
	case !readOnly && info.ReadOnly:
		return false, errors.New("memory was exported read-only before and cannot be exported writable: allocate other memory")
	}
	return true, nil
}

// Descriptor duplicates the descriptor for sending; the caller closes it.
func (r *Region) Descriptor() (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fd < 0 {
		return -1, os.ErrClosed
	}
	fd, err := unix.Dup(r.fd)
	r.shared = r.shared || err == nil
	return fd, err
}

func (r *Region) closeFD() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fd >= 0 {
		_ = unix.Close(r.fd)
		r.fd = -1
	}
}

// Retire gives the pages back now and leaves private zero pages in their place for a goroutine that
// still copies. The garbage collector frees the address range itself; it is made to run when many
// ranges wait for it. Retire may be called more than once.
func (r *Region) Retire() {
	r.retire(func() error { return unix.MapNothing(r.base, r.size, r.write) })
}

// Forbid is [Region.Retire] for memory that is not in use: an access faults, until the garbage
// collector gives the address range back.
func (r *Region) Forbid() {
	r.retire(func() error { return unix.MapForbidden(r.base, r.size) })
}

func (r *Region) retire(over func() error) {
	r.closeFD()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.retired {
		r.retired = true
		_ = over()
		noteRetired(r.at)
	}
}

// Retired reports whether the pages were given back.
func (r *Region) Retired() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.retired
}

// Renew takes the pages away from all processes that have mapped them: the same contents, at the
// same addresses, belong to this process alone (design, "Revocation"). What importers keep mapped
// is from then on an orphan that this process neither reads nor writes. The caller has already told
// importers "revoked" by an atomic store, so a send that still reports success is in the copy. This
// process's own writers must not write meanwhile.
//
// The pages are those of a fresh memfd, which can be shared again. Where there is no descriptor,
// address space or mapping for one, or a limit on the size of files, the pages are copied in place,
// which needs none of these. The memory is then not shared any more until it is renewed again. An
// error means that pages may still be shared; another call of Renew continues.
func (r *Region) Renew(name string) error {
	r.renewing.Lock()
	defer r.renewing.Unlock()
	if err := r.copyPending(); err != nil {
		return err
	}
	runs := r.runs(0, r.size)
	if fd, err := r.replace(name, runs); err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.fd >= 0 {
			_ = unix.Close(r.fd)
		}
		r.fd, r.moved, r.private, r.shared = fd, nil, false, false
		return nil
	}
	for _, s := range runs {
		if err := r.own(s); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.retired {
		return os.ErrClosed
	}
	r.private, r.shared = true, false
	if r.fd >= 0 {
		_ = unix.Close(r.fd)
		r.fd = -1
	}
	return nil
}

// Lock keeps the pages of b in memory until they are unmapped.
func Lock(b []byte) error { return unix.Lock(b) }
