// Package exampletest is what the tests of the examples share.
package exampletest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Output builds the example in the test's directory, runs it as its reader
// would, and gives what it printed. It fails the test unless the program ends
// with status 0, says nothing else, and leaves neither a file nor a process.
func Output(t *testing.T) string {
	t.Helper()
	bin, cwd := build(t), t.TempDir()
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	c := exec.CommandContext(ctx, bin)
	c.Dir, c.Env = cwd, alone()
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil || stderr.Len() > 0 {
		t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
	}
	left, err := os.ReadDir(cwd)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range left {
		t.Errorf("the program left a file %s", f.Name())
	}
	if left := processes(t, bin); len(left) > 0 {
		t.Errorf("the program left processes: %q", left)
	}
	return stdout.String()
}

// build makes the program of the test's directory.
func build(t *testing.T) (bin string) {
	t.Helper()
	bin = filepath.Join(t.TempDir(), "example")
	c := exec.CommandContext(t.Context(), "go", "build", "-o", bin, ".")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

// processes are those that run a program.
func processes(t *testing.T, bin string) (found []string) {
	t.Helper()
	exes, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range exes {
		if to, err := os.Readlink(e); err == nil && strings.HasPrefix(to, bin) {
			found = append(found, e)
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			t.Error(err)
		}
	}
	return found
}

// alone is this process's environment without a daemon and a session.
func alone() []string {
	var out []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "VMMC") {
			out = append(out, e)
		}
	}
	return out
}

// Ranks builds the example and the tool, runs the example by "vmmc run -n" without a node on this
// machine, and gives what it printed, without the labels of ranks. env is more of its environment. It
// fails the test unless all programs end with status 0, and leave no process.
func Ranks(t *testing.T, n int, env ...string) string {
	t.Helper()
	bin, tool := build(t), filepath.Join(t.TempDir(), "vmmc")
	b := exec.CommandContext(t.Context(), "go", "build", "-o", tool, "github.com/vmmc-go/vmmc/cmd/vmmc")
	if out, err := b.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	c := exec.CommandContext(ctx, tool, "run", "-n", strconv.Itoa(n), "--alone", bin)
	c.Dir, c.Env = t.TempDir(), append(alone(), env...)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err := c.Run()
	if said := noNode.ReplaceAllString(stderr.String(), ""); err != nil || said != "" {
		t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
	}
	if left := processes(t, bin); len(left) > 0 {
		t.Errorf("the programs left processes: %q", left)
	}
	return label.ReplaceAllString(stdout.String(), "")
}

// noNode is what "vmmc run" says where no node is.
var noNode = regexp.MustCompile(`^vmmc run: no daemon answers at [^\n]*: the programs have a node of their own\n$`)

// label is what "vmmc run" puts before each line.
var label = regexp.MustCompile(`(?m)^\[[^\]]*\] `)
