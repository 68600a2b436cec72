package main

import (
	"fmt"
	"testing"

	"github.com/vmmc-go/vmmc/examples/internal/exampletest"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

// TestMain checks that the test leaves no goroutine and no descriptor behind.
func TestMain(m *testing.M) { testutil.Main(m) }

func TestOutput(t *testing.T) {
	if got, want := exampletest.Output(t), want(1); got != want {
		t.Errorf("printed\n%swant\n%s", got, want)
	}
	for _, module := range []string{"", "shm", "tcp", "via"} {
		if got, want := exampletest.Ranks(t, 3, "VMMC_MPI_MODULE="+module), want(3); got != want {
			t.Errorf("3 ranks and module %q printed\n%swant\n%s", module, got, want)
		}
	}
}

func want(n int) string { return fmt.Sprintf("pi is 3.141592654, by %d ranks\n", n) }
