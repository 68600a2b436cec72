package timeout_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// TestMain checks that the tests leave no goroutine and no descriptor behind.
func TestMain(m *testing.M) { testutil.Main(m) }

// Sleep takes its time, ends with the context, and says whether that has ended.
func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		for _, c := range []struct{ asked, took time.Duration }{
			{0, 0}, {40 * time.Second, 40 * time.Second}, {time.Hour, 20 * time.Second}, {0, 0},
		} {
			began := time.Now()
			on := timeout.Sleep(ctx, c.asked)
			if took := time.Since(began); took != c.took || on != (ctx.Err() == nil) {
				t.Errorf("%v took %v, want %v; it says %t", c.asked, took, c.took, on)
			}
		}
		if timeout.Sleep(ctx, 0) {
			t.Error("it says that the context goes on")
		}
	})
}
