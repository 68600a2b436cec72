// Package shm is memory that several processes share: regions, the words in
// them, their lifetimes, and copying that neither tears a message's last word
// nor holds up the garbage collector.
package shm

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// PageSize is the larger of 4096 bytes and the system's page (the manual's
// vmmc_PageSize; arm64 kernels with 16 and 64 KiB pages must not get 4096).
var PageSize = max(4096, os.Getpagesize())

// RoundUp rounds n up to whole pages.
func RoundUp(n int) int { return (n + PageSize - 1) / PageSize * PageSize }

// A Region is one mapped memfd. Whoever copies into or out of it keeps the
// *Region alive meanwhile (runtime.KeepAlive): the pages are unmapped by the
// collector, once nobody can be copying any more. That grace period costs
// nothing per copy.
type Region struct {
	base  unsafe.Pointer
	size  int
	write bool

	mu      sync.Mutex
	fd      int // -1 once given up
	retired bool
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
	size = RoundUp(size)
	fd, err := unix.Memfd(name, int64(size))
	if err != nil {
		return nil, err
	}
	r, err := adopt(fd, size, true, populate)
	if err != nil {
		return nil, err
	}
	if readOnly { // after our own writable mapping was made: FUTURE_WRITE spares that one
		if err := unix.Seal(fd, true); err != nil {
			r.Retire()
			return nil, err
		}
	}
	return r, nil
}

// Open maps a descriptor that another process sent, and owns it from then on,
// also when it fails. The kernel is asked for size and seals: a memfd that can
// shrink under us would be a way to kill this process by SIGBUS.
func Open(fd, size int, write bool) (*Region, error) { return open(fd, size, write, true) }

// OpenSparse is Open for a region whose pages appear as they are touched.
func OpenSparse(fd, size int, write bool) (*Region, error) { return open(fd, size, write, false) }

func open(fd, size int, write, populate bool) (*Region, error) {
	info, err := unix.Inspect(fd)
	switch {
	case err != nil:
	case !info.Fixed:
		err = unix.ErrSealed
	case info.Size != int64(size) || size <= 0:
		err = fmt.Errorf("memory has %d bytes, %d were announced", info.Size, size)
	case write && info.ReadOnly:
		err = errors.New("memory was announced as writable but is sealed read-only")
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	// Memory whose pages are not there is not made present here: a peer could
	// announce any size.
	r, err := adopt(fd, size, write, populate && info.Present >= info.Size)
	if err != nil {
		return nil, err
	}
	r.closeFD() // a mapping needs none, and an importer has no use for it
	return r, nil
}

// adopt maps fd, which the region then owns.
func adopt(fd, size int, write, populate bool) (*Region, error) {
	p, err := unix.Map(fd, size, write, populate)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	r := &Region{base: p, size: size, write: write, fd: fd}
	runtime.AddCleanup(r, func(m mapping) { _ = unix.Unmap(m.base, m.size) }, mapping{p, size})
	return r, nil
}

type mapping struct {
	base unsafe.Pointer
	size int
}

// Size is the length of the region in bytes, a multiple of the page.
func (r *Region) Size() int { return r.size }

// Bytes is the mapped memory. It is valid while r is reachable.
func (r *Region) Bytes() []byte { return unsafe.Slice((*byte)(r.base), r.size) }

// Seal fixes the size before the descriptor leaves this process, and with
// readOnly forbids new writable mappings.
func (r *Region) Seal(readOnly bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fd < 0 {
		return os.ErrClosed
	}
	if info, err := unix.Inspect(r.fd); err == nil && info.Fixed {
		if readOnly && !info.ReadOnly {
			return errors.New("memory was exported writable before and cannot be sealed read-only now: allocate other memory")
		}
		if !readOnly && info.ReadOnly {
			return errors.New("memory was exported read-only before and cannot be exported writable: allocate other memory")
		}
		return nil
	}
	return unix.Seal(r.fd, readOnly)
}

// Descriptor duplicates the descriptor for sending; the caller closes it.
func (r *Region) Descriptor() (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fd < 0 {
		return -1, os.ErrClosed
	}
	return unix.Dup(r.fd)
}

func (r *Region) closeFD() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fd >= 0 {
		_ = unix.Close(r.fd)
		r.fd = -1
	}
}

// Retire gives the pages back now and leaves private zero pages in their place
// for a copier that is still at work; the address range itself goes with the
// collector. Retire may be called more than once.
func (r *Region) Retire() {
	r.closeFD()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.retired {
		r.retired = true
		_ = unix.MapNothing(r.base, r.size, r.write)
	}
}

// Renew replaces the pages by a private copy of them, at the same addresses
// (design, "Revocation"): what importers keep mapped is from then on an orphan
// that nobody here reads or writes. The caller has already told importers
// "revoked" by an atomic, so a send that still reports success is in the copy.
// This process's own writers must not write meanwhile.
func (r *Region) Renew(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.retired || r.fd < 0 {
		return os.ErrClosed
	}
	fd, err := unix.Memfd(name, int64(r.size))
	if err != nil {
		return err
	}
	p, err := unix.Map(fd, r.size, true, true)
	if err != nil {
		_ = unix.Close(fd)
		return err
	}
	Copy(unsafe.Slice((*byte)(p), r.size), r.Bytes())
	_ = unix.Unmap(p, r.size)
	// The old pages are cleared by a second mapping made before they leave this
	// range, so that a kept mapping shows none of what came before.
	old := r.fd
	alias, aliasErr := unix.Alias(r.base, r.size)
	if err := unix.MapOver(r.base, fd, r.size); err != nil {
		_ = unix.Close(fd)
		return err
	}
	r.fd = fd
	if aliasErr == nil {
		clear(unsafe.Slice((*byte)(alias), r.size))
		_ = unix.Unmap(alias, r.size)
	}
	_ = unix.Close(old)
	return nil
}

// Prefault makes all pages of b present, so that no copy into it faults.
func Prefault(b []byte) { unix.Prefault(b) }

// Lock keeps the pages of b in memory until they are unmapped.
func Lock(b []byte) error { return unix.Lock(b) }
