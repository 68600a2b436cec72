package vmmc_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc"
)

// Handlers of events run in the order of their subscription, each for the events that come while it
// is subscribed. They may subscribe and cancel.
func TestSubscribe(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			var mu sync.Mutex
			var told []string // Guarded by mu.
			tell := func(name string, e vmmc.Event) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, name+" "+e.Kind.String())
			}
			a := join(t, near, vmmc.WithEvents(func(e vmmc.Event) { tell("option", e) }))
			b := join(t, far)
			var exports []*vmmc.Export
			var last *vmmc.Import
			for id := range uint32(5) {
				exp, err := b.Export(id, alloc(t, b, 64))
				if err != nil {
					t.Fatal(err)
				}
				if last, err = a.Import(within(t), b.Node(), b.PID(), id); err != nil {
					t.Fatal(err)
				}
				exports = append(exports, exp)
			}
			happens := func(n int) { // and has run
				t.Helper()
				ran := make(chan struct{})
				defer a.Subscribe(func(vmmc.Event) { ran <- struct{}{} })()
				if err := exports[n].Close(); err != nil {
					t.Fatal(err)
				}
				<-ran
			}
			listener := func(name string) func(vmmc.Event) {
				return func(e vmmc.Event) { tell(name, e) }
			}
			want := func(s ...string) {
				t.Helper()
				mu.Lock()
				defer mu.Unlock()
				for i := range s {
					s[i] += " import revoked"
				}
				if !slices.Equal(told, s) {
					t.Errorf("%q was told, want %q", told, s)
				}
				told = nil
			}
			cancel := []func(){a.Subscribe(listener("first")), a.Subscribe(listener("second")), a.Subscribe(nil)}
			happens(0)
			want("option", "first", "second")
			cancel[0]()
			cancel[0]()
			cancel[2]()
			happens(1)
			want("option", "second")

			var once func()
			once = a.Subscribe(func(e vmmc.Event) { // which cancels itself and the next, and subscribes
				tell("once", e)
				once()
				cancel[1]()
				cancel = append(cancel, a.Subscribe(listener("third")))
			})
			happens(2)
			want("option", "second", "once")
			happens(3)
			want("option", "third")

			a.BlockNotifications()
			if err := exports[4].Close(); err != nil {
				t.Fatal(err)
			}
			<-last.Done() // the event is queued soon, and told to none that has cancelled
			cancel[3]()
			ran := make(chan vmmc.EventKind, 10)
			a.Subscribe(func(e vmmc.Event) { ran <- e.Kind })
			if _, err := a.UnblockNotifications(); err != nil {
				t.Fatal(err)
			}
			if err := b.Close(); err != nil { // another event
				t.Fatal(err)
			}
			for <-ran != vmmc.PeerGone { // the last one
			}
			mu.Lock()
			if slices.Contains(told, "third import revoked") {
				t.Errorf("%q was told after cancel", told)
			}
			mu.Unlock()
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			a.Subscribe(listener("late"))()
		})
	}
}

// Goroutines subscribe and cancel while events come. Each handler gets the events of its time once.
func TestSubscribeByMany(t *testing.T) {
	s := exported(t, "mapped")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				n := 0
				cancel := s.a.Subscribe(func(vmmc.Event) { n++ })
				cancel()
				s.a.BlockNotifications() // none runs
				if n > 20 {
					t.Errorf("%d of 20 events", n)
				}
				if _, err := s.a.UnblockNotifications(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	counted := make(chan vmmc.Event, 100)
	defer s.a.Subscribe(func(e vmmc.Event) { counted <- e })()
	for id := range uint32(20) {
		exp, im := s.another(t, 20+id)
		if err := exp.Close(); err != nil {
			t.Fatal(err)
		}
		<-im.Done()
	}
	wg.Wait()
	for range 20 {
		<-counted
	}
}
