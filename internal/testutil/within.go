package testutil

import (
	"testing"
	"time"
)

// Slack is what a call may take beyond its time, whatever a peer does: a second. The race detector
// makes the computing of call and test slower, by [Slow], and nothing tells that from waiting.
const Slack = Slow * time.Second

// hung is after how much longer Within gives a call up. A peer that delays a call does so for an
// hour.
const hung = 30 * time.Second

// Within fails the test unless f returns within its time and [Slack]. It gives up waiting for f
// after another 30 s, and may be called by any goroutine of the test.
//
// Only what the machine itself delays is allowed beyond that, so the test does not fail because
// others use its processors: what threads of this process were ready to run and had no
// processor, as the kernel has counted it meanwhile. A call that waits for a peer is not ready to
// run, in whatever state its thread is, so none of that wait is allowed.
func Within(t testing.TB, what string, its time.Duration, f func()) {
	t.Helper()
	delayed := Delays()
	begun := time.Now()
	over := make(chan time.Duration, 1)
	go func() {
		defer func() { over <- time.Since(begun) }() // also if f ends the goroutine
		f()
	}()
	late := time.NewTimer(its + Slack + hung)
	defer late.Stop()
	select {
	case took := <-over:
		if d := delayed(); took > its+Slack+d {
			t.Errorf("%s takes %v, at most %v and the machine's delays, %v", what,
				took.Round(time.Millisecond), its+Slack, d)
		}
	case <-late.C:
		delayed()
		t.Errorf("%s takes as long as a peer likes: it goes on after %v, and should take at most %v",
			what, its+Slack+hung, its+Slack)
	}
}

// timerDelays begins to measure what a timer is late by, all in all.
func timerDelays() (since func() time.Duration) {
	const period = 10 * time.Millisecond
	stop, sum := make(chan struct{}), make(chan time.Duration, 1)
	go func() {
		var late time.Duration
		for {
			begun := time.Now()
			select {
			case <-stop:
				sum <- late
				return
			case <-time.After(period):
				late += time.Since(begun) - period
			}
		}
	}()
	return func() time.Duration {
		close(stop)
		return <-sum
	}
}
