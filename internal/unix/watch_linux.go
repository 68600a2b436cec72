package unix

import (
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	sys "golang.org/x/sys/unix"
)

// Of <linux/userfaultfd.h> and <linux/fs.h>, by the kernel's names; x/sys has none
// of them. The ioctl numbers are those of the generic encoding. An architecture
// with another one answers "no such ioctl", which is handled as an old kernel is.
const (
	uffdUserModeOnly = 1
	uffdAPI          = 0xaa

	uffdioAPI          = 0xc018aa3f
	uffdioRegister     = 0xc020aa00
	uffdioWriteprotect = 0xc018aa06
	pagemapScan        = 0xc0606610

	uffdFeaturePagefaultFlagWP  = 1 << 0
	uffdFeatureWPHugetlbfsShmem = 1 << 12
	uffdFeatureWPUnpopulated    = 1 << 13
	uffdFeatureWPAsync          = 1 << 15

	uffdioRegisterModeWP     = 1 << 1
	uffdioWriteprotectModeWP = 1 << 0

	pmScanWPMatching   = 1 << 0
	pmScanCheckWPAsync = 1 << 1
	pageIsWritten      = 1 << 1
)

type uffdioAPIArg struct{ api, features, ioctls uint64 }

type uffdioRegisterArg struct{ start, len, mode, ioctls uint64 }

type uffdioWriteprotectArg struct{ start, len, mode uint64 }

type pmScanArg struct {
	size, flags, start, end, walkEnd                       uint64
	vec                                                    unsafe.Pointer // 64 bits, as everywhere here
	vecLen, maxPages                                       uint64
	categoryInverted, categoryMask, categoryAnyof, retMask uint64
}

// PageWatch tells which pages of a range were stored to, by write protection that the
// kernel takes off by itself at the first store (Linux 6.7). No store ever waits for
// a goroutine or a process.
type PageWatch struct {
	base    uintptr
	size    int
	uffd    int
	pagemap int
}

// NewPageWatch protects whole pages from p on. The error says what the system lacks.
func NewPageWatch(p unsafe.Pointer, size int) (w *PageWatch, err error) {
	w = &PageWatch{base: uintptr(p), size: size, uffd: -1, pagemap: -1}
	defer func() {
		if err != nil {
			w.Close()
			w = nil
		}
	}()
	fd, _, e := sys.Syscall(sys.SYS_USERFAULTFD, sys.O_CLOEXEC|sys.O_NONBLOCK|uffdUserModeOnly, 0, 0)
	if e != 0 {
		return w, fmt.Errorf("userfaultfd: %w", e)
	}
	w.uffd = int(fd)
	api := uffdioAPIArg{api: uffdAPI, features: uffdFeaturePagefaultFlagWP | uffdFeatureWPHugetlbfsShmem | uffdFeatureWPUnpopulated | uffdFeatureWPAsync}
	if err := ioctl(w.uffd, uffdioAPI, unsafe.Pointer(&api)); err != nil {
		return w, fmt.Errorf("asynchronous write protection (Linux 6.7): %w", err)
	}
	// Huge mappings are torn down as a whole where one small page changes, which
	// no scan would report; small ones leave an entry for each page.
	_, _, _ = sys.Syscall(sys.SYS_MADVISE, w.base, uintptr(size), sys.MADV_NOHUGEPAGE)
	reg := uffdioRegisterArg{start: uint64(w.base), len: uint64(size), mode: uffdioRegisterModeWP}
	if err := ioctl(w.uffd, uffdioRegister, unsafe.Pointer(&reg)); err != nil {
		return w, fmt.Errorf("watch %d bytes: %w", size, err)
	}
	if w.pagemap, err = sys.Open("/proc/self/pagemap", sys.O_RDONLY|sys.O_CLOEXEC, 0); err != nil {
		return w, fmt.Errorf("open /proc/self/pagemap: %w", err)
	}
	if err := w.Protect(0, size); err != nil {
		return w, err
	}
	var some [1]PageRun
	_, _, err = w.Written(0, os.Getpagesize(), true, some[:])
	return w, err
}

// Protect makes the next store to each of these pages known.
func (w *PageWatch) Protect(off, n int) error {
	arg := uffdioWriteprotectArg{start: uint64(w.base) + uint64(off), len: uint64(n), mode: uffdioWriteprotectModeWP}
	for {
		err := ioctl(w.uffd, uffdioWriteprotect, unsafe.Pointer(&arg))
		if err == nil {
			return nil
		}
		if !errors.Is(err, sys.EAGAIN) && !errors.Is(err, sys.EINTR) { // EAGAIN: the address space is just changing
			return fmt.Errorf("protect %d bytes: %w", n, err)
		}
	}
}

// Written finds runs of pages in [from, to) that were stored to since they were
// protected, and with protect protects them again in the same step. It stops when
// out is full; end is how far it has come.
func (w *PageWatch) Written(from, to int, protect bool, out []PageRun) (n, end int, err error) {
	arg := pmScanArg{
		size: uint64(unsafe.Sizeof(pmScanArg{})), flags: pmScanCheckWPAsync,
		start: uint64(w.base) + uint64(from), end: uint64(w.base) + uint64(to),
		vec: unsafe.Pointer(unsafe.SliceData(out)), vecLen: uint64(len(out)),
		categoryMask: pageIsWritten, retMask: pageIsWritten,
	}
	if protect {
		arg.flags |= pmScanWPMatching
	}
	for {
		// Not RawSyscall: a scan of much memory would hold up the collector.
		r, _, e := sys.Syscall(sys.SYS_IOCTL, uintptr(w.pagemap), pagemapScan, uintptr(unsafe.Pointer(&arg)))
		if e == sys.EINTR || e == sys.EAGAIN {
			continue
		}
		if e != 0 {
			return 0, from, fmt.Errorf("scan the page map (Linux 6.7): %w", e)
		}
		n = int(r)
		break
	}
	for i := range out[:n] {
		out[i].Start -= uint64(w.base)
		out[i].End -= uint64(w.base)
	}
	return n, int(arg.walkEnd - uint64(w.base)), nil
}

// Close ends the watching; the kernel takes all protection off.
func (w *PageWatch) Close() {
	for _, fd := range []int{w.uffd, w.pagemap} {
		if fd >= 0 {
			_ = sys.Close(fd)
		}
	}
}

func ioctl(fd int, req uintptr, arg unsafe.Pointer) error {
	if _, _, e := sys.Syscall(sys.SYS_IOCTL, uintptr(fd), req, uintptr(arg)); e != 0 {
		return e
	}
	return nil
}

// Nap sleeps for a time too short for the runtime's timers, whose sleeps take a
// millisecond and more. It takes some 50 us longer than it is told.
func Nap(d time.Duration) {
	ts := sys.NsecToTimespec(int64(d))
	_ = sys.Nanosleep(&ts, nil)
}

// MapPrivate returns size bytes of zeroed memory that no other process shares. It
// takes up room only where it was written.
func MapPrivate(size int) (unsafe.Pointer, error) {
	p, err := sys.MmapPtr(-1, 0, nil, uintptr(size), sys.PROT_READ|sys.PROT_WRITE, sys.MAP_PRIVATE|sys.MAP_ANONYMOUS|sys.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	return p, nil
}

// MapAlias puts the shared pages behind [p, p+size) over those at dst.
func MapAlias(dst, p unsafe.Pointer, size int) error {
	_, _, e := sys.Syscall6(sys.SYS_MREMAP, uintptr(p), 0, uintptr(size), sys.MREMAP_MAYMOVE|sys.MREMAP_FIXED, uintptr(dst), 0)
	if e != 0 {
		return fmt.Errorf("mremap: %w", e)
	}
	return nil
}

// MapBack puts size bytes of fd from off on over those at dst.
func MapBack(dst unsafe.Pointer, fd, off, size int) error {
	return mapFixed("map back", dst, fd, off, size, sys.PROT_READ|sys.PROT_WRITE, sys.MAP_SHARED|sys.MAP_POPULATE)
}

// CPUTime is what all threads of this process have used so far.
func CPUTime() time.Duration {
	var ru sys.Rusage
	if sys.Getrusage(sys.RUSAGE_SELF, &ru) != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}
