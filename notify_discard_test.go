package vmmc_test

import (
	"errors"
	"testing"

	"github.com/vmmc-go/vmmc"
)

// A notification that has no effect takes nothing: its sender never waits for the handlers of
// others, or for notifications that are blocked.
func TestNotificationsWithoutEffect(t *testing.T) {
	const many = 1000 // there are 64 credits
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			running, free := make(chan struct{}, 1), make(chan struct{})
			s := exported(t, way, vmmc.WithHandler(func(vmmc.Notification) { running <- struct{}{}; <-free }))
			plain, none := s.another(t, 8)
			silenced, silent := s.another(t, 9, vmmc.WithHandler(func(vmmc.Notification) { t.Error("a discarded notification has run") }))
			silenced.DiscardNotifications(true)
			ctx := within(t)
			all := func(t *testing.T, im *vmmc.Import) {
				t.Helper()
				for i := range uint32(many) {
					if err := im.SendNotify(ctx, w32(i), 0); err != nil {
						t.Fatalf("notification %d: %v", i, err)
					}
				}
				var last vmmc.Request
				for i := range uint32(many) {
					var err error
					if last, err = im.SendNotifyAsync(ctx, w32(i), 0); err != nil {
						t.Fatalf("asynchronous notification %d: %v", i, err)
					}
				}
				if err := last.Wait(ctx); err != nil {
					t.Fatal(err)
				}
				mem := alloc(t, s.a, 4096)
				b := bind(t, im, mem, 0, vmmc.NotifyUpdates())
				for i := range uint32(200) {
					copy(mem, w32(i+1))
					if err := b.Flush(ctx); err != nil {
						t.Fatalf("update %d: %v", i, err)
					}
				}
				if err := b.Close(); err != nil {
					t.Fatal(err)
				}
			}
			imports := map[string]*vmmc.Import{"without a handler": none, "discarded": silent}
			t.Run("beside a handler that runs", func(t *testing.T) {
				if err := s.im.SendNotify(ctx, word, 0); err != nil {
					t.Fatal(err)
				}
				<-running
				for name, im := range imports {
					t.Run(name, func(t *testing.T) { all(t, im) })
				}
				free <- struct{}{}
			})
			t.Run("while notifications are blocked", func(t *testing.T) {
				s.b.BlockNotifications()
				if err := s.im.SendNotify(ctx, word, 0); err != nil {
					t.Fatal(err)
				}
				for name, im := range imports {
					t.Run(name, func(t *testing.T) { all(t, im) })
				}
				if _, err := s.b.UnblockNotifications(); err != nil {
					t.Fatal(err)
				}
				<-running
				free <- struct{}{}
			})
			t.Run("with no credit left", func(t *testing.T) {
				s.b.BlockNotifications()
				for range 64 {
					if err := s.im.SendNotify(ctx, word, 0); err != nil {
						t.Fatal(err)
					}
				}
				all(t, none)
				close(free)
				go func() {
					for range running { // the handlers go on
					}
				}()
				if _, err := s.b.UnblockNotifications(); err != nil {
					t.Fatal(err)
				}
			})
			if n := plain.Notified() + silenced.Notified(); n != 0 {
				t.Errorf("%d notifications had an effect", n)
			}
			for n := uint64(0); n < 66; { // all of the first buffer, with none lost among the others
				var err error
				if n, err = s.exp.WaitNotified(ctx, n); err != nil {
					t.Fatal(err)
				}
			}
			close(running)
		})
	}
}

// An export whose notifications are discarded closes though one is queued: it will not run.
func TestCloseWithDiscardedNotifications(t *testing.T) {
	for _, way := range ways {
		for name, late := range map[string]bool{"queued before": true, "queued after": false} {
			t.Run(way+"/"+name, func(t *testing.T) {
				s := exported(t, way, vmmc.WithHandler(func(vmmc.Notification) { t.Error("a discarded notification has run") }))
				ctx := within(t)
				s.b.BlockNotifications()
				s.exp.DiscardNotifications(!late)
				if err := s.im.SendNotify(ctx, word, 0); err != nil {
					t.Fatal(err)
				}
				if err := s.im.Fence(ctx); err != nil {
					t.Fatal(err)
				}
				if late {
					if err := s.exp.Close(); !errors.Is(err, vmmc.ErrBlockedNotifications) {
						t.Errorf("closed with a notification that will run: %v", err)
					}
				}
				s.exp.DiscardNotifications(true)
				if err := s.exp.Close(); err != nil {
					t.Error(err)
				}
				if _, err := s.b.UnblockNotifications(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// A waiter for one buffer's notification gets it while notifications are blocked, alone, as
// sigsuspend does: those of other buffers stay blocked, and run in their order afterwards.
func TestWaitNotifiedWhileBlocked(t *testing.T) {
	for _, way := range ways {
		for name, before := range map[string]bool{"it is there": true, "it comes": false} {
			t.Run(way+"/"+name, func(t *testing.T) {
				order := make(chan uint32, 100)
				run := vmmc.WithHandler(func(n vmmc.Notification) { order <- n.Word })
				s := exported(t, way, run)
				other, im := s.another(t, 8, run)
				ctx := within(t)
				send := func(im *vmmc.Import, v uint32) {
					t.Helper()
					if err := im.SendNotify(ctx, w32(v), 0); err != nil {
						t.Fatal(err)
					}
				}
				s.b.BlockNotifications()
				for v := range uint32(3) {
					send(im, v)
				}
				sent := make(chan struct{})
				if before {
					send(s.im, 10)
					send(s.im, 11)
					close(sent)
				} else {
					go func() {
						defer close(sent)
						until(t, "it waits", func() bool { return vmmc.WaitsForNotes(s.b) })
						_ = s.im.SendNotify(ctx, w32(10), 0)
						_ = s.im.SendNotify(ctx, w32(11), 0)
					}()
				}
				for n := uint64(0); n < 2; {
					var err error
					if n, err = s.exp.WaitNotified(ctx, n); err != nil {
						t.Fatal(err)
					}
				}
				<-sent
				if n := other.Notified(); n != 0 {
					t.Errorf("%d notifications of the other buffer have run while they were blocked", n)
				}
				send(s.im, 12)
				send(im, 3)
				if _, err := s.b.UnblockNotifications(); err != nil {
					t.Fatal(err)
				}
				for i, want := range []uint32{10, 11, 0, 1, 2, 12, 3} {
					select {
					case v := <-order:
						if v != want {
							t.Errorf("handler %d got %d, want %d", i, v, want)
						}
					case <-ctx.Done():
						t.Fatalf("handler %d has not run", i)
					}
				}
			})
		}
	}
}

// Notifications of one link come by the ring and by the stream. When the importer ends, what the
// ring still holds runs, also when discarded ones that were sent later by the stream were done
// before it.
func TestNotificationsBehindDiscardedOnes(t *testing.T) {
	const before = 20 // until the exporter looks at the ring itself, and is not told of what is there
	running, free := make(chan struct{}, before+2), make(chan struct{})
	s := exported(t, "mapped", vmmc.WithHandler(func(n vmmc.Notification) {
		if n.Word != 0 {
			running <- struct{}{}
			<-free
		}
	}))
	silenced, silent := s.another(t, 8, vmmc.Unmapped(), vmmc.WithHandler(func(vmmc.Notification) {}))
	silenced.DiscardNotifications(true)
	ctx := within(t)
	for n := range uint64(before) {
		if err := s.im.SendNotify(ctx, w32(0), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := s.exp.WaitNotified(ctx, n); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.im.SendNotify(ctx, w32(1), 0); err != nil {
		t.Fatal(err)
	}
	<-running
	if err := s.im.SendNotify(ctx, w32(1), 0); err != nil { // stays in the ring
		t.Fatal(err)
	}
	for range 10 {
		if err := silent.SendNotify(ctx, word, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := silent.Fence(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.a.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "the importer is forgotten", func() bool { return vmmc.Grants(s.b) == 0 })
	close(free)
	for n := s.exp.Notified(); n < before+2; {
		var err error
		if n, err = s.exp.WaitNotified(ctx, n); err != nil {
			t.Fatalf("after %d notifications: %v", n, err)
		}
	}
}
