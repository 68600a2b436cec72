//go:build linux && cgo

package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/semaphore"
)

// A call that finds another one joining the group waits no longer than its own limit.
func TestJoiningHasALimit(t *testing.T) {
	l := &library{joining: semaphore.New(1)}
	if err := l.joining.Acquire(t.Context()); err != nil { // as a call that is joining
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := l.members(ctx, nil); !errors.Is(err, vmmc.ErrTimeout) {
		t.Errorf("after the time limit: %v, want %v", err, vmmc.ErrTimeout)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel() // as a call that its thread has left
	if _, err := l.members(ctx, nil); !errors.Is(err, vmmc.ErrCanceled) {
		t.Errorf("after it was cancelled: %v, want %v", err, vmmc.ErrCanceled)
	}
}
