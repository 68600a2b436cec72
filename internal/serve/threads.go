package serve

import (
	"os"

	"github.com/vmmc-go/vmmc/internal/cgroup"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// How many threads are kept idle, so that who runs out of processes goes on (see [unix.Threads]):
// a node has users looked up and files read by many at once, a supervisor does little.
const (
	nodeThreads       = 32
	supervisorThreads = 8
)

// keepThreads keeps n, or half of what the cgroup has room for, or an eighth of what a user may have that is not
// root: to be ended at the start for want of them would help nobody. It says how many there are.
func keepThreads(n int) int {
	n = min(n, cgroup.Room()/2)
	if l, err := unix.OwnLimits(); err == nil && os.Geteuid() != 0 {
		n = int(min(uint64(n), l.Processes/8))
	}
	unix.Threads(n)
	return n
}
