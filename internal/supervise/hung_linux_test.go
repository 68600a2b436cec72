package supervise

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

// hang mounts a file system at a directory whose server answers nothing, until
// the returned function ends it.
func hang(t *testing.T, dir string) (over func()) {
	t.Helper()
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR|syscall.O_NONBLOCK, 0)
	testutil.Require(t, err == nil, "needs /dev/fuse: "+fmt.Sprint(err))
	rc, err := server.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var merr error
	err = rc.Control(func(fd uintptr) {
		merr = syscall.Mount("hung", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d", fd, os.Getuid(), os.Getgid()))
	})
	testutil.Require(t, err == nil && merr == nil, "needs to mount: "+fmt.Sprint(merr))
	over = func() {
		_ = server.Close() // all waiters get an error
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) {
			t.Error(err)
		}
	}
	t.Cleanup(over)
	return over
}

// An output directory that hangs delays programs that start in it, and neither running
// programs nor signals for them.
func TestHungOutput(t *testing.T) {
	base := t.TempDir()
	s := newSession(t, base)
	first := s.sh("exec sleep 1000")
	over := hang(t, filepath.Join(base, "out/deep"))
	held := make(chan error, 1)
	go func() {
		_, err := s.order("/bin/sh", "/", "-c", "exit 3")
		held <- err
	}()
	for { // it is about to begin
		l, err := s.List(t.Context(), ListRequest{After: first.PID})
		if err != nil {
			t.Fatal(err)
		}
		if len(l.Programs) > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if _, err := s.Signal(t.Context(), SignalRequest{PID: 2, Signal: int(syscall.SIGTERM)}); !errors.Is(err, code.NoSuchProcess) {
		t.Errorf("a signal to a program that has not started: %v", err)
	}
	if n, err := s.Signal(t.Context(), SignalRequest{PID: first.PID, Signal: int(syscall.SIGTERM)}); err != nil || n != 1 {
		t.Errorf("a signal reaches %d (%v)", n, err)
	}
	if got := s.wait(first.PID); got.Signal != int(syscall.SIGTERM) {
		t.Errorf("it has ended so: %+v", got)
	}
	select {
	case err := <-held:
		t.Fatalf("nothing hung: %v", err)
	default:
	}
	over()
	if err := <-held; err != nil {
		t.Error(err)
	}
	if got := s.wait(2); got.Status != 3 {
		t.Errorf("it has ended so: %+v", got)
	}
}

// The end of a session does not wait for a program that hangs before its start, and such
// a program does not start later.
func TestEndWhileOneHangs(t *testing.T) {
	base := t.TempDir()
	s := newSession(t, base)
	hang(t, filepath.Join(base, "out/deep"))
	held := make(chan error, 1)
	go func() {
		_, err := s.order("/bin/sh", "/", "-c", "exec sleep 5090")
		held <- err
	}()
	for begun := false; !begun; time.Sleep(time.Millisecond) {
		l, err := s.List(t.Context(), ListRequest{})
		if err != nil {
			t.Fatal(err)
		}
		begun = len(l.Programs) > 0
	}
	s.end()
	if err := <-held; err == nil {
		t.Error("it has begun")
	}
}

// However many programs start where files hang, they hold a few threads: the system may allow no
// more, and Go ends a process that needs one then. Starts that wait for a thread go on after the
// others have ended, or fail because the session has ended.
func TestManyHang(t *testing.T) {
	for _, ends := range []bool{false, true} {
		s := newSession(t, t.TempDir())
		first := s.sh("exec sleep 1000")
		before := s.threads()
		over := hang(t, filepath.Join(s.spec.Base, "out/deep"))
		const many = 5 * orders
		held := make(chan error, many)
		for range many {
			s.next++
			o := Order{PID: s.next, Group: 1, Path: []byte("/bin/sh"), Directory: []byte("/"), Args: [][]byte{[]byte("-c"), []byte("exit 3")}}
			go func() {
				_, err := s.Start(t.Context(), o)
				held <- err
			}()
		}
		begun := 0
		for end := time.Now().Add(bound); begun < orders && time.Now().Before(end); time.Sleep(time.Millisecond) {
			begun = s.begun(first.PID)
		}
		for range many { // there is time for more to come
			time.Sleep(time.Millisecond)
			begun = s.begun(first.PID)
		}
		if after := s.threads(); begun != orders || after > before+Threads+runtime.NumCPU() {
			t.Errorf("%d of %d are at files, and %d threads have become %d", begun, many, before, after)
		}
		if n, err := s.Signal(t.Context(), SignalRequest{PID: first.PID, Signal: int(syscall.SIGTERM)}); err != nil || n != 1 {
			t.Errorf("a signal reaches %d (%v)", n, err)
		}
		if got := s.wait(first.PID); got.Signal != int(syscall.SIGTERM) {
			t.Errorf("it has ended so: %+v", got)
		}
		if ends {
			s.end()
		}
		over()
		for range many {
			if err := <-held; ends == (err == nil) {
				t.Error(err)
			}
		}
		for pid := first.PID + 1; pid <= s.next && !ends; pid++ {
			if got := s.wait(pid); got.Status != 3 {
				t.Errorf("it has ended so: %+v", got)
			}
		}
	}
}

// Where there is room for more threads, programs begin however many others hang on another drive.
func TestHangElsewhere(t *testing.T) {
	t.Setenv(roomEnv, "1")
	s := newSession(t, t.TempDir())
	far := t.TempDir()
	over := hang(t, far)
	held := make(chan error, 2*orders)
	for range cap(held) {
		s.next++
		o := Order{PID: s.next, Group: 1, Path: []byte(far + "/program"), Directory: []byte("/")}
		go func() {
			_, err := s.Start(t.Context(), o)
			held <- err
		}()
	}
	for begun, end := 0, time.Now().Add(bound); begun < cap(held); begun = s.begun(0) {
		if time.Now().After(end) {
			t.Fatalf("%d are about to begin, of %d", begun, cap(held))
		}
		time.Sleep(time.Millisecond)
	}
	if got := s.wait(s.sh("exit 3").PID); got.Status != 3 {
		t.Errorf("it has ended so: %+v", got)
	}
	over()
	for range cap(held) {
		if err := <-held; err == nil {
			t.Error("what cannot be read has begun")
		}
	}
}

// begun is how many have begun, or are about to, after a process.
func (s *session) begun(after uint32) int {
	s.t.Helper()
	l, err := s.List(s.t.Context(), ListRequest{After: after})
	if err != nil {
		s.t.Fatal(err)
	}
	return len(l.Programs)
}

// threads is how many the supervisor has.
func (s *session) threads() int {
	s.t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", s.child.PID()))
	if err != nil {
		s.t.Fatal(err)
	}
	return len(tasks)
}
