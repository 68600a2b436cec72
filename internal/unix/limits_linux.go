package unix

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	sys "golang.org/x/sys/unix"
)

// OwnLimits are those of this process. Go raises the soft limit of descriptors to
// the hard one when it starts; a program in another language has less.
func OwnLimits() (l Limits, err error) {
	for _, r := range []struct {
		which int
		to    *uint64
	}{{sys.RLIMIT_NOFILE, &l.Files}, {sys.RLIMIT_MEMLOCK, &l.Locked}, {sys.RLIMIT_NPROC, &l.Processes}} {
		var v sys.Rlimit
		if err := sys.Getrlimit(r.which, &v); err != nil {
			return l, fmt.Errorf("read the limits of this process: %w", err)
		}
		*r.to = v.Cur
	}
	return l, nil
}

// LimitFiles lowers the limit of descriptors of this process for good.
func LimitFiles(n uint64) error { return limit(sys.RLIMIT_NOFILE, n) }

// LimitLocked does so with the bytes that it may lock in memory.
func LimitLocked(n uint64) error { return limit(sys.RLIMIT_MEMLOCK, n) }

func limit(which int, n uint64) error {
	return sys.Setrlimit(which, &sys.Rlimit{Cur: n, Max: n})
}

// The parts of userfaultfd's and the page map's interfaces that x/sys lacks.
const (
	userModeOnly = 1          // UFFD_USER_MODE_ONLY
	uffdioAPI    = 0xc018aa3f // _IOWR(0xaa, 0x3f, struct uffdio_api)
	uffdAPI      = 0xaa
	wpAsync      = 1 << 15    // UFFD_FEATURE_WP_ASYNC
	pagemapScan  = 0xc0606610 // _IOWR('f', 16, struct pm_scan_arg)
	writtenPages = 1 << 1     // PAGE_IS_WRITTEN
)

// AsyncWriteProtect asks whether the kernel tracks written pages without stopping
// the writer: an error says why not.
func AsyncWriteProtect() error {
	fd, _, e := sys.Syscall(sys.SYS_USERFAULTFD, sys.O_CLOEXEC|sys.O_NONBLOCK|userModeOnly, 0, 0)
	if e != 0 {
		return fmt.Errorf("userfaultfd: %w", e)
	}
	defer func() { _ = sys.Close(int(fd)) }()
	api := struct{ api, features, ioctls uint64 }{uffdAPI, wpAsync, 0}
	if _, _, e := sys.Syscall(sys.SYS_IOCTL, fd, uffdioAPI, uintptr(unsafe.Pointer(&api))); e != 0 {
		return fmt.Errorf("userfaultfd without UFFD_FEATURE_WP_ASYNC: %w", e)
	}
	return nil
}

// ScanPages asks whether the kernel lists pages by what happened to them
// (PAGEMAP_SCAN).
func ScanPages() error {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return err
	}
	defer f.Close()
	// A scan of no pages: a kernel that knows the request has nothing to do.
	arg := struct {
		size, flags, start, end, walkEnd, vec, vecLen, maxPages uint64
		inverted, mask, anyof, returns                          uint64
	}{size: 96, mask: writtenPages, returns: writtenPages}
	if _, _, e := sys.Syscall(sys.SYS_IOCTL, f.Fd(), pagemapScan, uintptr(unsafe.Pointer(&arg))); e != 0 {
		return fmt.Errorf("PAGEMAP_SCAN: %w", e)
	}
	return nil
}

// Owner is the user whose a file is.
func Owner(i os.FileInfo) (uid uint32, ok bool) {
	st, ok := i.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return st.Uid, true
}
