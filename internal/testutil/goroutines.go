package testutil

import (
	"maps"
	"runtime"
	"slices"
	"strings"
)

// permanent names functions whose goroutines the runtime starts once, on first use, and never ends.
var permanent = []string{
	"os/signal.signal_recv(",
	"os/signal.loop(",
	"runtime.ensureSigM(",
}

// goroutines returns the stacks of all goroutines except the caller's, by id.
func goroutines() map[string]string {
	buf := make([]byte, 64<<10)
	n := runtime.Stack(buf, true)
	for n == len(buf) { // full: something may be cut off
		buf = make([]byte, 2*len(buf))
		n = runtime.Stack(buf, true)
	}
	byID := make(map[string]string)
	for _, stack := range strings.Split(string(buf[:n]), "\n\n")[1:] { // the first is the caller's
		id, _, _ := strings.Cut(strings.TrimPrefix(stack, "goroutine "), " ")
		byID[id] = strings.TrimSpace(stack)
	}
	return byID
}

// newGoroutines lists the stacks in after whose goroutines were not there before. Ids are not used
// again within a process.
func newGoroutines(before, after map[string]string) string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(after)) {
		if _, old := before[id]; !old && !isPermanent(after[id]) {
			b.WriteString("goroutine still there:\n" + after[id] + "\n\n")
		}
	}
	return b.String()
}

func isPermanent(stack string) bool {
	return slices.ContainsFunc(permanent, func(f string) bool { return strings.Contains(stack, f) })
}
