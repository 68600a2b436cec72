package doctor

import (
	"context"
	"os"
	"strings"

	"github.com/vmmc-go/vmmc/internal/shm"
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

// pageTracking is how bindings of automatic update find what was stored to.
func pageTracking(context.Context, *Node) []Finding {
	const name = "page tracking"
	if err := shm.CanWatch(); err != nil {
		says := ""
		if v, rerr := number("/proc/sys/vm/unprivileged_userfaultfd"); rerr == nil && v == 0 &&
			os.Getuid() != 0 {
			says = "; vm.unprivileged_userfaultfd is 0, which still allows what vmmc asks for, so a sandbox may forbid it"
		}
		return bad(Warning, name, "use Linux 6.7 or later with CONFIG_USERFAULTFD, outside of a sandbox that forbids it; automatic update compares all of the bound memory instead, which for much memory is slow", "%v%s", err, says)
	}
	return good(name, "the kernel tells which pages were stored to (userfaultfd's asynchronous write protection, PAGEMAP_SCAN); automatic update uses that")
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
