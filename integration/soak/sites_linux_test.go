package soak

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"path"
	"runtime"
	"slices"
	"strings"
)

// sites are the bytes of a heap that are in use, by where they were allocated.
type sites map[string]float64

const profileRate = 16 << 10

func init() { runtime.MemProfileRate = profileRate }

// inUse is as of the last two collections.
func inUse() sites {
	var records []runtime.MemProfileRecord
	for n, ok := runtime.MemProfile(nil, false); !ok; {
		records = make([]runtime.MemProfileRecord, n+50)
		n, ok = runtime.MemProfile(records, false)
		records = records[:min(n, len(records))]
	}
	s := sites{}
	for _, r := range records {
		if n := r.InUseObjects(); n > 0 {
			size := float64(r.InUseBytes()) / float64(n)
			s[where(r.Stack())] += float64(r.InUseBytes()) / (1 - math.Exp(-size/profileRate)) // what was not sampled
		}
	}
	return s
}

// where is the innermost calls that are not the runtime's.
func where(stack []uintptr) string {
	var names []string
	for frames := runtime.CallersFrames(stack); len(names) < 4; {
		f, more := frames.Next()
		if f.Function != "" && !strings.HasPrefix(f.Function, "runtime.") && !strings.HasPrefix(f.Function, "internal/runtime/") {
			names = append(names, path.Base(f.Function))
		}
		if !more {
			break
		}
	}
	return strings.Join(names, " < ")
}

// since says which sites have grown most.
func (s sites) since(was sites) string {
	by := slices.SortedFunc(func(yield func(string) bool) {
		for k := range s {
			if !yield(k) {
				return
			}
		}
	}, func(a, b string) int { return cmp.Compare(s[b]-was[b], s[a]-was[a]) })
	var text strings.Builder
	for _, k := range by[:min(12, len(by))] {
		fmt.Fprintf(&text, "\n    %+.0f kB, %.0f now: %s", (s[k]-was[k])/1e3, s[k]/1e3, k)
	}
	return text.String()
}

// sayHeap is the line that answers the question where the heap is.
func sayHeap() string {
	b, _ := json.Marshal(inUse()) //nolint:errchkjson // a map of numbers
	return string(b)
}
