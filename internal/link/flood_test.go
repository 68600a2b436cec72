package link

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// A wait ends with its context though each look finds that a peer has sent something.
func TestWaitWhileAPeerNeverStops(t *testing.T) {
	e, fd, far := half(t)
	in, err := NewIn(e, fd, nil, Terms{}, nil, nil, func(uint32) {}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	e.warm(&in.stream)
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	late := time.Now().Add(5 * time.Second)
	err = e.Wait(ctx, wait.Look{Until: func() bool {
		say(t, far, wire.Header{Type: wire.Bell}, nil)
		return time.Now().After(late)
	}})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a wait that looks on and on: %v", err)
	}
}
