package main

import (
	"errors"
	"runtime"
	"testing"
)

func TestCalledWrongly(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("what is measured needs Linux")
	}
	for _, args := range [][]string{
		{"now"}, {"--rounds", "0"}, {"--only", "("}, {"--nothing"}, {"--module", "/"}, {"--rounds", "many"},
	} {
		if err := command(t.Context(), args); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v", args, err)
		}
	}
	if err := command(t.Context(), []string{"--report", "--run", "never", "--results", t.TempDir(), "--docs", t.TempDir()}); err == nil || errors.Is(err, errUsage) {
		t.Errorf("the report of no run: %v", err)
	}
}
