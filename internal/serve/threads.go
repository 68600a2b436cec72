package serve

import (
	"os"
	"runtime"

	"github.com/vmmc-go/vmmc/internal/cgroup"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// nodeThreads are for those who wait in system calls: a node has users looked up and files read by
// many at once.
const nodeThreads = 32

// keepThreads keeps n idle, beside one for each processor, so that who runs out of processes goes
// on (see [unix.Threads]); or half of what the cgroup has room for, or an eighth of what a user may
// have that is not root: to be ended at the start for want of them would help nobody. It says how
// many there are, and were wanted.
func keepThreads(n int) (kept, wanted int) {
	wanted = n + runtime.GOMAXPROCS(0)
	n = min(wanted, cgroup.ThreadsLeft()/2)
	if l, err := unix.OwnLimits(); err == nil && os.Geteuid() != 0 {
		n = int(min(uint64(n), l.Processes/8))
	}
	unix.Threads(n)
	return n, wanted
}
