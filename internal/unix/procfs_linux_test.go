package unix

import (
	"errors"
	"os"
	"testing"
	"time"
)

// Looks at processes that do not return hold up neither those at other users' processes, nor for
// long those at the same user's; and once they return all is as before.
func TestLooksThatHang(t *testing.T) {
	l := looks{users: map[uint32]*userLooks{}, stuck: map[int]bool{}}
	over := make(chan struct{})
	const hostile, other = 1, 2
	for pid := range maxLooks {
		if err := l.at(pid, hostile, time.Millisecond, func() { <-over }); !errors.Is(err, ErrExecuting) {
			t.Errorf("look %d: %v", pid, err)
		}
	}
	looked := func() { t.Error("there are more looks than may be") }
	for _, pid := range []int{0, 99} { // one that is stuck, and another one
		if err := l.at(pid, hostile, time.Hour, looked); !errors.Is(err, ErrExecuting) {
			t.Errorf("another look: %v", err)
		}
	}
	saw := false
	if err := l.at(5, other, time.Hour, func() { saw = true }); err != nil || !saw {
		t.Errorf("another user's process: %v, seen %t", err, saw)
	}
	close(over)
	for left := -1; left != 0; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		left = len(l.users) + len(l.stuck)
		l.mu.Unlock()
	}
	saw = false
	if err := l.at(0, hostile, time.Hour, func() { saw = true }); err != nil || !saw {
		t.Errorf("when they have returned: %v, seen %t", err, saw)
	}
}

func TestStatus(t *testing.T) {
	s, err := Status(os.Getpid())
	if err != nil || s.Parent != os.Getppid() || int(s.UID) != os.Getuid() || s.Threads < 1 || s.Dead() {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := Status(1 << 30); err == nil {
		t.Errorf("of no process: %+v", s)
	}
	c, out := run(t, "echo $$", nil)
	if _, err := out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	c.Await()
	if s, err := Status(c.PID()); err != nil || !s.Dead() || s.Parent != os.Getpid() {
		t.Errorf("of one that has ended: %+v, %v", s, err)
	}
	c.Reap()
}
