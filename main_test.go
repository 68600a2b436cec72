package vmmc_test

import (
	"os"
	"slices"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// TestMain checks that the tests leave no goroutine and no descriptor behind.
func TestMain(m *testing.M) {
	if slices.Equal(os.Args[1:], []string{"worker"}) {
		work() // of ExampleProcess_Spawn
		return
	}
	vmmctest.Role("exportUntilStopped", exportUntilStopped)
	testutil.RegisterRole("after", afterRole)
	testutil.RegisterRole("bound", boundRole)
	testutil.RegisterRole("hotpaths", hotPathsRole)
	testutil.Main(m)
}
