package link

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// notifier is a link whose notifications are counted.
type notifier struct {
	*pair
	m   *Mapped
	ran atomic.Uint32
}

func newNotifier(t *testing.T) *notifier {
	t.Helper()
	r, err := shm.New("test", shm.PageSize, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Retire)
	n := &notifier{}
	n.pair = join(t, true, &Target{Handle: 1, Mem: r.Bytes(), Write: true, Notify: func(int, uint32, []byte) { n.ran.Add(1) }})
	if err := r.Seal(false); err != nil {
		t.Fatal(err)
	}
	far := view(t, r, func(fd int) (*shm.Region, error) { return shm.Open(fd, shm.PageSize, true) })
	n.m = NewMapped(n.out, 1, far, 0, shm.PageSize, 0, 0, 0)
	return n
}

// notify has one handler run.
func (n *notifier) notify(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	before := n.ran.Load()
	if err := n.m.SendNotify(ctx, 0, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	for n.ran.Load() == before {
		if ctx.Err() != nil {
			t.Fatalf("no handler ran after the %d.", before)
		}
		time.Sleep(10 * time.Microsecond)
	}
}

// until waits until the exporter says that it does so.
func (n *notifier) until(t *testing.T, awake uint32) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); n.out.pages.Back.Awake().Load() != awake; time.Sleep(10 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("the exporter is in state %d, want %d", n.out.pages.Back.Awake().Load(), awake)
		}
	}
}

// idleNotifier is a notifier whose exporter sleeps on its ring. Where the processors are
// taken it does not, and is asked again.
func idleNotifier(t *testing.T) *notifier {
	t.Helper()
	testutil.Require(t, unix.CanSleepOnWords(), "sleeping on rings needs futex_waitv, Linux 5.16")
	n := newNotifier(t)
	for range 100 {
		n.notify(t)
		for range 1000 {
			if n.out.pages.Back.Awake().Load() == shmlayout.Sleeps {
				return n
			}
			time.Sleep(10 * time.Microsecond)
		}
	}
	t.Skip("the exporter found no processor to spare")
	return nil
}

// What comes while the exporter sleeps, what is posted, and the link's end all wake it.
func TestNotificationWakesRingSleeper(t *testing.T) {
	n := idleNotifier(t)
	for range 50 {
		n.notify(t)
		time.Sleep(200 * time.Microsecond)
	}
	done := make(chan struct{})
	n.b.Event(nil, func() { close(done) })
	<-done
	n.b.Block()
	if err := n.m.SendNotify(t.Context(), 0, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	n.until(t, shmlayout.Rings) // blocked, it leaves the ring to its bell
	if ran := n.ran.Load(); n.b.Blocked() != true || !n.in.Pending(1) {
		t.Errorf("while blocked %d handlers ran, pending: %v", ran, n.in.Pending(1))
	}
	before := n.ran.Load()
	if _, err := n.b.Unblock(); err != nil {
		t.Fatal(err)
	}
	for n.ran.Load() == before {
		time.Sleep(10 * time.Microsecond)
	}
	n.notify(t)
	n.out.Close()
	for n.in.inRingPoller.Load() {
		time.Sleep(10 * time.Microsecond)
	}
}

// An importer that rouses for nothing, or writes what is no note, is left to its bell,
// and is watched again after its next notification.
func TestSpuriousRouse(t *testing.T) {
	for name, wrong := range map[string]func(n *notifier, i uint32){
		"roused": func(n *notifier, _ uint32) { unix.Rouse(n.out.pages.Ring.Stamp(n.ran.Load())) },
		"rubbish": func(n *notifier, i uint32) {
			w := n.out.pages.Ring.Stamp(n.ran.Load())
			w.Store(1<<31 + i)
			unix.Rouse(w)
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := idleNotifier(t)
			end := time.Now().Add(10 * time.Second)
			for i := uint32(0); n.out.pages.Back.Awake().Load() != shmlayout.Rings; i++ {
				wrong(n, i)
				time.Sleep(50 * time.Microsecond)
				if time.Now().After(end) {
					t.Fatal("the exporter is still roused")
				}
			}
			n.notify(t)
			n.notify(t)
		})
	}
}

// Block returns while rings are polled, and while they are slept on.
func TestBlockEndsPolling(t *testing.T) {
	n := newNotifier(t)
	for i := range 200 {
		n.notify(t)
		if i%2 == 0 {
			time.Sleep(time.Duration(i) * time.Microsecond)
		}
		n.b.Block()
		before := n.ran.Load()
		if err := n.m.SendNotify(t.Context(), 0, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Microsecond)
		if n.ran.Load() != before {
			t.Fatal("a handler ran while they were blocked")
		}
		if _, err := n.b.Unblock(); err != nil {
			t.Fatal(err)
		}
		for n.ran.Load() == before {
			time.Sleep(10 * time.Microsecond)
		}
	}
}

// Notifications that a closed import has left in the ring are all run, whichever goroutine takes
// them out.
func TestNotesOfAClosedImportAreRun(t *testing.T) {
	n := newNotifier(t)
	n.notify(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range 300 {
		before := n.ran.Load()
		for range 5 {
			if err := n.m.SendNotify(ctx, 0, make([]byte, 4)); err != nil {
				t.Fatal(err)
			}
		}
		n.in.rmu.Lock() // as a frame that says so
		n.in.notifyMu.Lock()
		n.in.collectRing()
		n.in.notifyMu.Unlock()
		n.in.rmu.Unlock()
		for n.ran.Load() != before+5 {
			if ctx.Err() != nil {
				t.Fatalf("%d of 5 handlers ran", n.ran.Load()-before)
			}
			time.Sleep(10 * time.Microsecond)
		}
	}
}

// So are those that wait for their turn behind a handler when notifications are
// blocked, and the exporter leaves the ring to its bell.
func TestNotesOfAClosedImportAreRunAfterABlock(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	var ran atomic.Uint32
	n := newNotifier(t)
	n.in.rmu.Lock()
	n.in.targets[1].Notify = func(_ int, word uint32, _ []byte) {
		if word == 1 {
			entered <- struct{}{}
			<-leave
		}
		ran.Add(1)
	}
	n.in.rmu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	send := func(word byte) {
		t.Helper()
		if err := n.m.SendNotify(ctx, 0, []byte{word, 0, 0, 0}); err != nil {
			t.Fatal(err)
		}
	}
	until := func(want uint32) {
		t.Helper()
		for ran.Load() != want {
			if ctx.Err() != nil {
				t.Fatalf("%d handlers ran, want %d", ran.Load(), want)
			}
			time.Sleep(10 * time.Microsecond)
		}
	}
	for i := range uint32(50) {
		send(0) // and the ring is polled
		until(4*i + 1)
		send(1)
		<-entered
		send(2)
		send(3)
		n.in.rmu.Lock() // as a frame that says so
		n.in.notifyMu.Lock()
		n.in.collectRing()
		n.in.notifyMu.Unlock()
		n.in.rmu.Unlock()
		blocked := make(chan struct{})
		go func() {
			n.b.Block()
			close(blocked)
		}()
		for !n.b.Blocked() {
			time.Sleep(10 * time.Microsecond)
		}
		leave <- struct{}{}
		<-blocked
		if !n.b.HasQueued(0) {
			t.Fatal("notifications wait that the dispatcher does not know")
		}
		n.until(t, shmlayout.Rings)
		if ran.Load() != 4*i+2 {
			t.Fatalf("%d handlers ran, want %d", ran.Load(), 4*i+2)
		}
		if _, err := n.b.Unblock(); err != nil {
			t.Fatal(err)
		}
		until(4*i + 4)
	}
}

// An importer does not ring for a notification that the exporter has taken out of the ring already.
// So the exporter runs what it takes for an import that is closed, without a bell.
func TestNotesTakenForAClosedImportNeedNoBell(t *testing.T) {
	n := newNotifier(t)
	n.in.rmu.Lock()
	n.in.targets[2] = &Target{Handle: 2, Mem: n.in.targets[1].Mem, Write: true}
	n.in.rmu.Unlock()
	if err := n.out.takeCredit(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	n.out.notifyMu.Lock()
	tail, awake := n.m.putNotification(0, 0, 0)
	n.out.notifyMu.Unlock()
	if awake != shmlayout.Rings {
		t.Fatalf("the exporter watches the ring as %d, want %d", awake, shmlayout.Rings)
	}
	n.out.Detach(2)
	within := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(10 * time.Microsecond) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	within("the notification is still in the ring", func() bool { return n.out.pages.Back.Head().Load() != tail })
	n.m.wakeExporter(tail, awake)
	within("no handler ran", func() bool { return n.ran.Load() == 1 })
}

// linkTo is another importer's link to an exporter, and its import.
func linkTo(t *testing.T, a *Engine, pa shmlayout.Process, b *Engine, pb shmlayout.Process, run func(int, uint32, []byte)) *Mapped {
	t.Helper()
	r, err := shm.New("test", shm.PageSize, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Retire)
	fa, fb, err := unix.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	ga, gb := sharedPages(t, pa, pb)
	if _, err := NewResponder(b, fb, gb, Terms{}, []*Target{{Handle: 1, Mem: r.Bytes(), Write: true, Notify: run}}, nil, func(uint32) {}, func(error) {}); err != nil {
		t.Fatal(err)
	}
	rq, err := NewRequester(a, fa, ga, Terms{}, func(uint32, uint64, error) {}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Seal(false); err != nil {
		t.Fatal(err)
	}
	far := view(t, r, func(fd int) (*shm.Region, error) { return shm.Open(fd, shm.PageSize, true) })
	return NewMapped(rq, 1, far, 0, shm.PageSize, 0, 0, 0)
}

// More links than ring slots are all served, in whatever order they send.
func TestMoreLinksThanRingSlots(t *testing.T) {
	e, own := engine(t)
	var ran [maxRings + 3]atomic.Uint32
	var ms []*Mapped
	for i := range ran {
		a, pa := engine(t)
		ms = append(ms, linkTo(t, a, pa, e, own, func(int, uint32, []byte) { ran[i].Add(1) }))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for round := range uint32(60) {
		for i, m := range ms {
			if i > int(round)%len(ms) && round%3 != 0 {
				continue
			}
			if err := m.SendNotify(ctx, 0, make([]byte, 4)); err != nil {
				t.Fatal(err)
			}
		}
		if round%4 == 0 {
			time.Sleep(300 * time.Microsecond)
		}
	}
	for i, m := range ms {
		for ran[i].Load() != m.req.lastSerial {
			if ctx.Err() != nil {
				t.Fatalf("link %d: %d of %d handlers ran", i, ran[i].Load(), m.req.lastSerial)
			}
			time.Sleep(time.Millisecond)
		}
	}
}
