package unix

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	sys "golang.org/x/sys/unix"
)

// Memfd makes anonymous memory of size bytes. It has no name in any file
// system, so it goes when the last descriptor and mapping go, kill -9 included.
func Memfd(name string, size int64) (int, error) {
	keepReserve()
	fd, err := sys.MemfdCreate(name, sys.MFD_CLOEXEC|sys.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("memfd_create: %w", err)
	}
	if err := sys.Ftruncate(fd, size); err != nil {
		_ = sys.Close(fd)
		if errors.Is(err, sys.EFBIG) {
			return -1, fmt.Errorf("size memfd to %d bytes (limit: ulimit -f): %w", size, err)
		}
		return -1, fmt.Errorf("size memfd to %d bytes: %w", size, err)
	}
	return fd, nil
}

// HugeMemfd is [Memfd] of huge pages, which none of this project's memory is.
func HugeMemfd(name string, size int64) (int, error) {
	fd, err := sys.MemfdCreate(name, sys.MFD_CLOEXEC|sys.MFD_ALLOW_SEALING|sys.MFD_HUGETLB)
	if err != nil {
		return -1, fmt.Errorf("memfd_create: %w", err)
	}
	if err := sys.Ftruncate(fd, size); err != nil {
		_ = sys.Close(fd)
		return -1, fmt.Errorf("size memfd of huge pages to %d bytes: %w", size, err)
	}
	return fd, nil
}

// Seal fixes the size of a memfd for good. With readOnly, mappings made from
// now on cannot be writable, by mprotect neither; those made before stay so.
func Seal(fd int, readOnly bool) error {
	seals := sys.F_SEAL_SHRINK | sys.F_SEAL_GROW | sys.F_SEAL_SEAL
	if readOnly {
		seals |= sys.F_SEAL_FUTURE_WRITE
	}
	if _, err := sys.FcntlInt(uintptr(fd), sys.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("seal memfd: %w", err)
	}
	return nil
}

// Inspect asks the kernel, not the sender, what a received descriptor is. The seals come first:
// only memory has them, and all other files may have a file system that never answers.
func Inspect(fd int) (MemoryInfo, error) {
	seals, err := sys.FcntlInt(uintptr(fd), sys.F_GET_SEALS, 0)
	if err != nil {
		return MemoryInfo{}, fmt.Errorf("received descriptor is no memfd: %w", err)
	}
	var fs sys.Statfs_t
	if err := sys.Fstatfs(fd, &fs); err != nil {
		return MemoryInfo{}, fmt.Errorf("fstatfs received descriptor: %w", err)
	}
	// Huge pages come out of a pool. Its owner may empty that, and a touch of a page that was
	// punched out is a SIGBUS then.
	if fs.Type != sys.TMPFS_MAGIC {
		return MemoryInfo{}, fmt.Errorf("received descriptor is memory of another kind (file system %#x), such as huge pages", fs.Type)
	}
	var st sys.Stat_t
	if err := sys.Fstat(fd, &st); err != nil {
		return MemoryInfo{}, fmt.Errorf("fstat received descriptor: %w", err)
	}
	const fixed = sys.F_SEAL_SHRINK | sys.F_SEAL_GROW | sys.F_SEAL_SEAL
	return MemoryInfo{
		Size:     st.Size,
		Present:  st.Blocks * 512,
		Fixed:    seals&fixed == fixed,
		ReadOnly: seals&(sys.F_SEAL_FUTURE_WRITE|sys.F_SEAL_WRITE) != 0,
	}, nil
}

// Map maps size bytes of fd. With populate the page tables are filled at once,
// so that the first store of a send does not fault.
func Map(fd int, size int, write, populate bool) (unsafe.Pointer, error) {
	return MapAt(fd, 0, size, write, populate)
}

// MapAt is Map of the bytes from off on, a multiple of the page.
func MapAt(fd, off, size int, write, populate bool) (unsafe.Pointer, error) {
	prot, flags := sys.PROT_READ, sys.MAP_SHARED
	if write {
		prot |= sys.PROT_WRITE
	}
	if populate {
		flags |= sys.MAP_POPULATE
	}
	p, err := sys.MmapPtr(fd, int64(off), nil, uintptr(size), prot, flags)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	return p, nil
}

// mapFixed maps over what is there. That takes neither address space nor, for a whole mapping, a
// mapping more, and where a part of one is replaced the reserve has room for it.
func mapFixed(what string, p unsafe.Pointer, fd, off, size, prot, flags int) error {
	err := withReserve(func() error {
		_, err := sys.MmapPtr(fd, int64(off), p, uintptr(size), prot, flags|sys.MAP_FIXED)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s %d bytes: %w", what, size, err)
	}
	return nil
}

// MapOver replaces the pages behind [p, p+size) by those of fd in one step.
func MapOver(p unsafe.Pointer, fd, size int) error {
	return mapFixed("map a fresh memfd over", p, fd, 0, size, sys.PROT_READ|sys.PROT_WRITE, sys.MAP_SHARED|sys.MAP_POPULATE)
}

// MapOwn makes [p, p+size), which are the bytes of fd from off on, copies of them that no other
// process sees. A page is copied when it is next stored to, see [OwnPages]; until then it is the
// file's.
func MapOwn(p unsafe.Pointer, fd, off, size int) error {
	return mapFixed("map as its own", p, fd, off, size, sys.PROT_READ|sys.PROT_WRITE, sys.MAP_PRIVATE|sys.MAP_NORESERVE)
}

// OwnPages has all pages of a range that [MapOwn] made copied now. What they hold is what it is;
// stores of other goroutines meanwhile are kept.
func OwnPages(p unsafe.Pointer, size int) error {
	_, _, e := sys.Syscall(sys.SYS_MADVISE, uintptr(p), uintptr(size), sys.MADV_POPULATE_WRITE)
	switch e {
	case 0:
		return nil
	case sys.EINVAL: // before Linux 5.14; a store that changes nothing does the same, page by page
		for at := 0; at < size; at += os.Getpagesize() {
			(*atomic.Uint32)(unsafe.Add(p, at)).Add(0)
		}
		return nil
	}
	return fmt.Errorf("copy %d bytes of pages: %w", size, e)
}

// Punch gives n bytes of a memfd back from off on, whole pages, which read as zeros in all its
// mappings from then on. A memfd that is sealed read-only refuses it.
func Punch(fd, off, n int) error {
	for {
		err := sys.Fallocate(fd, sys.FALLOC_FL_PUNCH_HOLE|sys.FALLOC_FL_KEEP_SIZE, int64(off), int64(n))
		if !errors.Is(err, sys.EINTR) {
			return err
		}
	}
}

// MapNothing puts private zero pages over a range: stores by a late copier land
// nowhere, instead of faulting or reaching what the kernel maps there next.
func MapNothing(p unsafe.Pointer, size int, write bool) error {
	prot := sys.PROT_READ
	if write {
		prot |= sys.PROT_WRITE
	}
	err := mapFixed("map nothing over", p, -1, 0, size, prot, sys.MAP_PRIVATE|sys.MAP_ANONYMOUS|sys.MAP_NORESERVE)
	if err != nil { // RLIMIT_DATA counts private memory that can be written, and shared memory not
		err = mapFixed("map nothing over", p, -1, 0, size, prot, sys.MAP_SHARED|sys.MAP_ANONYMOUS|sys.MAP_NORESERVE)
	}
	return err
}

// MapForbidden gives the pages behind a range back; an access there faults.
func MapForbidden(p unsafe.Pointer, size int) error {
	return mapFixed("forbid", p, -1, 0, size, sys.PROT_NONE, sys.MAP_PRIVATE|sys.MAP_ANONYMOUS|sys.MAP_NORESERVE)
}

// Unmap ends a mapping. Where the kernel has merged it with its neighbours, that makes one mapping
// more, for which the reserve has room.
func Unmap(p unsafe.Pointer, size int) error {
	return withReserve(func() error { return sys.MunmapPtr(p, uintptr(size)) })
}

// DontDump leaves a mapping out of the core dumps of this process.
func DontDump(p unsafe.Pointer, size int) error {
	if _, _, e := sys.Syscall(sys.SYS_MADVISE, uintptr(p), uintptr(size), sys.MADV_DONTDUMP); e != 0 {
		return fmt.Errorf("leave %d bytes out of core dumps: %w", size, e)
	}
	return nil
}

// Commands of membarrier(2). golang.org/x/sys has no names for them.
const (
	barrierPrivateExpedited         = 1 << 3
	barrierRegisterPrivateExpedited = 1 << 4
)

// RegisterBarrier prepares the process for Barrier.
func RegisterBarrier() error { return membarrier(barrierRegisterPrivateExpedited) }

// Barrier has each running thread of this process execute a full memory barrier between the call
// and its return. It fails before RegisterBarrier, and where a filter of the process forbids it.
func Barrier() error { return membarrier(barrierPrivateExpedited) }

func membarrier(command uintptr) error {
	if _, _, e := sys.Syscall(sys.SYS_MEMBARRIER, command, 0, 0); e != 0 {
		return os.NewSyscallError("membarrier", e)
	}
	return nil
}

// Lock keeps the pages of b in memory until they are unmapped.
func Lock(b []byte) error {
	if err := sys.Mlock(b); err != nil {
		return fmt.Errorf("lock %d bytes in memory (limit: ulimit -l): %w", len(b), err)
	}
	return nil
}

// Close closes a descriptor.
func Close(fd int) error { return sys.Close(fd) }

// Dup makes a second descriptor of the same description, closed on exec.
func Dup(fd int) (int, error) {
	n, err := sys.FcntlInt(uintptr(fd), sys.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("duplicate descriptor: %w", err)
	}
	return n, nil
}

// Alias makes a second mapping of the shared pages behind [p, p+size), also of
// a memfd whose seals forbid new writable mappings.
func Alias(p unsafe.Pointer, size int) (unsafe.Pointer, error) {
	r, _, e := sys.Syscall6(sys.SYS_MREMAP, uintptr(p), 0, uintptr(size), sys.MREMAP_MAYMOVE, 0, 0)
	if e != 0 {
		return nil, fmt.Errorf("mremap: %w", e)
	}
	return *(*unsafe.Pointer)(unsafe.Pointer(&r)), nil
}
