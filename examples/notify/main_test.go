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
	want := ""
	for n := 1; n <= 20; n++ {
		want += fmt.Sprintf("%d squared is %d\n", n, n*n)
	}
	if got := exampletest.Output(t); got != want {
		t.Errorf("printed\n%swant\n%s", got, want)
	}
}
