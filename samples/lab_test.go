package samples

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// patience bounds every wait.
const patience = time.Minute

// lab is three nodes, and the programs as a user has them.
type lab struct {
	bin, socket string
}

// newLab builds the programs with the command of the README.
func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{bin: t.TempDir() + "/"}
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", l.bin, "./...")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	l.socket = up(t, 3)
	return l
}

// command is a program of the manual on the first node, for hosts.
func (l *lab) command(t *testing.T, hosts, name string, args ...string) *exec.Cmd {
	ctx, stop := context.WithTimeout(t.Context(), patience)
	t.Cleanup(stop)
	c := exec.CommandContext(ctx, filepath.Join(l.bin, name), args...)
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "VMMC") {
			c.Env = append(c.Env, e)
		}
	}
	c.Env = append(c.Env, "VMMC_SOCKET="+l.socket)
	if hosts != "" {
		c.Env = append(c.Env, "VMMCHOSTS="+hosts)
	}
	c.WaitDelay = patience / 10
	return c
}

// run runs a program to its end, and sees that nothing of it is left.
func (l *lab) run(t *testing.T, hosts, name string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	c := l.command(t, hosts, name, args...)
	c.Stdout, c.Stderr = &out, &errs
	status = exit(t, c.Run())
	l.nothingLeft(t)
	return status, out.String(), errs.String()
}

// exit is the status that a program ended with.
func exit(t *testing.T, err error) int {
	t.Helper()
	var e *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.ExitCode()
	}
	t.Fatal(err)
	return -1
}

// objects runs a program with --json and gives its array.
func (l *lab) objects(t *testing.T, hosts, name string, args ...string) []map[string]any {
	t.Helper()
	status, out, errs := l.run(t, hosts, name, append(args, "--json")...)
	if status != 0 || errs != "" {
		t.Fatalf("%s %v: status %d\n%s", name, args, status, errs)
	}
	var v []map[string]any
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("%s %v: %v in\n%s", name, args, err, out)
	}
	return v
}

// peers are the processes of a program that it has spawned.
func (l *lab) peers(name string) []int { return l.processes(name, "--peer") }
