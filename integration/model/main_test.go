package model_test

import (
	"flag"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// TestMain checks that the tests leave no goroutine and no descriptor behind.
func TestMain(m *testing.M) {
	_ = flag.Set("rapid.steps", "60") // an average; the command line has the last word
	testutil.Main(m)
}

const (
	usual  = 5 * time.Second
	enough = 20 * time.Second // to reach everything, with as many steps as
	many   = 100000
	always = time.Minute // is long enough on any machine
)

// TestModel runs random sequences until the time is over, or the one that a flag
// of rapid names.
func TestModel(t *testing.T) {
	testutil.Require(t, runtime.GOOS == "linux", "the library needs Linux")
	budget := usual
	if s := os.Getenv("VMMC_MODEL"); s != "" {
		var err error
		if budget, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	runModel(t, newWorld(t, false), budget)
}

// TestModelEncrypted is that with links between nodes that are encrypted. It is shorter: what
// differs is below all that the model speaks of.
func TestModelEncrypted(t *testing.T) {
	testutil.Require(t, runtime.GOOS == "linux", "the library needs Linux")
	runModel(t, newWorld(t, true), usual/2)
}

func runModel(t *testing.T, w *world, budget time.Duration) {
	start := time.Now()
	defer func() {
		missing := coverage.print(t)
		t.Logf("%d sequences, %d steps in %v", w.sequences, w.steps, time.Since(start).Round(time.Second))
		t.Logf("the slowest step took %v:\n%s", w.slowest, strings.Join(w.slow, "\n"))
		if t.Failed() && !w.failed && w.first != nil { // it did not happen again, so rapid shows nothing
			t.Logf("the sequence that failed first:\n%s", strings.Join(w.first, "\n"))
		}
		long := budget >= always || budget >= enough && w.steps >= many
		if !t.Failed() && !replaying() && long && len(missing) > 0 {
			t.Errorf("never reached:\n%s", strings.Join(missing, "\n"))
		}
	}()
	for {
		rapid.Check(quiet{t}, w.run)
		if replaying() || time.Since(start) >= budget {
			return
		}
	}
}

// replaying reports whether a flag names the sequence to run.
func replaying() bool {
	for _, name := range []string{"rapid.seed", "rapid.failfile"} {
		if f := flag.Lookup(name); f.Value.String() != f.DefValue {
			return true
		}
	}
	return false
}

// quiet is a test without a line for each hundred sequences.
type quiet struct{ *testing.T }

func (q quiet) Logf(format string, args ...any) {
	q.Helper()
	if !strings.HasPrefix(format, "[rapid] OK") {
		q.T.Logf(format, args...)
	}
}
