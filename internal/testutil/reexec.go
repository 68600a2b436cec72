package testutil

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// roleEnv names the role of a child, in its environment.
const roleEnv = "VMMC_TEST_ROLE"

// pipeGrace is how long Wait goes on reading a dead child's output when a grandchild holds the
// pipe open.
const pipeGrace = 5 * time.Second

// Name stands before what users of roles and of Main are told. Package vmmctest sets its own.
var Name = "testutil"

// roles is written before RunRole and only read afterwards, so it needs no lock.
var roles = map[string]func() int{}

// RegisterRole names what a child does instead of running the tests; f returns its exit code. Call
// it from init or at the top of TestMain, before Main or RunRole.
func RegisterRole(name string, f func() int) {
	if _, twice := roles[name]; twice || name == "" {
		panic(fmt.Sprintf("%s: role %q is empty or registered twice; give each role a name of "+
			"its own", Name, name))
	}
	roles[name] = f
}

// rolesRun is set once RunRole was called.
var rolesRun bool

// RunRole runs the role that Command gave this process and exits with its result. In a process
// without a role it returns.
func RunRole() {
	rolesRun = true
	name := os.Getenv(roleEnv)
	if name == "" {
		return
	}
	// Programs that the role starts are not meant, even if they are this binary again.
	_ = os.Unsetenv(roleEnv)
	f, ok := roles[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "%s: no role %q in %s; register it before Main\n", Name, name, os.Args[0])
		os.Exit(2)
	}
	os.Exit(f())
}

// Args returns the arguments that Command gave this role.
func Args() []string { return os.Args[slices.Index(os.Args, "--")+1:] }

// Command returns a command, not yet started, that runs this test binary in a role. The role reads
// its arguments with Args. When the test ends, a child still there is killed and waited for; if the
// test binary itself dies, so does the child (on Linux). A goroutine of the
// test that waits for the child must be done before the test ends.
func Command(t testing.TB, role string, args ...string) *exec.Cmd {
	t.Helper()
	if _, ok := roles[role]; !ok {
		t.Fatalf("%s: no role %q; register it before Main", Name, role)
	}
	if !rolesRun { // the child would run the tests, each of which starts children
		t.Fatalf("%s: role %q cannot run: call Main in TestMain", Name, role)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatalf("%s: finding the test binary to run it as %q: %v", Name, role, err)
	}
	cmd := exec.Command(exe, append([]string{"--"}, args...)...)
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	return bound(t, cmd)
}

// bound ties a command's life to the test's.
func bound(t testing.TB, cmd *exec.Cmd) *exec.Cmd {
	cmd.WaitDelay = pipeGrace
	dieWithParent(cmd)
	t.Cleanup(func() {
		if cmd.Process == nil {
			return // never started
		}
		// Both fail if the test has waited itself; a process once waited for is never signalled.
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// Start starts cmd, reads the first values that it prints, and returns what it prints after them.
func Start(t testing.TB, cmd *exec.Cmd, first ...any) io.Reader {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = fmt.Fscan(out, first...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}
