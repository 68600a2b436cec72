package exampletest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// Processes fails the test unless the example has n processes when it prints its first line.
func Processes(t *testing.T, n int) {
	t.Helper()
	bin := build(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	raw, err := w.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	// With the pipe full, the program waits until this test reads.
	if err := raw.Write(func(fd uintptr) bool {
		for _, b := range [][]byte{make([]byte, 4096), {0}} {
			for err = nil; err == nil; {
				_, err = syscall.Write(int(fd), b)
			}
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, syscall.EAGAIN) {
		t.Fatalf("fill the pipe: %v", err)
	}
	var stderr bytes.Buffer
	c := exec.CommandContext(t.Context(), bin)
	c.Dir, c.Env, c.Stdout, c.Stderr = t.TempDir(), alone(), w, &stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var found []string
	for end := time.Now().Add(time.Minute); len(found) != n && time.Now().Before(end); time.Sleep(time.Millisecond) {
		found = processes(t, bin)
	}
	if len(found) != n {
		t.Errorf("the processes are %q, want %d", found, n)
	}
	_ = w.Close()
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Error(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("%v\n%s", err, &stderr)
	}
}
