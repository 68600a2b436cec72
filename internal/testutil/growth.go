package testutil

import (
	"fmt"
	"runtime"
	"testing"
)

// Bounded fails the test unless this process comes to have at most so many goroutines, descriptors
// and bytes of heap: what was asked of it again and again must not add up.
func Bounded(t testing.TB, goroutines, descriptors int, heap uint64) {
	t.Helper()
	if left := waitSettled(settleTime, func() string {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		open := 0
		for _, n := range takeSnapshot().descriptors {
			open += n
		}
		if g := runtime.NumGoroutine(); g > goroutines || open > descriptors || m.HeapAlloc > heap {
			return fmt.Sprintf("%d goroutines, %d descriptors and %d bytes of heap; at most %d, %d and %d "+
				"should be", g, open, m.HeapAlloc, goroutines, descriptors, heap)
		}
		return ""
	}); left != "" {
		t.Fatal("testutil: there is growth: ", left)
	}
}
