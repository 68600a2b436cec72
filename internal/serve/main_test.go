package serve

import (
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

func TestMain(m *testing.M) {
	testutil.RegisterRole("vmmcd", func() int {
		c := Command("vmmcd")
		c.SetArgs(testutil.Args())
		return Execute(c)
	})
	testutil.Main(m)
}
