//go:build linux

package daemon_test

import (
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/vmmc-go/vmmc/internal/cgroup"
	"github.com/vmmc-go/vmmc/internal/supervise"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

// As the command does.
func init() {
	if slices.Equal(os.Args[1:], []string{supervisorArg}) {
		runtime.LockOSThread()
	}
}

// TestMain checks that the tests leave no goroutine and no descriptor behind.
func TestMain(m *testing.M) {
	if slices.Equal(os.Args[1:], []string{supervisorArg}) {
		if supervise.Main(supervise.Threads, cgroup.ThreadsLeft) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	testutil.RegisterRole("sit", sitRole)
	testutil.RegisterRole("import", importRole)
	testutil.RegisterRole("modes", modesRole)
	testutil.RegisterRole("crowd", crowdRole)
	testutil.Main(m)
}
