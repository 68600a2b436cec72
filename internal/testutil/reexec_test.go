package testutil

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// echoArgs prints its arguments and whether it is still marked as a role, and exits with 5.
func echoArgs() int {
	fmt.Printf("%q %q\n", Args(), os.Getenv(roleEnv))
	return 5
}

// echoRace prints the race detector's options.
func echoRace() int {
	fmt.Print(os.Getenv("GORACE"))
	return 0
}

// forever says that it runs and then waits to be killed, on a pipe without a writer.
func forever() int {
	r, w, err := os.Pipe()
	if err != nil {
		return 1
	}
	fmt.Println("running")
	_, _ = r.Read(make([]byte, 1))
	runtime.KeepAlive(w)
	return 0
}

func TestCommandRunsTheRole(t *testing.T) {
	t.Parallel()
	cmd := Command(t, "echo-args", "-x", "--", "two words")
	out, err := cmd.Output()
	if want := `["-x" "--" "two words"] ""` + "\n"; string(out) != want {
		t.Errorf("the role prints %q, want %q", out, want)
	}
	if got := cmd.ProcessState.ExitCode(); got != 5 {
		t.Errorf("exit code %d (%v), want the role's 5", got, err)
	}
}

// The first value is for children alone, and options that the tests were started with come after it.
func TestRaceOptionsOfChildren(t *testing.T) {
	t.Parallel()
	out, err := Command(t, "echo-race").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.HasPrefix(string(out), exitSleep+" "); got != (Slow > 1) {
		t.Errorf("with the race detector: %t, a child has the options %q", Slow > 1, out)
	}
}

func TestUnknownRoleIsAnError(t *testing.T) {
	t.Parallel()
	cmd := Command(t, "echo-args")
	cmd.Env = append(cmd.Env, roleEnv+"=nobody")
	out, _ := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(string(out), `"nobody"`) {
		t.Errorf("exit code %d and %q, want 2 and the role's name", code, out)
	}
}

// fatal is a test that may fail.
type fatal struct {
	testing.TB
	said string
}

func (f *fatal) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// In a test binary without Main a child would run the tests, which start children.
func TestCommandWithoutMain(t *testing.T) {
	rolesRun = false
	defer func() { rolesRun = true }()
	f := &fatal{TB: t}
	over := make(chan struct{})
	go func() {
		defer close(over)
		Command(f, "echo-args")
	}()
	<-over
	if !strings.Contains(f.said, "call Main in TestMain") {
		t.Errorf("it says %q", f.said)
	}
}

func TestRegisterRoleTwicePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("registering a role twice goes unnoticed")
		}
	}()
	RegisterRole("forever", forever)
}

// startForever starts cmd, a role "forever", and returns when it runs.
func startForever(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "running\n" {
		t.Fatalf("the role prints %q (%v), want running", line, err)
	}
}

func TestCleanupKillsAndWaits(t *testing.T) {
	t.Parallel()
	var cmd *exec.Cmd
	t.Run("test", func(t *testing.T) {
		cmd = Command(t, "forever")
		startForever(t, cmd)
		Command(t, "forever") // never started: nothing to kill
	})
	if cmd.ProcessState == nil || cmd.ProcessState.Success() {
		t.Errorf("after the test the child's state is %v, want killed", cmd.ProcessState)
	}
}

// parentRole starts a child on its own standard output and waits to be killed, with no cleanup.
func parentRole() int {
	cmd := Command(noTest{}, "forever")
	cmd.Stdout = os.Stdout
	if err := cmd.Start(); err != nil {
		return 1
	}
	_ = cmd.Wait()
	return 0
}

// noTest is a testing.TB outside a test, whose cleanups never run.
type noTest struct{ testing.TB }

func (noTest) Helper()        {}
func (noTest) Cleanup(func()) {}

func TestChildDiesWithItsParent(t *testing.T) {
	t.Parallel()
	Require(t, runtime.GOOS == "linux", "only Linux ties a child to its parent's death")
	cmd := Command(t, "parent")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.Stdout = w
	err = cmd.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(r)
	if line, err := out.ReadString('\n'); line != "running\n" {
		t.Fatalf("the child prints %q (%v), want running", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// The child holds the pipe's other end: its end of file is the child's death.
	if err := r.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 {
		t.Errorf("after its parent's death the child prints %q (%v), want the end", rest, err)
	}
}
