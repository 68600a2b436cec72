package testutil

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A call that waits longer than it may fails its test, and one that takes its time does not.
func TestWithin(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		its time.Duration
		f   func()
		bad bool
	}{
		"at once":            {0, func() {}, false},
		"in its time":        {2 * time.Second, func() { <-time.After(Slack) }, false},
		"longer":             {0, func() { <-time.After(2 * Slack) }, true},
		"longer, and exits":  {0, func() { <-time.After(2 * Slack); runtime.Goexit() }, true},
		"at once, and exits": {0, runtime.Goexit, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inner := &errorRecorder{}
			delayed := Delays()
			Within(inner, "the call", c.its, c.f)
			d := delayed()
			if bad := strings.HasPrefix(inner.text, "the call takes "); bad != c.bad && d < Slack/2 {
				t.Errorf("it says %q", inner.text)
			}
		})
	}
}

// errorRecorder keeps the last error.
type errorRecorder struct {
	testing.TB
	text string
}

func (*errorRecorder) Helper()                          {}
func (r *errorRecorder) Errorf(format string, a ...any) { r.text = fmt.Sprintf(format, a...) }

// A process that the Go runtime ends at a limit is run again, and no other.
func TestCombinedOutputAtLimit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fails int // as often
		why   string
		bad   bool
	}{
		"good":                        {0, "", false},
		"ended by the runtime":        {2, "fatal error: runtime: cannot allocate memory\n", false},
		"ended by the runtime always": {100, "fatal error: runtime: cannot allocate memory\n", true},
		"bad":                         {1, "region 5: cannot allocate memory\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := CombinedOutputAtLimit(t, "at limit", t.TempDir(), fmt.Sprint(c.fails), c.why)
			if (err != nil) != c.bad {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// atLimitRole fails as often as it is told to, with the words that it is given. It counts in a
// directory.
func atLimitRole() int {
	dir, why := Args()[0], Args()[2]
	fails, err := strconv.Atoi(Args()[1])
	entries, err2 := os.ReadDir(dir)
	if err := errors.Join(err, err2); err != nil {
		fmt.Println(err)
		return 2
	}
	if len(entries) >= fails {
		return 0
	}
	if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(len(entries))), nil, 0o600); err != nil {
		fmt.Println(err)
		return 2
	}
	fmt.Print(why)
	return 1
}
