package serve

import (
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/cgroup"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/supervise"
)

const superviseName = "supervise"

// A supervisor's main goroutine has the first thread to itself (see [supervise.Main]).
func init() {
	if len(os.Args) > 1 && os.Args[len(os.Args)-1] == superviseName {
		runtime.LockOSThread()
	}
}

// newSupervise is what a daemon runs for each session.
func newSupervise() *cobra.Command {
	return &cobra.Command{
		Use:    superviseName,
		Short:  "Stay with a session's programs (the daemon starts this)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			// it does little, and each more may want a thread
			runtime.GOMAXPROCS(min(2, runtime.GOMAXPROCS(0)))
			kept, _ := keepThreads(supervise.Threads)
			return supervise.Main(kept-runtime.GOMAXPROCS(0), cgroup.ThreadsLeft)
		},
	}
}

// DefaultState is where a node of this user keeps what outlives it; "" if the
// user has no place for that.
func DefaultState(node string) string {
	if os.Geteuid() == 0 {
		return filepath.Join("/var/lib/vmmc", node)
	}
	state, err := env.StateHome()
	if err != nil {
		return ""
	}
	return filepath.Join(state, "vmmc", "nodes", node)
}
