package doctor

import (
	"context"
	"os"
	"strings"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// memory does what an allocation and its import do.
func memory(context.Context, *Node) []Finding {
	const name = "shared memory"
	size := os.Getpagesize()
	fd, err := unix.Memfd("vmmc-doctor", int64(size))
	if err != nil {
		return bad(Failed, name, "use Linux 5.1 or later, and allow memfd_create in the sandbox that this runs in", "%v", err)
	}
	defer func() { _ = unix.Close(fd) }()
	p, err := unix.Map(fd, size, true, false)
	if err != nil {
		return bad(Failed, name, "free memory, or raise the limit of the cgroup", "%v", err)
	}
	defer func() { _ = unix.Unmap(p, size) }()
	if err := unix.Seal(fd, true); err != nil {
		return bad(Failed, name, "use Linux 5.1 or later", "%v", err)
	}
	i, err := unix.Inspect(fd)
	if err != nil || !i.Fixed || !i.ReadOnly {
		return bad(Failed, name, "use Linux 5.1 or later", "seals do not hold: %+v, %v", i, err)
	}
	return good(name, "memfd and its seals work")
}

// pageTracking is what bindings of automatic update need.
func pageTracking(context.Context, *Node) []Finding {
	const name = "page tracking"
	err := unix.AsyncWriteProtect()
	if err != nil {
		says := ""
		if v, rerr := number("/proc/sys/vm/unprivileged_userfaultfd"); rerr == nil && v == 0 && os.Getuid() != 0 {
			says = "; vm.unprivileged_userfaultfd is 0, which still allows what vmmc asks for, so a sandbox may forbid it"
		}
		return bad(Warning, name, "use Linux 6.7 or later with CONFIG_USERFAULTFD, outside of a sandbox that forbids it; automatic update is not possible without", "%v%s", err, says)
	}
	if err := unix.ScanPages(); err != nil {
		return bad(Warning, name, "use Linux 6.7 or later; automatic update is not possible without", "%v", err)
	}
	return good(name, "userfaultfd (asynchronous write protection) and PAGEMAP_SCAN work")
}

// hugePages only informs: nothing of vmmc needs them.
func hugePages(context.Context, *Node) []Finding {
	const name = "huge pages"
	b, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
	if err != nil {
		return good(name, "not for shared memory; large exports have small pages")
	}
	_, rest, _ := strings.Cut(string(b), "[")
	mode, _, _ := strings.Cut(rest, "]")
	return good(name, "for shared memory: %s (/sys/kernel/mm/transparent_hugepage/shmem_enabled)", mode)
}
