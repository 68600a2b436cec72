package testutil

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// newDescriptors lists the targets that more descriptors have after than before. Targets are
// counted rather than numbers compared, because a number that was closed is given out again.
func newDescriptors(before, after map[string]int) string {
	var b strings.Builder
	for _, target := range slices.Sorted(maps.Keys(after)) {
		if more := after[target] - before[target]; more > 0 {
			fmt.Fprintf(&b, "descriptor still open: %s (%d more than before the tests)\n", target, more)
		}
	}
	return b.String()
}

// PipeClosed fails the test unless all reading ends of w's pipe get closed.
func PipeClosed(t testing.TB, w *os.File) {
	t.Helper()
	_ = w.SetWriteDeadline(time.Now().Add(hung))
	for end := time.Now().Add(hung); ; {
		_, err := w.Write([]byte{0})
		switch {
		case errors.Is(err, syscall.EPIPE):
			return
		case err != nil || time.Now().After(end):
			t.Fatalf("a descriptor was leaked: its pipe can still be written to (%v)", err)
		}
	}
}
