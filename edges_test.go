package vmmc_test

import (
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
)

// Notifications of a send that returned run, also when the import was closed
// right afterwards.
func TestNotificationsOfAClosedImport(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			ran := make(chan uint32, 20)
			s := exported(t, way, vmmc.WithHandler(func(n vmmc.Notification) { ran <- n.Word }))
			ctx := within(t)
			s.b.BlockNotifications()
			for i := range uint32(20) {
				if err := s.im.SendNotify(ctx, w32(i), 0); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.im.Fence(ctx); err != nil {
				t.Fatal(err)
			}
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
