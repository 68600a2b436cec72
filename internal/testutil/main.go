package testutil

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// settleTime bounds how long Main waits for goroutines and descriptors to go. What is closed in
// time costs nothing; the bound is only for a loaded machine under the race detector.
const settleTime = 30 * time.Second

// exitSleep is the race detector's option for how long a process that ends sleeps.
const exitSleep = "atexit_sleep_ms=10"

// Runner is what a *testing.M is to its caller.
type Runner interface{ Run() int }

// Main is the body of a package's TestMain. In a child that Command started it runs the role;
// otherwise it runs the tests, checks that they left no goroutine and no descriptor, and exits.
func Main(m *testing.M) {
	RunRole()
	os.Exit(Checked(m).Run())
}

// Checked returns a Runner that runs m and then checks for leaks. It is for a TestMain that hands
// its Runner on, to testscript for one, and must call RunRole itself.
func Checked(m Runner) Runner { return checked{m, settleTime} }

type checked struct {
	m     Runner
	bound time.Duration
}

func (c checked) Run() int {
	// Under nohup what a test starts would ignore hang-ups as well, and a test that sends one would
	// wait in vain.
	// What is caught here and goes nowhere has its default there.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	if Slow > 1 {
		// With the race detector a process that ends sleeps, for reports of threads that still run:
		// a second by default, which each child of a test would take. The last of two values counts.
		_ = os.Setenv("GORACE", exitSleep+" "+os.Getenv("GORACE"))
	}
	before := takeSnapshot()
	code := c.m.Run()
	// A failed test may have stopped half way: what it left would only hide why it failed.
	if code != 0 || fuzzing() {
		return code
	}
	if left := waitSettled(c.bound, func() string { return takeSnapshot().diff(before) }); left != "" {
		fmt.Fprintf(os.Stderr,
			"%s: the tests passed but left something behind; close it or wait for its end:\n%s", Name, left)
		return 1
	}
	return 0
}

// fuzzing says whether this run is a fuzzing engine or one of its workers. These talk over pipes
// and goroutines of their own that last until the process ends.
func fuzzing() bool {
	for _, name := range []string{"test.fuzz", "test.fuzzworker"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != f.DefValue {
			return true
		}
	}
	return false
}

// snapshot is what a process may leak.
type snapshot struct {
	goroutines  map[string]string // stack by id
	descriptors map[string]int    // count by target
}

func takeSnapshot() snapshot { return snapshot{goroutines(), descriptors()} }

// diff describes what s has and before did not.
func (s snapshot) diff(before snapshot) string {
	return newGoroutines(before.goroutines, s.goroutines) + newDescriptors(before.descriptors,
		s.descriptors)
}

// waitSettled asks left until it says nothing or the bound is over, and returns its last answer. It
// does not run the collector: what only a finalizer would close is a leak.
func waitSettled(bound time.Duration, left func() string) string {
	deadline := time.Now().Add(bound)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		answer := left()
		if answer == "" || time.Now().After(deadline) {
			return answer
		}
		time.Sleep(pause)
	}
}
