package testutil

import (
	"os"
	"os/exec"
	"testing"
)

// Argv is a program with its arguments that runs this test binary in a role, for a program that
// starts it in an environment of its own. The test must see to its end: unlike Command's, it is not
// tied to the test's.
func Argv(t testing.TB, role string, args ...string) []string {
	t.Helper()
	if _, ok := roles[role]; !ok {
		t.Fatalf("testutil: no role %q; register it before Main", role)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatalf("testutil: finding the test binary to run it as %q: %v", role, err)
	}
	env, err := exec.LookPath("env")
	Require(t, err == nil, "needs the program env")
	return append([]string{env, roleEnv + "=" + role, exe, "--"}, args...)
}
