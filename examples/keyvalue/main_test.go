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

const want = `replica 0: key 0 is apple, version 1
replica 0: key 1 is quince, version 2
replica 0: key 2 is plum, version 1
replica 1: key 0 is apple, version 1
replica 1: key 1 is quince, version 2
replica 1: key 2 is plum, version 1
20000 puts to key 3: every get in between found a whole value, never an older one
`
