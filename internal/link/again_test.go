package link

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/wait"
)

// A wait whose condition held is over, though it does not hold any more.
func TestWaitForWhatDoesNotLast(t *testing.T) {
	e, _ := engine(t)
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	var flag atomic.Uint32
	over := make(chan error, 1)
	go func() {
		over <- e.Wait(ctx, wait.Look{Until: func() bool { return flag.CompareAndSwap(1, 0) }, Own: true})
	}()
	for !e.sleepers.Asleep() {
		runtime.Gosched()
	}
	flag.Store(1)
	e.Wake()
	if err := <-over; err != nil {
		t.Errorf("a wait for a flag that it took: %v", err)
	}
}
