package testutil

import "testing"

// Require skips the test unless cond holds. The reason names what is missing and how to get it:
// .ci/run prints it, and fails if a test is skipped for a reason that .ci/allowed-skips lacks.
func Require(t testing.TB, cond bool, reason string) {
	t.Helper()
	if !cond {
		t.Skip(reason)
	}
}
