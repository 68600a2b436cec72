package supervise

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

// slow orders programs whose files do not open: one, and a script whose interpreter does not. There
// are more than there are places at files.
func (s *session) slow(n int) (failed chan error) {
	s.t.Helper()
	dir := s.t.TempDir()
	program := testutil.CopyProgram(s.t, "/bin/sleep", dir)
	shell := testutil.CopyProgram(s.t, "/bin/sh", dir)
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!"+shell+"\n"), 0o700); err != nil {
		s.t.Fatal(err)
	}
	testutil.Lease(s.t, program)
	testutil.Lease(s.t, shell)
	failed = make(chan error, n)
	for i := range n {
		path := program
		if i%2 == 1 {
			path = script
		}
		s.next++
		o := Order{PID: s.next, Group: 1, Path: []byte(path), Directory: []byte("/"), Args: [][]byte{[]byte("1000")}}
		go func() {
			_, err := s.Start(s.t.Context(), o)
			failed <- err
		}()
	}
	for end := time.Now().Add(bound); ; time.Sleep(time.Millisecond) { // each has a child
		begun := 0
		l, err := s.List(s.t.Context(), ListRequest{})
		if err != nil {
			s.t.Fatal(err)
		}
		for _, p := range l.Programs {
			if p.Command != "" && p.Real > 0 && !p.Ended && p.PID > s.next-uint32(n) {
				begun++
			}
		}
		if begun == n {
			return failed
		}
		if time.Now().After(end) {
			s.t.Fatalf("%d of %d are about to begin", begun, n)
		}
	}
}

// Programs whose files do not open hold up neither others nor signals, and a signal reaches them.
func TestSignalsWhileFilesDoNotOpen(t *testing.T) {
	s := newSession(t, t.TempDir())
	first := s.sh("exec sleep 1000")
	const many = 3 * orders
	failed := s.slow(many)
	begun := time.Now()
	if got := s.wait(s.sh("exit 3").PID); got.Status != 3 {
		t.Errorf("another program: %+v", got)
	}
	if n, err := s.Signal(t.Context(), SignalRequest{PID: first.PID, Signal: int(syscall.SIGTERM)}); err != nil || n != 1 {
		t.Errorf("a signal reaches %d (%v)", n, err)
	}
	if got := s.wait(first.PID); got.Signal != int(syscall.SIGTERM) {
		t.Errorf("%+v", got)
	}
	if n, err := s.Signal(t.Context(), SignalRequest{Signal: int(syscall.SIGTERM)}); err != nil || n != many {
		t.Errorf("a signal for all reaches %d of %d (%v)", n, many, err)
	}
	for range many {
		if err := <-failed; err != nil { // it counts as one that has begun, and was killed
			t.Error(err)
		}
	}
	l, err := s.List(t.Context(), ListRequest{After: first.PID})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range l.Programs[:many] {
		if got := s.wait(p.PID); got.Signal != int(syscall.SIGTERM) {
			t.Errorf("%+v, want one that SIGTERM has ended", got)
		}
	}
	if d := time.Since(begun); d > bound { // leases end after 45 s
		t.Errorf("all of that took %v", d)
	}
}

// The end of a session ends them.
func TestEndWhileFilesDoNotOpen(t *testing.T) {
	s := newSession(t, t.TempDir())
	failed := s.slow(4)
	begun := time.Now()
	s.end()
	for range 4 {
		if err := <-failed; !errors.Is(err, code.NoSuchSession) && !errors.Is(err, code.NoDaemon) {
			t.Errorf("%v, want that the session is deleted", err)
		}
	}
	if d := time.Since(begun); d > bound {
		t.Errorf("the end took %v", d)
	}
}

// A program whose file does not open in time is given up, and nothing is left of it.
func TestFileThatDoesNotOpenInTime(t *testing.T) {
	s := newSession(t, t.TempDir())
	failed := s.slow(1)
	if err := <-failed; !errors.Is(err, code.Timeout) {
		t.Errorf("%v, want that there is no more time", err)
	}
	for end := time.Now().Add(bound); ; time.Sleep(time.Millisecond) {
		l, err := s.List(t.Context(), ListRequest{})
		left := Descendants(s.child.PID(), "")
		if err == nil && len(l.Programs) == 0 && len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%+v is listed (%v), processes %v are there", l, err, left)
		}
	}
	if es, err := os.ReadDir(filepath.Join(s.spec.Base, "out/deep")); err != nil || len(es) > 0 {
		t.Errorf("it has output: %v (%v)", es, err)
	}
}
