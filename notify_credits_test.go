package vmmc_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
)

// A sender whose receiver keeps notifications blocked runs out of credits after 64. Its calls with a
// notification end with their contexts and send nothing, and what has no notification goes on. When
// the receiver unblocks, all that was sent runs, and as many credits are there as before.
func TestSenderWithoutCredits(t *testing.T) {
	const credits = 64
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			var ran atomic.Uint32
			s := exported(t, way, vmmc.WithHandler(func(vmmc.Notification) { ran.Add(1) }))
			ctx := within(t)
			s.b.BlockNotifications()
			for range credits {
				if err := s.im.SendNotify(ctx, w32(1), 0); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 {
				short, stop := context.WithTimeout(ctx, 20*time.Millisecond)
				if err := s.im.SendNotify(short, w32(2), 0); !errors.Is(err, vmmc.ErrTimeout) {
					t.Fatalf("a notification without a credit: %v", err)
				}
				stop()
				canceled, cancel := context.WithCancel(ctx)
				time.AfterFunc(5*time.Millisecond, cancel)
				if err := s.im.SendNotify(canceled, w32(2), 0); !errors.Is(err, vmmc.ErrCanceled) {
					t.Fatalf("a notification without a credit, given up: %v", err)
				}
				if err := s.im.Send(ctx, w32(3), 4); err != nil {
					t.Fatalf("a send beside it: %v", err)
				}
				if err := s.im.Fence(ctx); err != nil {
					t.Fatalf("a fence beside it: %v", err)
				}
			}
			got := make([]byte, 8)
			if err := s.im.Get(ctx, got, 0); err != nil {
				t.Fatalf("a get beside it: %v", err)
			}
			if got[0] != 1 || got[4] != 3 {
				t.Errorf("the memory is %v: a notification without a credit was sent", got)
			}

			short, stop := context.WithTimeout(ctx, 20*time.Millisecond)
			defer stop()
			if _, err := s.im.SendNotifyAsync(short, w32(4), 8); !errors.Is(err, vmmc.ErrTimeout) {
				t.Errorf("an asynchronous notification without a credit: %v", err)
			}
			sent := uint32(credits)
			if _, err := s.b.UnblockNotifications(); err != nil {
				t.Fatal(err)
			}
			for range 2 * credits {
				if err := s.im.SendNotify(ctx, w32(5), 0); err != nil {
					t.Fatal(err)
				}
				sent++
			}
			for n := uint64(0); n < uint64(sent); {
				var err error
				if n, err = s.exp.WaitNotified(ctx, n); err != nil {
					t.Fatal(err)
				}
			}
			if ran.Load() != sent {
				t.Errorf("%d handlers have run, %d notifications were sent", ran.Load(), sent)
			}
		})
	}
}

// A process leaves while it waits for a credit: the call ends, and Close does.
func TestCloseWithoutCredits(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exported(t, way, vmmc.WithHandler(func(vmmc.Notification) {}))
			ctx := within(t)
			s.b.BlockNotifications()
			defer func() { _, _ = s.b.UnblockNotifications() }()
			for range 64 {
				if err := s.im.SendNotify(ctx, word, 0); err != nil {
					t.Fatal(err)
				}
			}
			sync, async := make(chan error, 1), make(chan error, 1)
			go func() { sync <- s.im.SendNotify(ctx, word, 0) }()
			go func() {
				r, err := s.im.SendNotifyAsync(ctx, word, 0)
				if err == nil {
					err = r.Wait(ctx)
				}
				async <- err
			}()
			if err := s.im.Close(); err != nil {
				t.Errorf("close an import whose senders wait for credits: %v", err)
			}
			for what, ended := range map[string]chan error{"call": sync, "asynchronous call": async} {
				if err := <-ended; !errors.Is(err, vmmc.ErrBadIbufState) {
					t.Errorf("a %s that waits for a credit when its import is closed: %v", what, err)
				}
			}
			if err := s.a.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
