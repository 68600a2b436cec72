package metrics

import (
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// TestMain checks that the tests leave no goroutine and no descriptor behind.
func TestMain(m *testing.M) { testutil.Main(m) }

func TestOnlyThisMachineIsTold(t *testing.T) {
	for _, a := range []string{"127.0.0.1:0", "127.1.2.3:9464", "[::1]:9464"} {
		if err := Check(a); err != nil {
			t.Error(err)
		}
	}
	for _, a := range []string{"", ":9464", "0.0.0.0:9464", "10.0.0.1:9464", "localhost:9464", "127.0.0.1", "[::]:1"} {
		if Check(a) == nil {
			t.Errorf("%q is taken", a)
		}
	}
}
