//go:build unix

package starter_test

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"github.com/vmmc-go/vmmc/internal/starter"
)

// A command is started by the function that is in use, and waited for as any other.
func TestStart(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skipf("no shell: %v", err)
	}
	c := exec.Command(sh, "-c", "exit 3")
	if err := starter.Start(c); err != nil {
		t.Fatal(err)
	}
	var status *exec.ExitError
	if err := c.Wait(); !errors.As(err, &status) || status.ExitCode() != 3 {
		t.Errorf("it ends with %v, want status 3", err)
	}
	refuse := errors.New("refused")
	var got []string
	starter.Use(func(path string, args, env []string, dir string) (int, error) {
		got = append([]string{path, dir}, args...)
		if !slices.Contains(env, "A=1") {
			t.Errorf("the environment is %q", env)
		}
		if args[1] == "refuse" {
			return 0, refuse
		}
		return syscall.ForkExec(path, args, &syscall.ProcAttr{Env: env, Dir: dir, Files: []uintptr{0, 1, 2}})
	})
	c = exec.Command(sh, "-c", "exit 4")
	c.Dir, c.Env = t.TempDir(), append(os.Environ(), "A=1")
	if err := starter.Start(c); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); !errors.As(err, &status) || status.ExitCode() != 4 {
		t.Errorf("it ends with %v, want status 4", err)
	}
	if want := []string{sh, c.Dir, sh, "-c", "exit 4"}; !slices.Equal(got, want) {
		t.Errorf("the function gets %q, want %q", got, want)
	}
	c = exec.Command(sh, "refuse")
	c.Env = []string{"A=1"}
	if err := starter.Start(c); !errors.Is(err, refuse) {
		t.Errorf("the error is %v, want that of the function", err)
	}
	if err := starter.Start(exec.Command("no-such-program-anywhere")); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("a program that is not there: %v", err)
	}
}
