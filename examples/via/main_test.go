package main

import (
	"regexp"
	"testing"

	"github.com/vmmc-go/vmmc/examples/internal/exampletest"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

// TestMain checks that the test leaves no goroutine and no descriptor behind.
func TestMain(m *testing.M) { testutil.Main(m) }

func TestOutput(t *testing.T) {
	if got := exampletest.Output(t); !want.MatchString(got) {
		t.Errorf("printed\n%swant\n%s", got, want)
	}
}

var want = regexp.MustCompile(`^node ".+" has the address [0-9a-f]{12}
64 bytes, half a round trip: [0-9.]+[mµn]?s
65536 bytes, half a round trip: [0-9.]+[mµn]?s
one way: [0-9]+ MB/s
both ways: [0-9]+ MB/s each
$`)
