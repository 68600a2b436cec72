package testutil

import (
	"bytes"
	"os"
	"os/signal"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	RegisterRole("checked", checkedRole)
	RegisterRole("echo-args", echoArgs)
	RegisterRole("echo-race", echoRace)
	RegisterRole("forever", forever)
	RegisterRole("parent", parentRole)
	RegisterRole("listen", listenRole)
	RegisterRole("dial", dialRole)
	RegisterRole("at limit", atLimitRole)
	Main(m)
}

// run is a Runner that does what a package's tests would do.
type run func() int

func (r run) Run() int { return r() }

// checkedRole is a package whose tests pass and leave what its argument says.
func checkedRole() int {
	leaves, bound := Args()[0], settleTime
	if leaves == "goroutine" || leaves == "descriptor" {
		bound = time.Millisecond // it stays, however long one waits
	}
	tests := func() int {
		switch leaves {
		case "nothing":
			r, w, err := os.Pipe()
			if err != nil {
				return 3
			}
			r.Close()
			w.Close()
			signal.Notify(make(chan os.Signal, 1), os.Interrupt) // its goroutine is the runtime's
		case "late":
			go func() { time.Sleep(20 * time.Millisecond) }()
		case "goroutine":
			go leakedForever()
		case "descriptor":
			leaked, _ = os.Open(os.DevNull)
		case "failed":
			go leakedForever()
			return 7
		}
		return 0
	}
	return checked{run(tests), bound}.Run()
}

// leaked keeps the collector from closing what the role leaks.
var leaked *os.File

func leakedForever() { select {} }

func TestChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		leaves string
		code   int
		says   string
	}{
		{"nothing", 0, ""},
		{"late", 0, ""},
		{"goroutine", 1, "leakedForever"},
		{"descriptor", 1, os.DevNull},
		{"failed", 7, ""},
	} {
		t.Run(c.leaves, func(t *testing.T) {
			t.Parallel()
			Require(t, c.leaves != "descriptor" || descriptors() != nil,
				"descriptors are listed on Linux only")
			cmd := Command(t, "checked", c.leaves)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			_ = cmd.Run()
			if got := cmd.ProcessState.ExitCode(); got != c.code {
				t.Errorf("exit code %d, want %d; it says:\n%s", got, c.code, stderr.String())
			}
			if c.says == "" && stderr.Len() > 0 || !strings.Contains(stderr.String(), c.says) {
				t.Errorf("it says %q, want %q in it", stderr.String(), c.says)
			}
		})
	}
}

func TestSettleStopsAtItsBound(t *testing.T) {
	t.Parallel()
	if got := waitSettled(time.Millisecond, func() string { return "stuck" }); got != "stuck" {
		t.Errorf("settle = %q, want the last answer", got)
	}
	left := 3
	got := waitSettled(time.Minute, func() string {
		left--
		return strings.Repeat("x", left)
	})
	if got != "" || left != 0 {
		t.Errorf("settle = %q after asking down to %d, want nothing and 0", got, left)
	}
}
