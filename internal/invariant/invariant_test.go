package invariant

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// broken is what a check says when it fails, "" when it says nothing.
func broken(cond bool) (said string) {
	defer func() {
		if p := recover(); p != nil {
			said = fmt.Sprint(p)
		}
	}()
	Check(cond, "%d after %d", 3, 4)
	return ""
}

func TestCheck(t *testing.T) {
	if said := broken(true); said != "" {
		t.Errorf("a promise that was kept: %s", said)
	}
	switch said := broken(false); {
	case !Enabled && said != "":
		t.Errorf("without the tag: %s", said)
	case Enabled && !strings.Contains(said, "vmmc: ") || Enabled && !strings.HasSuffix(said, "3 after 4"):
		t.Errorf("a broken promise says %q", said)
	}
}
