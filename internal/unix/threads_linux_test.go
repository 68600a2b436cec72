package unix

import (
	"os"
	"testing"
)

func TestThreads(t *testing.T) {
	count := func() int {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		return len(tasks)
	}
	n := count() + 16
	Threads(n)
	if got := count(); got < n { // idle threads stay
		t.Errorf("there are %d threads, want %d", got, n)
	}
}
