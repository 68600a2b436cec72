package main

import (
	"testing"

	"github.com/vmmc-go/vmmc/examples/internal/exampletest"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

// TestMain checks that the test leaves no goroutine and no descriptor behind.
func TestMain(m *testing.M) { testutil.Main(m) }

func TestOutput(t *testing.T) {
	if got := exampletest.Output(t); got != want {
		t.Errorf("printed\n%swant\n%s", got, want)
	}
}

const want = `udp: hello
tcp: hello
vmmc: hello
`
