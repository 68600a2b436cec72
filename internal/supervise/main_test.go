package supervise

import (
	"os"
	"runtime"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// As the command does.
func init() {
	if os.Getenv(supervisorEnv) != "" {
		runtime.LockOSThread()
	}
}

// TestMain checks that the tests leave no goroutine and no descriptor behind.
func TestMain(m *testing.M) {
	if os.Getenv(supervisorEnv) != "" {
		room := 0
		if os.Getenv(roomEnv) != "" {
			room = minSpareThreads
		}
		if Main(Threads, func() int { return room }) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	testutil.Main(m)
}

// supervisorEnv makes the test binary a supervisor.
const supervisorEnv = "VMMC_TEST_SUPERVISOR"

// roomEnv lets it have more threads.
const roomEnv = "VMMC_TEST_ROOM"
