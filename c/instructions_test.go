//go:build linux && (amd64 || arm64)

package c_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/vmmc-go/vmmc/internal/instrcount"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// TestInstructionsInC holds what calls on the mapped path cost, in instructions of user mode, as
// TestInstructions does for Go. The limits are an eighth above what gcc 12 made of them, so that
// another compiler passes, and a call or a check more on the path does not. Those of 64 bytes include
// the C library's memcpy.
func TestInstructionsInC(t *testing.T) {
	testutil.Require(t, runtime.GOARCH == "amd64", "the instructions that were counted are amd64's")
	most := map[string]int{
		"vmmc_SendData 4": 198, "vmmc_SendData 8": 199, "vmmc_SendData 64": 228,
		"vmmc_GetData 4": 189, "vmmc_GetData 8": 190, "vmmc_GetData 64": 213,
	}
	counts, err := instrcount.Measure(t.Context(), inside(t, vmmctest.Nodes(t, 1)[0], "count"))
	if errors.Is(err, instrcount.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(counts) != len(most) {
		t.Errorf("%d paths were counted, and %d have a limit", len(counts), len(most))
	}
	for _, c := range counts {
		n := c.Median()
		t.Logf("%4d of at most %4d  %s", n, most[c.Name], c.Name)
		if n > most[c.Name] || n < most[c.Name]/2 {
			t.Errorf("%s takes %d instructions %v, at most %d and no less than half of that: find out why", c.Name, n, c.Rounds, most[c.Name])
		}
	}
}
