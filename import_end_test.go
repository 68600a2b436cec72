package vmmc_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// Notifications of a send that returned run, also when the import was closed
// right afterwards.
func TestNotificationsOfAClosedImport(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			ctx := within(t)
			s, ran := blockedNotifications(t, way)
			other, err := s.a.Import(ctx, s.b.Node(), s.b.PID(), 7)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.im.Close(); err != nil {
				t.Fatal(err)
			}
			if err := other.SendNotify(ctx, w32(20), 0); err != nil {
				t.Fatal(err)
			}
			if err := other.Fence(ctx); err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond) // the exporter hears of the end
			if _, err := s.b.UnblockNotifications(); err != nil {
				t.Fatal(err)
			}
			for i := range uint32(21) {
				select {
				case w := <-ran:
					if w != i {
						t.Fatalf("notification %d ran in place of %d", w, i)
					}
				case <-time.After(5 * time.Second):
					t.Fatalf("notification %d was lost", i)
				}
			}
		})
	}
}

// PeerGone of a process comes after its notifications.
func TestPeerGoneAfterItsNotifications(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			var mu sync.Mutex
			var order []string
			gone := make(chan struct{}, 10)
			b, err := vmmc.Open(t.Context(), vmmc.WithSocket(far), vmmc.WithEvents(func(e vmmc.Event) {
				mu.Lock()
				order = append(order, e.Kind.String())
				mu.Unlock()
				gone <- struct{}{}
			}))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = b.Close() })
			a := join(t, near)
			opts := []vmmc.ExportOption{vmmc.WithHandler(func(vmmc.Notification) {
				mu.Lock()
				order = append(order, "note")
				mu.Unlock()
			})}
			if way != "mapped" {
				opts = append(opts, vmmc.Unmapped())
			}
			if _, err := b.Export(7, alloc(t, b, size), opts...); err != nil {
				t.Fatal(err)
			}
			ctx := within(t)
			im, err := a.Import(ctx, b.Node(), b.PID(), 7)
			if err != nil {
				t.Fatal(err)
			}
			b.BlockNotifications()
			for range 5 {
				if err := im.SendNotify(ctx, word, 0); err != nil {
					t.Fatal(err)
				}
			}
			if err := im.Fence(ctx); err != nil {
				t.Fatal(err)
			}
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
			if _, err := b.UnblockNotifications(); err != nil {
				t.Fatal(err)
			}
			<-gone
			mu.Lock()
			defer mu.Unlock()
			if want := []string{"note", "note", "note", "note", "note", "peer gone"}; !slices.Equal(order, want) {
				t.Errorf("there were %v, want %v", order, want)
			}
		})
	}
}

// What an importer has redirected is reported also when it has left and another
// one has come, which is not redirected any more.
func TestRedirectedBeforeTheNextImporter(t *testing.T) {
	for _, way := range redirWays {
		t.Run(way, func(t *testing.T) {
			s, target := redirected(t, way, size)
			ctx := within(t)
			if err := s.exp.PostRedir(target[:64], 0); err != nil {
				t.Fatal(err)
			}
			if err := s.im.Send(ctx, pattern(32, 1), 16); err != nil {
				t.Fatal(err)
			}
			if err := s.im.Fence(ctx); err != nil {
				t.Fatal(err)
			}
			if err := s.a.Close(); err != nil {
				t.Fatal(err)
			}
			a := join(t, strings.TrimPrefix(s.a.Environ()[0], nodeproto.Env+"="))
			var im *vmmc.Import
			var err error
			for im == nil { // until the exporter has heard of the end of the one before
				if im, err = a.Import(ctx, s.b.Node(), s.b.PID(), 7); err != nil && !errors.Is(err, vmmc.ErrNoRights) {
					t.Fatal(err)
				}
			}
			if err := im.Send(ctx, pattern(64, 2), 0); err != nil {
				t.Fatal(err)
			}
			if err := im.Fence(ctx); err != nil {
				t.Fatal(err)
			}
			if n, first, err := s.exp.EndRedir(ctx); n != 32 || first != 16 || err != nil {
				t.Errorf("%d bytes at %d, %v; want 32 at 16", n, first, err)
			}
		})
	}
}

// EndRedir waits for a piece of a mapped importer's message, not for all of it.
func TestEndRedirDoesNotWaitForTheMessage(t *testing.T) {
	const size = 64 << 20
	s, target := redirected(t, "mapped", size)
	ctx, stop := context.WithTimeout(t.Context(), 60*time.Second)
	defer stop()
	src := bytes.Repeat([]byte{1}, size)
	early := 0
	// How often the two get processors as this wants is the system's affair.
	for tries := 0; early == 0 && (tries < 10 || ctx.Err() == nil); tries++ {
		clear(target)
		if err := s.exp.PostRedir(target, 0); err != nil {
			t.Fatal(err)
		}
		sent := make(chan error, 1)
		var over time.Time
		go func() {
			err := s.im.Send(ctx, src, 0)
			over = time.Now()
			sent <- err
		}()
		never := func() bool { return false }
		for seen(ctx, target, 0, never); target[0] == 0; seen(ctx, target, 0, never) {
		}
		n, _, err := s.exp.EndRedir(ctx)
		ended := time.Now()
		if err != nil {
			t.Fatal(err)
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		t.Logf("%d bytes were redirected; ended %v before the message", n, over.Sub(ended))
		if n < size/2 && over.Sub(ended) > time.Millisecond {
			early++
		}
	}
	if early == 0 {
		t.Error("no redirection ended before its message")
	}
}

// An importer keeps nothing of redirectable exports that it has closed: a target
// that its exporter has freed takes no memory.
func TestClosedImportsKeepNoTargets(t *testing.T) {
	near, far := nodes(t, "mapped")
	a, b := join(t, near), join(t, far)
	ctx := within(t)
	keep, err := b.Export(8, alloc(t, b, size)) // the link stays
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Import(ctx, b.Node(), b.PID(), keep.ID()); err != nil {
		t.Fatal(err)
	}
	const rounds = 10
	for range rounds {
		m, err := b.Alloc(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		buf, err := b.Alloc(size)
		if err != nil {
			t.Fatal(err)
		}
		e, err := b.Export(7, buf.Bytes(), vmmc.Redirectable(m))
		if err != nil {
			t.Fatal(err)
		}
		im, err := a.Import(ctx, b.Node(), b.PID(), 7)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []interface{ Close() error }{im, e, m, buf} {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	left := rounds
	for i := 0; i < 100 && left > 1; i++ {
		runtime.GC() // unmaps memory to which no copy can be running
		time.Sleep(10 * time.Millisecond)
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Skip(err)
		}
		left = strings.Count(string(maps), "vmmc-claim")
	}
	if left > 1 {
		t.Errorf("%d of %d importers' pages are still mapped", left, rounds)
	}
}

// Blocked notifications keep an export from being closed also when their sender has
// closed the import or ended.
func TestCloseWithBlockedNotificationsOfOneWhoLeft(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exported(t, way, vmmc.WithHandler(func(vmmc.Notification) {}))
			ctx := within(t)
			s.b.BlockNotifications()
			if err := s.im.SendNotify(ctx, word, 0); err != nil {
				t.Fatal(err)
			}
			if err := s.im.Fence(ctx); err != nil {
				t.Fatal(err)
			}
			for _, leave := range []func() error{s.im.Close, s.a.Close} {
				if err := leave(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(50 * time.Millisecond) // the exporter hears of it
				if err := s.exp.Close(); !errors.Is(err, vmmc.ErrBlockedNotifications) {
					t.Fatalf("close with blocked notifications: %v", err)
				}
			}
			if _, err := s.b.UnblockNotifications(); err != nil {
				t.Fatal(err)
			}
			if err := eventually(t, func() error {
				if s.exp.Notified() == 1 {
					return errors.New("it ran")
				}
				return nil
			}); err == nil {
				t.Fatal("the notification was lost")
			}
			if err := s.exp.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
