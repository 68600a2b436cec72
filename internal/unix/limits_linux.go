package unix

import (
	"fmt"
	"os"
	"syscall"

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

// Owner returns the user that owns a file.
func Owner(i os.FileInfo) (uid uint32, ok bool) {
	st, ok := i.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return st.Uid, true
}

// Group gives the group that a file belongs to.
func Group(i os.FileInfo) (gid uint32, ok bool) {
	st, ok := i.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return st.Gid, true
}
