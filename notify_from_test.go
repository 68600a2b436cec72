package vmmc_test

import (
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// A handler learns which of several processes has sent a notification, by each way of sending one,
// and also when the sender has left.
func TestNotificationFrom(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			got := make(chan vmmc.Notification, 100)
			s := exported(t, way, vmmc.WithHandler(func(n vmmc.Notification) { got <- n }))
			near, far := s.a, s.b
			expect := func(from *vmmc.Process, word uint32) {
				t.Helper()
				select {
				case n := <-got:
					if n.From != from.ID() || n.Word != word || n.Export != s.exp {
						t.Errorf("word %d came from %v, want %d from %v", n.Word, n.From, word, from.ID())
					}
				case <-within(t).Done():
					t.Fatal("no notification")
				}
			}
			own, err := far.Import(within(t), far.Node(), far.PID(), 7)
			if err != nil {
				t.Fatal(err)
			}
			third := join(t, near.Environ()[0][len("VMMC_SOCKET="):])
			im3, err := third.Import(within(t), far.Node(), far.PID(), 7)
			if err != nil {
				t.Fatal(err)
			}
			for i := uint32(1); i <= 3; i++ {
				for _, c := range []struct {
					from *vmmc.Process
					im   *vmmc.Import
				}{{near, s.im}, {third, im3}, {far, own}} {
					if err := c.im.SendNotify(within(t), w32(i), 0); err != nil {
						t.Fatal(err)
					}
					expect(c.from, i)
					r, err := c.im.SendNotifyAsync(within(t), w32(10+i), 4)
					if err != nil {
						t.Fatal(err)
					}
					if err := r.Wait(within(t)); err != nil {
						t.Fatal(err)
					}
					expect(c.from, 10+i)
				}
			}
			far.BlockNotifications()
			if err := im3.SendNotify(within(t), w32(99), 0); err != nil {
				t.Fatal(err)
			}
			if err := im3.Fence(within(t)); err != nil {
				t.Fatal(err)
			}
			if err := third.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := far.UnblockNotifications(); err != nil {
				t.Fatal(err)
			}
			expect(third, 99)
		})
	}
}

// A process cannot notify in the name of another one: the handle of that one's import is nothing to
// it.
func TestNotificationInAnothersName(t *testing.T) {
	w := newVictim(t)
	other := newOutlaw(t, w.socket, 1, nil)
	theirs := other.grab(t, w.b, 7)
	other.attack(t, theirs.Exporter)
	o := newOutlaw(t, w.socket, 2, nil)
	g := o.grab(t, w.b, 7)
	if theirs.Handle == g.Handle {
		t.Fatal("two imports have one handle")
	}
	r := o.attack(t, g.Exporter)
	r.ring.Put(shmlayout.Notification{Handle: theirs.Handle, Serial: 1})
	_ = r.say(t, frame(wire.Header{Type: wire.Bell}, nil))
	r.credited(t)
	if w.ran.Load() != 0 {
		t.Error("a handler ran for another process's import")
	}
	w.goesOn(t)
}
