package doctor

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// How much is enough. A link takes two descriptors and an allocation one; each
// mapping takes one of the process's map areas.
const (
	leastFiles  = 256
	enoughFiles = 4096
	enoughLock  = 8 << 20
	enoughMaps  = 65530
	enoughProcs = 1024
)

func amount(n uint64) string {
	if n == unix.Unlimited {
		return "unlimited"
	}
	return strconv.FormatUint(n, 10)
}

func files(context.Context, *Node) []Finding {
	const name = "descriptors"
	l, err := unix.OwnLimits()
	if err != nil {
		return bad(Failed, name, "", "%v", err)
	}
	found := fmt.Sprintf("%s descriptors for a process", amount(l.Files))
	mend := "raise it: LimitNOFILE= in the unit of vmmcd, nofile in /etc/security/limits.conf, or ulimit -n"
	switch {
	case l.Files < leastFiles:
		return bad(Failed, name, mend, "%s, at least %d are needed", found, leastFiles)
	case l.Files < enoughFiles:
		return bad(Warning, name, mend, "%s, %d are enough for many links", found, enoughFiles)
	}
	return good(name, "%s", found)
}

func lockedMemory(context.Context, *Node) []Finding {
	const name = "locked memory"
	l, err := unix.OwnLimits()
	if err != nil {
		return bad(Failed, name, "", "%v", err)
	}
	if l.Locked < enoughLock {
		return bad(
			Warning, name, "raise it if programs lock what they export: LimitMEMLOCK= in units, memlock in /etc/security/limits.conf, or ulimit -l",
			"%s bytes can be locked, %d are usual", amount(l.Locked), enoughLock,
		)
	}
	return good(name, "%s bytes can be locked", amount(l.Locked))
}

func mappings(context.Context, *Node) []Finding {
	const name = "mappings"
	n, err := number("/proc/sys/vm/max_map_count")
	if err != nil {
		return bad(Warning, name, "mount /proc", "how many mappings a process may have is not told: %v", err)
	}
	if n < enoughMaps {
		return bad(Warning, name, fmt.Sprintf("sysctl vm.max_map_count=%d", enoughMaps), "%d mappings for a process, %d are usual; each import takes one", n, enoughMaps)
	}
	return good(name, "%d mappings for a process", n)
}

func processes(context.Context, *Node) []Finding {
	const name = "processes"
	l, err := unix.OwnLimits()
	if err != nil {
		return bad(Failed, name, "", "%v", err)
	}
	if l.Processes < enoughProcs {
		return bad(Warning, name, "raise it: LimitNPROC= and TasksMax= in the unit of vmmcd, or ulimit -u", "%s processes for this user; a session may have 1024 programs", amount(l.Processes))
	}
	return good(name, "%s processes for this user", amount(l.Processes))
}

// number reads a file of the kernel with one number in it.
func number(path string) (uint64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
}
