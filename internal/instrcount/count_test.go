package instrcount_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/instrcount"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func TestMain(m *testing.M) {
	testutil.RegisterRole("counted", countedRole)
	testutil.Main(m)
}

// loop takes as many instructions for each turn as its compiler gives it, and always the same.
//
//go:noinline
func loop(n int) (sum int) {
	for i := range n {
		sum += i ^ sum<<1
	}
	return sum
}

var sum int

func countedRole() int {
	block := make([]byte, 1<<20)
	from := make([]byte, 1<<20)
	turns := func(n int) func() error { return func() error { sum = loop(n); return nil } }
	// The calls before that are made at full speed.
	counted := func(f func() error) func() error {
		calls := 0
		return func() error {
			if calls++; calls <= instrcount.Rounds+3 {
				return nil
			}
			return f()
		}
	}
	late := make(chan bool)
	if testutil.Args()[0] == "leaves" { // a child with its output, which ends with its input
		cmd := exec.Command("cat")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.NewFile(3, "input"), os.Stdout, os.Stderr
		if err := cmd.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Fprintln(os.NewFile(4, "started"), "started")
		<-late
	}
	paths := map[string][]instrcount.Path{
		"loops": {
			{Name: "1", Run: turns(1)},
			{Name: "101", Run: turns(101)},
			{Name: "201", Run: turns(201)},
			{Name: "1 after much else", Before: turns(1 << 20), Run: turns(1)},
			{Name: "copy", Run: func() error { copy(block[:64], from); return nil }},
			{Name: "a system call", Run: func() error { os.Getppid(); return nil }},
		},
		"fails": {{Name: "bad", Run: counted(func() error { return errors.New("out of luck") })}},
		"hangs": {{Name: "stuck", Run: counted(func() error { <-late; return nil })}},
		"ends":  {{Name: "worse", Run: counted(func() error { os.Exit(3); return nil })}},
	}
	if err := instrcount.Run(os.Stdin, os.Stdout, paths[testutil.Args()[0]]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// of counts what a child does; the test is skipped where that cannot be.
func of(t *testing.T, ctx context.Context, what string) ([]instrcount.Count, error) {
	t.Helper()
	counts, err := instrcount.Measure(ctx, testutil.Command(t, "counted", what))
	if errors.Is(err, instrcount.ErrUnsupported) {
		t.Skip(err)
	}
	return counts, err
}

func TestCounts(t *testing.T) {
	counts, err := of(t, t.Context(), "loops")
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for _, c := range counts {
		n[c.Name] = c.Median()
		t.Log(c.Name, c.Rounds)
	}
	one, hundred, two := n["1"], n["101"]-n["1"], n["201"]-n["1"]
	if one <= 0 || hundred < 300 || hundred%100 != 0 || two != 2*hundred {
		t.Errorf("a turn takes %d instructions, 100 more %d, 200 more %d", one, hundred, two)
	}
	if n := n["1 after much else"]; n != one {
		t.Errorf("with other work before it, a turn takes %d instructions, alone %d", n, one)
	}
	if n := n["a system call"]; n < 2 || n > 200 {
		t.Errorf("a system call takes %d instructions in user mode", n)
	}
}

func TestFailures(t *testing.T) {
	for what, says := range map[string]string{"fails": "out of luck", "ends": "has ended"} {
		if counts, err := of(t, t.Context(), what); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("a path that %s: %v, %v", what, counts, err)
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	if counts, err := of(t, ctx, "hangs"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a path that hangs: %v, %v", counts, err)
	}
}

// A child of the child that has its output, and lives on, does not hold Measure up.
func TestChildLeavesAChild(t *testing.T) {
	in, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	started, say, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _, _, _ = in.Close(), started.Close(), end.Close(), say.Close() }()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	cmd := testutil.Command(t, "counted", "leaves")
	cmd.ExtraFiles = []*os.File{in, say}
	done := make(chan error, 1)
	go func() { _, err := instrcount.Measure(ctx, cmd); done <- err }()
	if _, err := started.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	stop()
	select {
	case err := <-done:
		if errors.Is(err, instrcount.ErrUnsupported) {
			t.Skip(err)
		}
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("Measure waits for a child of the child")
		_ = end.Close()
		t.Log(<-done)
	}
}
