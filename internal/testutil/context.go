package testutil

import (
	"context"
	"time"
)

// Bound is a guard against hanging: nothing that a test waits for takes as long.
const Bound = time.Minute

// waiter is what the functions here need of a test: a [testing.T], or that of a model.
type waiter interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Context returns a context that ends after [Bound], or with the test.
func Context(t interface{ Cleanup(f func()) }) context.Context {
	ctx, stop := context.WithTimeout(context.Background(), Bound)
	t.Cleanup(stop)
	return ctx
}

// Eventually waits until a condition holds that other goroutines or processes bring about. It fails
// the test if that takes [Bound].
func Eventually(t waiter, what string, cond func() bool) {
	t.Helper()
	for begin := time.Now(); !cond(); time.Sleep(time.Millisecond) {
		if time.Since(begin) > Bound {
			t.Fatalf("it does not happen that %s", what)
		}
	}
}
