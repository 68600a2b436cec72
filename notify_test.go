package vmmc_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/manual"
)

// Levels of blocking, their return values, and the manual's loop, outside of a
// handler and in one (resolutions, rows 1 to 3).
func TestBlockingLevels(t *testing.T) {
	s := exported(t, "mapped")
	p := s.b
	level := func(want int) {
		t.Helper()
		if n, err := p.UnblockNotifications(); n != want || err != nil {
			t.Errorf("unblocked: %d, %v; want %d", n, err, want)
		}
	}
	level(0) // nothing was blocked: no effect, no error
	for range 3 {
		p.BlockNotifications()
	}
	level(2)
	p.BlockNotifications()
	level(2)
	level(1)
	level(0)
	level(0)
	p.BlockNotifications()
	p.BlockNotifications()
	turns := 0
	for turns = 1; ; turns++ {
		if n, err := p.UnblockNotifications(); n == 0 || err != nil {
			break
		}
	}
	if turns != 2 {
		t.Errorf("the loop ended after %d turns, want 2", turns)
	}

	ctx := within(t)
	in := make(chan [5]error, 1)
	if _, err := p.Export(8, alloc(t, p, size), vmmc.WithHandler(func(vmmc.Notification) {
		var got [5]error
		_, got[0] = p.UnblockNotifications() // not paired
		p.BlockNotifications()
		p.BlockNotifications()
		var n int
		if n, got[1] = p.UnblockNotifications(); n != 2 && got[1] == nil {
			got[1] = errors.New("not 2")
		}
		if n, got[2] = p.UnblockNotifications(); n != 1 && got[2] == nil {
			got[2] = errors.New("not 1")
		}
		for { // the loop ends, with the error
			if n, err := p.UnblockNotifications(); n == 0 || err != nil {
				got[3] = err
				break
			}
		}
		in <- got
	})); err != nil {
		t.Fatal(err)
	}
	im, err := s.a.Import(ctx, p.Node(), p.PID(), 8)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the handler's own level is gone each time
		if err := im.SendNotify(ctx, w32(1), 0); err != nil {
			t.Fatal(err)
		}
		got := <-in
		if !errors.Is(got[0], vmmc.ErrNotInHandler) || got[1] != nil || got[2] != nil || !errors.Is(got[3], vmmc.ErrNotInHandler) {
			t.Errorf("in a handler: %v", got)
		}
	}
}

// While they are blocked notifications queue up and data arrives; then they are
// delivered, each sender's in order, and no handler runs while Block holds.
func TestBlockedNotificationsAreKeptInOrder(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			b := join(t, far)
			ctx := within(t)
			var mu sync.Mutex
			got := map[uint32][]uint32{} // by sender
			var held atomic.Bool
			done := make(chan struct{})
			const senders, each = 8, 60
			total := 0
			opts := []vmmc.ExportOption{vmmc.WithHandler(func(n vmmc.Notification) {
				if held.Load() {
					t.Error("a handler ran while notifications were blocked")
				}
				mu.Lock()
				defer mu.Unlock()
				got[n.Word>>16] = append(got[n.Word>>16], n.Word&0xffff)
				if total++; total == senders*each {
					close(done)
				}
			})}
			if way != "mapped" {
				opts = append(opts, vmmc.Unmapped())
			}
			b.BlockNotifications()
			held.Store(true)
			exp, err := b.Export(7, alloc(t, b, size), opts...)
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for i := range senders {
				a := join(t, near)
				im, err := a.Import(ctx, b.Node(), b.PID(), 7)
				if err != nil {
					t.Fatal(err)
				}
				wg.Go(func() {
					for k := range each {
						if err := im.SendNotify(ctx, w32(uint32(i)<<16|uint32(k)), 4*i); err != nil {
							t.Error(err)
						}
					}
					if err := im.Fence(ctx); err != nil { // data and acknowledgements are not held up
						t.Error(err)
					}
				})
			}
			wg.Wait()
			for i := range senders {
				w, err := exp.Word(4 * i)
				if err != nil || w.Load() != uint32(i)<<16|(each-1) {
					t.Errorf("the data of sender %d: %#x, %v", i, w.Load(), err)
				}
			}
			held.Store(false)
			if n, err := b.UnblockNotifications(); n != 0 || err != nil {
				t.Error(n, err)
			}
			select {
			case <-done:
			case <-ctx.Done():
				t.Fatalf("%d of %d notifications were delivered", total, senders*each)
			}
			mu.Lock()
			defer mu.Unlock()
			for i, ns := range got {
				for k, n := range ns {
					if int(n) != k {
						t.Fatalf("sender %d: notification %d ran in place of %d", i, n, k)
					}
				}
			}
		})
	}
}

// Block returns when no handler runs any more.
func TestBlockWaitsForTheHandler(t *testing.T) {
	var in, out atomic.Int32
	gate := make(chan struct{})
	s := exported(t, "mapped", vmmc.WithHandler(func(vmmc.Notification) {
		in.Add(1)
		<-gate
		out.Add(1)
	}))
	ctx := within(t)
	if err := s.im.SendNotify(ctx, word, 0); err != nil {
		t.Fatal(err)
	}
	for in.Load() == 0 && ctx.Err() == nil {
	}
	blocked := make(chan int32)
	go func() {
		s.b.BlockNotifications()
		blocked <- out.Load()
	}()
	close(gate)
	if n := <-blocked; n != 1 {
		t.Error("Block returned while the handler was running")
	}
}

// A buffer with notifications that are queued and blocked cannot be unexported,
// and is not harmed by the attempt.
func TestCloseWithBlockedNotifications(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			ran := make(chan uint32, 2)
			s := exported(t, way, vmmc.WithHandler(func(n vmmc.Notification) { ran <- n.Word }))
			ctx := within(t)
			s.b.BlockNotifications()
			if err := s.im.SendNotify(ctx, w32(3), 0); err != nil {
				t.Fatal(err)
			}
			if err := s.im.Fence(ctx); err != nil {
				t.Fatal(err)
			}
			if err := s.exp.Close(); !errors.Is(err, vmmc.ErrBlockedNotifications) {
				t.Errorf("closed with a blocked notification: %v", err)
			}
			if err := s.im.Send(ctx, w32(4), 8); err != nil {
				t.Errorf("the export is harmed: %v", err)
			}
			if _, err := s.b.UnblockNotifications(); err != nil {
				t.Fatal(err)
			}
			if w := <-ran; w != 3 {
				t.Errorf("the handler got %d", w)
			}
			s.b.BlockNotifications() // blocked, but nothing is pending
			if err := s.exp.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// What a handler may call and what it may not (resolutions, row 39).
func TestCallsInAHandler(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			type called struct {
				name string
				err  error
				want error
			}
			all := make(chan []called, 1)
			type means struct {
				p    *vmmc.Process
				back *vmmc.Import // of the notifying process
				b    *vmmc.Binding
				each *vmmc.Binding // notifies
			}
			// By a channel: that a notification comes after it, the race detector
			// does not see.
			given := make(chan means, 1)
			mem := make([]byte, 64)
			s := exported(t, way, vmmc.Redirectable(), vmmc.WithHandler(func(n vmmc.Notification) {
				ctx := context.Background()
				g := <-given
				p, back, e := g.p, g.back, n.Export
				var cs []called
				no := func(name string, err error) { cs = append(cs, called{name, err, vmmc.ErrNotInHandler}) }
				yes := func(name string, err error) { cs = append(cs, called{name, err, nil}) }
				w, err := e.Word(0)
				yes("Word", err)
				_, err = p.Export(50, make([]byte, 8))
				no("Export", err)
				_, err = p.Import(ctx, p.Node(), p.PID(), 7)
				no("Import", err)
				_, err = manual.ImportAsync(ctx, p, p.Node(), p.PID(), 7).Status()
				no("ImportAsync", err)
				no("Export.Close", e.Close())
				no("Import.Close", back.Close())
				_, err = back.Bind(mem, 0)
				no("Bind", err)
				no("Flush", g.b.Flush(ctx))
				no("Binding.Close", g.b.Close())
				no("Store that notifies", g.each.Store(ctx, 0, 1))
				no("Process.Close", p.Close())
				_, err = w.Wait(ctx, w.Load())
				no("Word.Wait", err)
				no("WaitUntil", p.WaitUntil(ctx, func() bool { return true }))
				_, err = p.WaitAny(ctx, vmmc.Watch{Word: w, Old: w.Load()})
				no("WaitAny", err)
				_, err = e.WaitNotified(ctx, e.Notified())
				no("WaitNotified", err)

				yes("Send", back.Send(ctx, mem, 0))
				yes("SendNotify", back.SendNotify(ctx, mem, 0))
				yes("Get", back.Get(ctx, mem, 0)) // over the link that notified
				yes("Fence", back.Fence(ctx))
				yes("Store", g.b.Store(ctx, 0, 1))
				_, err = back.FetchAdd32(ctx, 0, 1)
				yes("FetchAdd32", err)
				r, err := back.SendAsync(ctx, mem, 0)
				yes("SendAsync", err)
				no("Request.Wait", r.Wait(ctx))
				for err = r.Status(); errors.Is(err, vmmc.ErrInProgress); err = r.Status() {
				}
				yes("Status", err)
				_, err = back.GetAsync(ctx, make([]byte, 64), 0)
				yes("GetAsync", err)
				p.BlockNotifications()
				_, err = p.UnblockNotifications()
				yes("UnblockNotifications", err)
				yes("PostRedir", e.PostRedir(mem, 0))
				_, _, err = e.EndRedir(ctx)
				yes("EndRedir", err)
				_, ok := e.DataEnd()
				if !ok {
					yes("DataEnd", errors.New("no data"))
				}
				e.ClearDataEnd()
				all <- cs
			}))
			ctx := within(t)
			if _, err := s.a.Export(9, alloc(t, s.a, size)); err != nil {
				t.Fatal(err)
			}
			back, err := s.b.Import(ctx, s.a.Node(), s.a.PID(), 9)
			if err != nil {
				t.Fatal(err)
			}
			pages := alloc(t, s.b, size)
			given <- means{s.b, back, bind(t, back, pages[:64], 0), bind(t, back, pages[64:128], 0, vmmc.NotifyUpdates())}
			if err := s.im.SendNotify(ctx, word, 0); err != nil {
				t.Fatal(err)
			}
			select {
			case cs := <-all:
				for _, c := range cs {
					if !errors.Is(c.err, c.want) || c.want == nil && c.err != nil {
						t.Errorf("%s: %v, want %v", c.name, c.err, c.want)
					}
				}
			case <-ctx.Done():
				t.Fatal("the handler hangs")
			}
		})
	}
}

// Two processes whose handlers notify each other go on: a handler that has no
// credit is told so.
func TestHandlersThatNotifyEachOther(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			ctx := within(t)
			type side struct {
				p       *vmmc.Process
				to      atomic.Pointer[vmmc.Import]
				ran, no atomic.Int64
			}
			a, b := &side{p: join(t, near)}, &side{p: join(t, far)}
			for _, s := range []*side{a, b} {
				opts := []vmmc.ExportOption{vmmc.WithHandler(func(n vmmc.Notification) {
					s.ran.Add(1)
					for range 2 { // more than comes in
						err := s.to.Load().SendNotify(ctx, w32(n.Word+1), 0)
						switch {
						case errors.Is(err, vmmc.ErrNoCredit):
							s.no.Add(1)
						case err != nil && ctx.Err() == nil && !errors.Is(err, vmmc.ErrBadIbufState):
							t.Error(err)
						}
					}
				})}
				if way != "mapped" {
					opts = append(opts, vmmc.Unmapped())
				}
				if _, err := s.p.Export(7, alloc(t, s.p, size), opts...); err != nil {
					t.Fatal(err)
				}
			}
			for _, x := range [][2]*side{{a, b}, {b, a}} {
				im, err := x[0].p.Import(ctx, x[1].p.Node(), x[1].p.PID(), 7)
				if err != nil {
					t.Fatal(err)
				}
				x[0].to.Store(im)
			}
			// Outside of handlers one waits for credits, and gets them.
			var wg sync.WaitGroup
			for _, s := range []*side{a, b} {
				wg.Go(func() {
					for range 500 {
						if err := s.to.Load().SendNotify(ctx, word, 0); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			if a.no.Load()+b.no.Load() == 0 {
				t.Error("no handler was ever without credit")
			}
			t.Logf("%d and %d handlers ran, %d and %d times without credit", a.ran.Load(), b.ran.Load(), a.no.Load(), b.no.Load())
		})
	}
}

// Discarding, waiting for one buffer's notification, and a buffer without a handler.
func TestNotificationsOfOneBuffer(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			var ran atomic.Uint32
			s := exported(t, way, vmmc.WithHandler(func(n vmmc.Notification) { ran.Add(n.Word) }))
			ctx := within(t)
			plain, none := s.another(t, 8)
			mark, marker := s.another(t, 9, vmmc.WithHandler(func(vmmc.Notification) {}))
			for range 200 { // more than there are credits
				if err := none.SendNotify(ctx, w32(1000), 0); err != nil {
					t.Fatal(err)
				}
			}
			// One sender's notifications run in order, over all buffers: when the
			// marker's has run, the others have had their turn.
			marked := func(n uint64) {
				if err := marker.SendNotify(ctx, word, 0); err != nil {
					t.Fatal(err)
				}
				if got, err := mark.WaitNotified(ctx, n); got != n+1 || err != nil {
					t.Fatal(got, err)
				}
			}
			marked(0)
			s.b.BlockNotifications()
			for range 50 {
				if err := s.im.SendNotify(ctx, w32(100), 0); err != nil {
					t.Fatal(err)
				}
			}
			s.exp.DiscardNotifications(true)
			if _, err := s.b.UnblockNotifications(); err != nil {
				t.Fatal(err)
			}
			marked(1)
			s.exp.DiscardNotifications(false)
			if err := s.im.SendNotify(ctx, w32(1), 0); err != nil {
				t.Fatal(err)
			}
			if n, err := s.exp.WaitNotified(ctx, 0); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			if n := ran.Load(); n != 1 {
				t.Errorf("handlers ran for %d, want 1", n)
			}
			if n := plain.Notified(); n != 0 {
				t.Errorf("%d notifications of a buffer without a handler had an effect", n)
			}
			closed := make(chan error, 1)
			go func() {
				_, err := s.exp.WaitNotified(ctx, s.exp.Notified())
				closed <- err
			}()
			if err := s.exp.Close(); err != nil {
				t.Fatal(err)
			}
			if err := <-closed; !errors.Is(err, vmmc.ErrBadRbufState) {
				t.Errorf("waiting when the export was closed: %v", err)
			}
		})
	}
}

func TestEvents(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			events := make(chan vmmc.Event, 10)
			a, err := vmmc.Open(t.Context(), vmmc.WithSocket(near), vmmc.WithEvents(func(e vmmc.Event) { events <- e }))
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			b := join(t, far)
			ctx := within(t)
			exp, err := b.Export(7, alloc(t, b, size))
			if err != nil {
				t.Fatal(err)
			}
			im, err := a.Import(ctx, b.Node(), b.PID(), 7)
			if err != nil {
				t.Fatal(err)
			}
			if err := im.Get(ctx, make([]byte, 4), 0); err != nil { // the exporter has the link
				t.Fatal(err)
			}
			a.BlockNotifications()
			if err := exp.Close(); err != nil {
				t.Fatal(err)
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			if err := eventually(t, func() error { return im.Fence(ctx) }); !errors.Is(err, vmmc.ErrBadIbufState) {
				t.Error(err)
			}
			select {
			case e := <-events:
				t.Errorf("%v while notifications are blocked", e.Kind)
			default:
			}
			if _, err := a.UnblockNotifications(); err != nil {
				t.Fatal(err)
			}
			for _, want := range []vmmc.EventKind{vmmc.ImportRevoked, vmmc.PeerGone} {
				select {
				case e := <-events:
					if e.Kind != want || e.Peer != b.ID() || e.Err == nil || (e.Import == im) != (want == vmmc.ImportRevoked) {
						t.Errorf("%v of %v: %v; want %v", e.Kind, e.Peer, e.Err, want)
					}
				case <-ctx.Done():
					t.Fatalf("no event %v", want)
				}
			}
		})
	}
}

// blockedNotifications returns an export whose process blocks notifications, and to which 20, with
// the words 0 to 19, were sent and applied. Each that runs is sent to ran.
func blockedNotifications(t *testing.T, way string) (s *buffers, ran chan uint32) {
	t.Helper()
	ran = make(chan uint32, 20)
	s = exported(t, way, vmmc.WithHandler(func(n vmmc.Notification) { ran <- n.Word }))
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
	return s, ran
}

// What a process sent before it ended is handled, also when notifications are blocked
// meanwhile. A process that closes does not wait for notifications that it blocks itself.
func TestNotificationsOfOneWhoLeft(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			ctx := within(t)
			s, ran := blockedNotifications(t, way)
			if err := s.a.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := s.b.UnblockNotifications(); err != nil {
				t.Fatal(err)
			}
			for i := range uint32(20) {
				select {
				case w := <-ran:
					if w != i {
						t.Fatalf("notification %d ran in place of %d", w, i)
					}
				case <-ctx.Done():
					t.Fatalf("notification %d was lost", i)
				}
			}
			s.b.BlockNotifications()
			if err := s.b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
