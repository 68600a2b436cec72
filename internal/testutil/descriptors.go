package testutil

import (
	"fmt"
	"maps"
	"slices"
	"strings"
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
