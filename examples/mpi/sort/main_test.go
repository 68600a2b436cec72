package main

import (
	"testing"

	"github.com/vmmc-go/vmmc/examples/internal/exampletest"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

// TestMain checks that the test leaves no goroutine and no descriptor behind.
func TestMain(m *testing.M) { testutil.Main(m) }

// The result does not depend on the number of ranks, nor on the module.
func TestOutput(t *testing.T) {
	want := exampletest.Output(t)
	for _, module := range []string{"shm", "tcp", "via"} {
		if got := exampletest.Ranks(t, 4, "VMMC_MPI_MODULE="+module); got != want {
			t.Errorf("4 ranks and module %s printed\n%swant\n%s", module, got, want)
		}
	}
	const known = "100000 numbers, sorted: true, the middle is 9165055574290023191\n"
	if want != known {
		t.Errorf("printed\n%swant\n%s", want, known)
	}
}
