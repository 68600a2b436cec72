package shm

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/cgroup"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// ErrForbidden is the error of memory that cannot be read or written.
var ErrForbidden = unix.ErrForbidden

// ErrNoRoom means that the system has less memory left than was requested.
var ErrNoRoom = errors.New("not so much memory is left")

// The kernel does not refuse memory that it does not have: when pages are used, it kills this
// process or another one. So the room is checked before pages are made present, and again between
// strides, because other processes take memory too.
const (
	presentStride = 64 << 20
	unaskedRoom   = 4 << 20 // Taken without checking, which takes some 0.1 ms.
	reservedRoom  = 2 << 20 // For the process itself.
)

// unasked is how much was taken since the room was last checked.
var unasked atomic.Int64

// CheckRoom returns an error if the system says that n bytes of memory cannot be had.
func CheckRoom(n int) error {
	if unasked.Add(int64(n)) < unaskedRoom {
		return nil
	}
	unasked.Store(0)
	room, where := cgroup.Memory()
	// Page tables take memory, too, and as much as unaskedRoom may be taken before the next check.
	if need := int64(n) + int64(n)/128 + unaskedRoom + reservedRoom; need > room {
		return fmt.Errorf("%w: %d bytes are asked for, and %s has %d", ErrNoRoom, n, where, room)
	}
	return nil
}

// makePresent makes the pages of b present, of which absent bytes are not yet.
func makePresent(b []byte, write bool, absent int) error {
	for len(b) > 0 {
		n := min(len(b), presentStride)
		if absent > 0 {
			if err := CheckRoom(absent); err != nil {
				return err
			}
		}
		if err := unix.Present(b[:n], write); err != nil {
			return err
		}
		b, absent = b[n:], absent-n
	}
	return nil
}

// Present makes the pages of b, which need not be of a region, present for writing or reading, so
// that no copy there faults. It returns [ErrForbidden] where one would, and [ErrNoRoom] where the
// pages would take more memory than there is.
func Present(b []byte, write bool) error {
	absent, err := unix.Absent(b)
	if err != nil { // a part is not mapped at all
		return fmt.Errorf("%w: %w", ErrForbidden, err)
	}
	if absent == 0 {
		return unix.Present(b, write)
	}
	if err := CheckRoom(absent); err != nil { // before any
		return err
	}
	for len(b) > 0 {
		n := min(len(b), presentStride)
		if absent, err = unix.Absent(b[:n]); err != nil {
			return fmt.Errorf("%w: %w", ErrForbidden, err)
		}
		if err := makePresent(b[:n], write, absent); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
