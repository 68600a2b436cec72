// Package script has the commands that the testscripts of several packages share.
package script

import (
	"errors"
	"os/exec"
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// Patience bounds each wait of a script.
const Patience = 30 * time.Second

// Status is the command "status N COMMAND...": COMMAND must end with exit status N.
func Status(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status %d, wanted %d", got, want)
	}
}

// Await is the command "await COMMAND...": it repeats COMMAND until it succeeds, which it must
// within [Patience].
func Await(ts *testscript.TestScript, _ bool, args []string) {
	for end := time.Now().Add(Patience); ; {
		err := ts.Exec(args[0], args[1:]...)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("still fails after %v: %v", Patience, err)
		}
	}
}
