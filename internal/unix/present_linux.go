package unix

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	sys "golang.org/x/sys/unix"
)

// Faulted reports whether a call has failed because of the caller's memory.
func Faulted(err error) bool { return errors.Is(err, sys.EFAULT) }

// Present makes every page of b present now: for writing, or for reading. Memory that cannot be
// accessed so is [ErrForbidden]; that nothing could be had for it is another error. No access
// faults.
func Present(b []byte, write bool) error {
	if len(b) == 0 {
		return nil
	}
	page := uintptr(os.Getpagesize())
	p := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	start := p / page * page
	advice := uintptr(sys.MADV_POPULATE_READ)
	if write {
		advice = sys.MADV_POPULATE_WRITE
	}
	_, _, e := sys.Syscall(sys.SYS_MADVISE, start, (p-start+uintptr(len(b))+page-1)/page*page, advice)
	runtime.KeepAlive(b)
	switch {
	case e == 0:
		return nil
	case e == sys.ENOMEM && mapped(b): // it is there, and no memory is to be had
		return fmt.Errorf("make %d bytes present: %w", len(b), e)
	}
	// memory that is special, or forbidden; or a kernel before 5.14, which lets pages come when they
	// are used
	return probe(b, write)
}

// mapped reports whether there is memory at all of b's pages.
func mapped(b []byte) bool {
	_, err := resident(b)
	return err == nil
}

// Absent is how many bytes of b's pages are not present.
func Absent(b []byte) (int, error) {
	n, err := resident(b)
	if err != nil {
		return 0, err
	}
	page := os.Getpagesize()
	return max(0, (len(b)+page-1)/page-n) * page, nil
}

// resident is how many pages of b are.
func resident(b []byte) (n int, err error) {
	page := uintptr(os.Getpagesize())
	p := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	start, end := p/page*page, p+uintptr(len(b))
	var there [4096]byte
	for at := start; at < end; at += uintptr(len(there)) * page {
		k := min(end-at, uintptr(len(there))*page)
		if _, _, e := sys.Syscall(sys.SYS_MINCORE, at, k, uintptr(unsafe.Pointer(&there))); e != 0 {
			return n, fmt.Errorf("mincore: %w", e)
		}
		for _, v := range there[:(k+page-1)/page] {
			n += int(v & 1)
		}
	}
	runtime.KeepAlive(b)
	return n, nil
}

// probe has the kernel look at a word of each page of b, which is word-aligned: where that faults
// it says so. A write is one that changes nothing, by an atomic.
func probe(b []byte, write bool) error {
	const (
		wait, wakeOp, private = 0, 5, 128
		orNothing             = 2 << 28 // FUTEX_OP_OR with 0, and no other waiter woken
	)
	page := uintptr(os.Getpagesize())
	p := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	end := p + uintptr(len(b))
	var own atomic.Uint32
	var now sys.Timespec
	for at := p; at < end; at = (at/page + 1) * page {
		var e error
		if write {
			_, _, no := sys.Syscall6(sys.SYS_FUTEX, uintptr(unsafe.Pointer(&own)), wakeOp|private, 0, 0, at, orNothing)
			e = no
		} else {
			_, _, no := sys.Syscall6(sys.SYS_FUTEX, at, wait|private, 0, uintptr(unsafe.Pointer(&now)), 0, 0)
			e = no
		}
		if errors.Is(e, sys.EFAULT) {
			return fmt.Errorf("%w at byte %d of %d", ErrForbidden, at-p, len(b))
		}
	}
	runtime.KeepAlive(b)
	return nil
}
