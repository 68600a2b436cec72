package unix

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// TestMain checks that the tests leave no goroutine and no descriptor behind. Programs are started
// by the starter, as in a daemon. In tests of other packages they are not.
func TestMain(m *testing.M) {
	testutil.RunRole()
	if err := KeepStarter(); err != nil && !errors.Is(err, ErrUnsupported) {
		fmt.Fprintln(os.Stderr, err) // and the tests of it are skipped
	}
	os.Exit(testutil.Checked(m).Run())
}
