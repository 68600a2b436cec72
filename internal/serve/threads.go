package serve

import (
	"os"
	"runtime"

	"github.com/vmmc-go/vmmc/internal/cgroup"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// nodeThreads are for goroutines that wait in system calls: a node looks up users and reads files
// in many goroutines at once.
const nodeThreads = 32

// keepThreads keeps n threads idle, beside one for each processor, so that a daemon that can have
// no more processes goes on (see [unix.Threads]). It keeps at most half of what the cgroup has room
// for, and at most an eighth of the limit of a user that is not root: failing at the start for want
// of threads would be worse than having fewer. It returns how many it keeps and how many it wanted.
func keepThreads(n int) (kept, wanted int) {
	wanted = n + runtime.GOMAXPROCS(0)
	n = min(wanted, cgroup.ThreadsLeft()/2)
	if l, err := unix.OwnLimits(); err == nil && os.Geteuid() != 0 {
		n = int(min(uint64(n), l.Processes/8))
	}
	unix.Threads(n)
	return n, wanted
}
