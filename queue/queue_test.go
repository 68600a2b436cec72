package queue_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/queue"
	"github.com/vmmc-go/vmmc/view"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// All values arrive, whole and in order, over many rounds of the ring, and also where its counters
// begin anew.
func TestOneToOne(t *testing.T) {
	const n = 1000
	for _, w := range ways {
		for about, opts := range map[string][]queue.Option{
			"1 slot":            {queue.Slots(1)},
			"6 slots":           {queue.Slots(6)},
			"1024 slots":        nil,
			"the lap wraps":     {queue.Slots(8), queue.StartAt(8 * (1<<31 - 40))},
			"the counter wraps": {queue.Slots(8), queue.StartAt(1<<32 - 300)},
			"all wraps":         {queue.Slots(2), queue.StartAt(1<<64 - 500)},
		} {
			t.Run(w.name+"/"+about, func(t *testing.T) {
				nodes, c := w.start(t, opts...)
				q := dial(t, nodes[len(nodes)-1].Open(t))
				done := make(chan error, 1)
				ctx := within(t)
				go func() {
					done <- func() error {
						for first, run := 0, 1; first < n; first, run = first+run, run%13+1 {
							vs := items(1, first, min(run, n-first))
							if run == 1 {
								if err := q.Put(ctx, vs[0]); err != nil {
									return err
								}
							} else if _, err := q.PutAll(ctx, vs); err != nil {
								return err
							}
						}
						return q.Close(ctx)
					}()
				}()
				got, dst := tally{}, make([]item, 5)
				for i := 0; got[1] < n; i++ {
					if i%3 == 0 {
						got.add(t, get(t, c))
						continue
					}
					k, err := c.GetSome(ctx, dst)
					if err != nil {
						t.Fatal(err)
					}
					got.add(t, dst[:k]...)
				}
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				if _, ok, err := c.TryGet(); ok || err != nil {
					t.Errorf("a value more, %v", err)
				}
				if k := q.Pending(); k != 0 {
					t.Errorf("%d values are pending", k)
				}
				if err := q.Close(ctx); err != nil {
					t.Error(err)
				}
				if err := q.Put(ctx, item{}); !errors.Is(err, vmmc.ErrClosed) {
					t.Errorf("a put after the close: %v", err)
				}
			})
		}
	}
}

func TestManyToOne(t *testing.T) {
	const n, producers = 300, 8
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes, c := w.start(t, queue.Slots(16))
			var wg sync.WaitGroup
			ctx := within(t)
			for i := range producers {
				q := dial(t, nodes[len(nodes)-1].Open(t))
				wg.Go(func() {
					for k := range n {
						if err := q.Put(ctx, newItem(uint32(i), uint32(k))); err != nil {
							t.Error(err)
							return
						}
					}
					if err := q.Close(ctx); err != nil {
						t.Error(err)
					}
				})
			}
			got := tally{}
			for k := 0; k < n*producers; k++ {
				got.add(t, get(t, c))
			}
			wg.Wait()
		})
	}
}

// A queue goes on over lost connections.
func TestOverCuts(t *testing.T) {
	const n = 2000
	nodes := vmmctest.Nodes(t, 2)
	c := listen(t, nodes[0].Open(t, vmmc.WithResume(bound)), queue.Slots(64))
	q := dial(t, nodes[1].Open(t, vmmc.WithResume(bound)))
	done := make(chan error, 1)
	ctx := within(t)
	go func() {
		_, err := q.PutAll(ctx, items(1, 0, n))
		done <- errors.Join(err, q.Close(ctx))
	}()
	got := tally{}
	for i := range n {
		if i%400 == 200 {
			nodes[0].Cut()
			nodes[0].Heal()
		}
		got.add(t, get(t, c))
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Gets of other producers' values go on while the link with one producer is away.
func TestGetsBesideALostLink(t *testing.T) {
	const slots, rounds = 16, 3
	nodes := vmmctest.Nodes(t, 2)
	down := make(chan struct{}, 64)
	p := nodes[0].Open(t, vmmc.WithResume(10*bound), vmmc.WithEvents(func(e vmmc.Event) {
		if e.Kind == vmmc.LinkDown {
			down <- struct{}{}
		}
	}))
	c := listen(t, p, queue.Slots(slots))
	far, near := dial(t, nodes[1].Open(t, vmmc.WithResume(10*bound))), dial(t, nodes[0].Open(t))
	got := tally{}
	put(t, far, items(1, 0, slots)...)
	eventually(t, "the values arrive", func() bool { return c.Values() == slots })
	nodes[0].Cut()
	<-down
	<-down // its link with the consumer, and the consumer's with it
	for k := range rounds {
		put(t, near, items(2, k*slots, slots)...)
		for int(got[2]) < (k+1)*slots {
			got.add(t, get(t, c))
		}
	}
	for got[1] < slots {
		got.add(t, get(t, c))
	}
	nodes[0].Heal()
	eventually(t, "the far producer learns that all are taken", func() bool { return far.Pending() == 0 })
	put(t, far, items(1, slots, slots)...)
	for got[1] < 2*slots {
		got.add(t, get(t, c))
	}
	for _, q := range []*queue.Producer[item]{far, near} {
		if err := q.Close(within(t)); err != nil {
			t.Error(err)
		}
	}
}

// A try does not wait for a link that is away.
func TestTryPutOnALostLink(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	down := make(chan struct{}, 64)
	c := listen(t, nodes[0].Open(t, vmmc.WithResume(10*bound)))
	q := dial(t, nodes[1].Open(t, vmmc.WithResume(10*bound), vmmc.WithEvents(func(e vmmc.Event) {
		if e.Kind == vmmc.LinkDown {
			down <- struct{}{}
		}
	})))
	nodes[0].Cut()
	<-down
	<-down // its link with the consumer, and the consumer's with it
	for range 3 {
		if ok, err := q.TryPut(newItem(1, 0)); ok || err != nil {
			t.Errorf("%t, %v", ok, err)
		}
	}
	if n := q.Pending(); n != 0 {
		t.Errorf("%d values are pending", n)
	}
	nodes[0].Heal()
	eventually(t, "the link takes a value", func() bool {
		ok, err := q.TryPut(newItem(1, 0))
		if err != nil {
			t.Error(err)
		}
		return ok
	})
	if v := get(t, c); v != newItem(1, 0) {
		t.Errorf("%+v", v)
	}
	if err := q.Close(within(t)); err != nil {
		t.Error(err)
	}
}

// A full queue makes producers wait, and takes nothing that is given up.
func TestBackpressure(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes, c := w.start(t, queue.Slots(8))
			q := dial(t, nodes[len(nodes)-1].Open(t))
			ctx, cancel := context.WithCancel(within(t))
			for i := range 6 {
				if ok, err := q.TryPut(newItem(1, uint32(i))); !ok || err != nil {
					t.Fatalf("value %d: %t, %v", i, ok, err)
				}
			}
			other := make(chan error, 1)
			go func() {
				n, err := q.PutAll(ctx, items(1, 6, 5))
				if n != 2 {
					t.Errorf("%d values were put, want 2", n)
				}
				other <- err
			}()
			for q.Pending() < 8 {
				if runtime.Gosched(); ctx.Err() != nil {
					t.Fatal(ctx.Err())
				}
			}
			cancel()
			if err := <-other; !errors.Is(err, vmmc.ErrCanceled) {
				t.Errorf("a put that was given up: %v", err)
			}
			if err := q.Put(ctx, newItem(1, 8)); !errors.Is(err, vmmc.ErrCanceled) {
				t.Errorf("a put without a chance: %v", err)
			}
			if ok, err := q.TryPut(newItem(1, 8)); ok || err != nil {
				t.Errorf("a try at a full queue: %t, %v", ok, err)
			}
			if k := q.Pending(); k != 8 {
				t.Errorf("%d values are pending, want 8", k)
			}
			got := tally{}
			got.add(t, get(t, c), get(t, c))
			put(t, q, newItem(1, 8), newItem(1, 9))
			for range 8 {
				got.add(t, get(t, c))
			}
			if err := q.Close(within(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// A value that is taken and counted before its put returns is not pending, nor is any other number
// of values.
func TestPendingBesideAPut(t *testing.T) {
	nodes, c := ways[0].start(t, queue.Slots(1))
	q, got := dial(t, nodes[0].Open(t)), tally{}
	steps.On(t, func(s string) {
		if s == "put.arrived" {
			got.add(t, get(t, c))
			if n := q.Pending(); n != 0 {
				t.Errorf("%d values are pending", n)
			}
		}
	})
	for i := range 3 {
		put(t, q, newItem(1, uint32(i)))
	}
	if n := q.Pending(); n != 0 || got[1] != 3 {
		t.Errorf("%d values are pending, %d were taken", n, got[1])
	}
	if err := q.Close(within(t)); err != nil {
		t.Error(err)
	}
}

// A close whose context ends gives back everything, and says what is pending.
func TestCloseGivenUp(t *testing.T) {
	nodes, c := ways[0].start(t)
	q := dial(t, nodes[0].Open(t))
	put(t, q, items(1, 0, 3)...)
	ctx, cancel := context.WithCancel(within(t))
	cancel()
	if err := q.Close(ctx); !errors.Is(err, vmmc.ErrCanceled) {
		t.Errorf("%v", err)
	}
	if k := q.Pending(); k != 3 {
		t.Errorf("%d values are pending, want 3", k)
	}
	got := tally{}
	got.add(t, get(t, c), get(t, c), get(t, c))
}

// What waits ends when the consumer is closed.
func TestConsumerClosed(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes, c := w.start(t, queue.Slots(1))
			p := nodes[len(nodes)-1].Open(t)
			q := dial(t, p)
			put(t, q, newItem(1, 0))
			get(t, c)
			puts, gets := make(chan error, 1), make(chan error, 1)
			ctx := within(t)
			go func() {
				_, err := c.Get(ctx)
				_, err2 := c.Get(ctx) // as often as the producer can put
				for err == nil && err2 == nil {
					_, err2 = c.Get(ctx)
				}
				gets <- errors.Join(err, err2)
			}()
			go func() {
				for k := uint32(1); ; k++ {
					if err := q.Put(ctx, newItem(1, k)); err != nil {
						puts <- err
						return
					}
				}
			}()
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if err := <-gets; !errors.Is(err, vmmc.ErrClosed) {
				t.Errorf("a get: %v", err)
			}
			if err := <-puts; !errors.Is(err, vmmc.ErrRevoked) {
				t.Errorf("a put: %v", err)
			}
			if ok, err := q.TryPut(item{}); ok || !errors.Is(err, vmmc.ErrRevoked) {
				t.Errorf("a try: %t, %v", ok, err)
			}
			if err := q.Close(ctx); err != nil && !errors.Is(err, vmmc.ErrRevoked) {
				t.Errorf("the close: %v", err)
			}
			if _, err := c.Get(ctx); !errors.Is(err, vmmc.ErrClosed) {
				t.Errorf("a get afterwards: %v", err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			// The name is free again.
			d := listen(t, nodes[0].Open(t))
			q = dial(t, p)
			put(t, q, newItem(2, 0))
			if v := get(t, d); v.From != 2 {
				t.Errorf("%+v", v)
			}
			if err := q.Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// A consumer that is closed while notifications are blocked goes on, and is closed later.
func TestCloseWhileNotificationsAreBlocked(t *testing.T) {
	nodes := vmmctest.Nodes(t, 1)
	p := nodes[0].Open(t)
	c := listen(t, p)
	q := dial(t, nodes[0].Open(t))
	box, err := nodes[0].Open(t).ImportName(within(t), name)
	if err != nil {
		t.Fatal(err)
	}
	p.BlockNotifications()
	if err := box.SendNotify(within(t), make([]byte, 4), 60); err != nil { // as Dial does
		t.Fatal(err)
	}
	if err := c.Close(); !errors.Is(err, vmmc.ErrBlockedNotifications) {
		t.Errorf("%v", err)
	}
	put(t, q, newItem(1, 0))
	if v := get(t, c); v != newItem(1, 0) {
		t.Errorf("%+v", v)
	}
	if _, err := p.UnblockNotifications(); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("the second close: %v", err)
	}
	listen(t, p) // the name is free
}

// A get sleeps for a producer that comes later, and its context ends it.
func TestGetWithoutProducers(t *testing.T) {
	nodes, c := ways[0].start(t)
	ctx, cancel := context.WithCancel(within(t))
	cancel()
	if _, err := c.Get(ctx); !errors.Is(err, vmmc.ErrCanceled) {
		t.Errorf("%v", err)
	}
	got := make(chan error, 1)
	go func() {
		v, err := c.Get(within(t))
		if err == nil && v != newItem(1, 0) {
			err = errors.New("another value")
		}
		got <- err
	}()
	q := dial(t, nodes[0].Open(t))
	put(t, q, newItem(1, 0))
	if err := <-got; err != nil {
		t.Error(err)
	}
	if err := q.Close(within(t)); err != nil {
		t.Error(err)
	}
}

// A get sleeps with any context, also with one that cannot be compared.
func TestGetWithAnyContext(t *testing.T) {
	type other struct {
		context.Context //nolint:containedctx // as programs have them
		values          any
	}
	nodes, c := ways[0].start(t)
	q, n := dial(t, nodes[0].Open(t)), uint32(0)
	steps.On(t, func(s string) {
		if s == "get.sleeps" {
			put(t, q, newItem(1, n))
		}
	})
	for ctx := (other{within(t), []int{1}}); n < 2; n++ {
		if v, err := c.Get(ctx); v != newItem(1, n) || err != nil {
			t.Errorf("%+v, %v", v, err)
		}
	}
	if err := q.Close(within(t)); err != nil {
		t.Error(err)
	}
}

// A get that sleeps ends when the consumer is closed.
func TestCloseWhileAGetSleeps(t *testing.T) {
	sleeps := make(chan struct{}, 1)
	steps.On(t, func(s string) {
		if s == "get.sleeps" {
			sleeps <- struct{}{}
		}
	})
	_, c := ways[0].start(t)
	got := make(chan error, 1)
	ctx := within(t)
	go func() {
		_, err := c.Get(ctx)
		got <- err
	}()
	<-sleeps
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-ctx.Done():
		t.Error("the close waits for the get")
	}
	if err := <-got; !errors.Is(err, vmmc.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// A get that was about to sleep when the consumer was closed does not.
func TestCloseBeforeAGetSleeps(t *testing.T) {
	nodes, c := ways[0].start(t)
	q := dial(t, nodes[0].Open(t))
	closed := make(chan error, 1)
	var once sync.Once
	steps.On(t, func(s string) {
		if s == "lane.empty" {
			once.Do(func() {
				go func() { closed <- c.Close() }()
				eventually(t, "the close has begun", c.Closed)
			})
		}
	})
	ctx := within(t)
	if _, err := c.Get(ctx); !errors.Is(err, vmmc.ErrClosed) || ctx.Err() != nil {
		t.Errorf("%v; the context: %v", err, ctx.Err())
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := q.Close(within(t)); err != nil {
		t.Error(err)
	}
}

// A value that arrives between a get's look at its lane and the producer's end is taken.
func TestValueBeforeTheEnd(t *testing.T) {
	nodes, c := ways[0].start(t)
	q := dial(t, nodes[0].Open(t))
	var once sync.Once
	steps.On(t, func(s string) {
		if s != "lane.empty" {
			return
		}
		once.Do(func() {
			put(t, q, newItem(1, 0))
			ended, stop := context.WithCancel(within(t))
			stop()
			if err := q.Close(ended); !errors.Is(err, vmmc.ErrCanceled) {
				t.Errorf("a close that is given up: %v", err)
			}
			eventually(t, "the consumer learns of the end", c.LanesOver)
		})
	})
	if v := get(t, c); v != newItem(1, 0) {
		t.Errorf("%+v", v)
	}
}

// Gets take from the producers by turns.
func TestProducersByTurns(t *testing.T) {
	const n, producers = 8, 3
	nodes, c := ways[0].start(t, queue.Slots(n))
	qs, got := []*queue.Producer[item]{}, tally{}
	for i := range producers {
		q := dial(t, nodes[0].Open(t))
		put(t, q, items(i, 0, n)...)
		qs = append(qs, q)
	}
	for k := range n * producers {
		v, some := item{}, make([]item, 1)
		switch k % 2 {
		case 0:
			v = get(t, c)
		case 1:
			if n, err := c.GetSome(within(t), some); n != 1 || err != nil {
				t.Fatalf("%d values, %v", n, err)
			}
			v = some[0]
		}
		got.add(t, v)
		if int(v.From) != k%producers {
			t.Fatalf("get %d: a value of producer %d", k, v.From)
		}
	}
	for _, q := range qs {
		if err := q.Close(within(t)); err != nil {
			t.Error(err)
		}
	}
}

// A consumer that counts values that were not put breaks the protocol.
func TestFalseCount(t *testing.T) {
	for _, n := range []uint32{1, 1 << 31, 1<<32 - 9} {
		nodes, c := ways[0].start(t, queue.Slots(8))
		q := dial(t, nodes[0].Open(t))
		if err := c.Count(within(t), n); err != nil {
			t.Fatal(err)
		}
		if err := q.Put(within(t), newItem(1, 0)); !errors.Is(err, vmmc.ErrProtocol) {
			t.Errorf("put, count %d: %v", n, err)
		}
		if ok, err := q.TryPut(newItem(1, 0)); ok || !errors.Is(err, vmmc.ErrProtocol) {
			t.Errorf("try, count %d: %t, %v", n, ok, err)
		}
		if k := q.Pending(); k < 0 || k > 8 {
			t.Errorf("%d values are pending, count %d", k, n)
		}
		if err := q.Close(within(t)); !errors.Is(err, vmmc.ErrProtocol) {
			t.Errorf("close, count %d: %v", n, err)
		}
	}
}

// A producer that writes into its lane what it likes gets no value taken out of its order.
func TestFalseLane(t *testing.T) {
	const slots = 4
	nodes, c := ways[0].start(t, queue.Slots(slots))
	q := dial(t, nodes[0].Open(t))
	lane := q.Lane()
	slot := (lane.Size() - 64) / slots
	ones := bytes.Repeat([]byte{0xFF}, 64)
	for at := 0; at < lane.Size(); at += 4 { // also each slot's number
		if err := lane.Send(within(t), ones[:4], at); err != nil {
			t.Fatal(err)
		}
	}
	number := binary.NativeEndian.AppendUint32(nil, 1)
	for i := 1; i < slots; i++ { // the later values of the first lap have their numbers
		if err := lane.Send(within(t), number, lane.Size()-i*slot-4); err != nil {
			t.Fatal(err)
		}
	}
	if v, ok, err := c.TryGet(); ok || err != nil {
		t.Errorf("%+v, %t, %v", v, ok, err)
	}
	put(t, q, newItem(1, 0))
	if v := get(t, c); v != newItem(1, 0) {
		t.Errorf("%+v", v)
	}
	if err := q.Close(within(t)); err != nil {
		t.Error(err)
	}
}

// No third process can write to a lane, nor acknowledge values.
func TestThirdProcess(t *testing.T) {
	nodes, _ := ways[0].start(t)
	q, third := dial(t, nodes[0].Open(t)), nodes[0].Open(t)
	lane, own := q.Lane(), q.Own()
	_, err := third.Import(within(t), lane.Exporter().Node, lane.Exporter().PID, lane.ID())
	if !errors.Is(err, vmmc.ErrNoRights) {
		t.Errorf("the lane: %v", err)
	}
	_, err = third.Import(within(t), q.Process().Node(), q.Process().PID(), own.ID())
	if !errors.Is(err, vmmc.ErrNoRights) {
		t.Errorf("the producer's export: %v", err)
	}
	if err := q.Close(within(t)); err != nil {
		t.Error(err)
	}
}

// In a handler calls fail, as they could wait for what a later handler does.
func TestInHandler(t *testing.T) {
	nodes, c := ways[0].start(t)
	p := nodes[0].Open(t)
	q, ctx := dial(t, p), within(t)
	put(t, q, newItem(1, 0))
	done := make(chan struct{})
	_, err := p.Export(1, make([]byte, 4), vmmc.WithHandler(func(vmmc.Notification) {
		defer close(done)
		for name, call := range map[string]func() error{
			"Listen":  func() error { _, err := queue.Listen[item](ctx, p, "other"); return err },
			"Dial":    func() error { _, err := queue.Dial[item](ctx, p, name); return err },
			"Put":     func() error { return q.Put(ctx, item{}) },
			"PutAll":  func() error { _, err := q.PutAll(ctx, make([]item, 1)); return err },
			"TryPut":  func() error { _, err := q.TryPut(item{}); return err },
			"Close":   func() error { return q.Close(ctx) },
			"Get":     func() error { _, err := c.Get(ctx); return err },
			"GetSome": func() error { _, err := c.GetSome(ctx, make([]item, 1)); return err },
			"TryGet":  func() error { _, _, err := c.TryGet(); return err },
			"close":   c.Close,
		} {
			if err := call(); !errors.Is(err, vmmc.ErrNotInHandler) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := q.Pending(); n != 1 {
			t.Errorf("%d values are pending", n)
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	im, err := nodes[0].Open(t).Import(ctx, p.Node(), p.PID(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := im.SendNotify(ctx, make([]byte, 4), 0); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-ctx.Done():
		t.Error(ctx.Err())
	}
	get(t, c)
	if err := q.Close(ctx); err != nil {
		t.Error(err)
	}
}

// A lane that is none of this package's is refused.
func TestFalseHeader(t *testing.T) {
	for _, h := range []struct {
		slots       uint32
		size, value int
	}{
		{0, 1 << 20, 4},
		{3, 1 << 20, 4},
		{1 << 25, 1 << 30, 4},
		{1 << 31, 1 << 30, 4},
		{4, 64 + 4*8 - 1, 4},
		{4, 64, 4},
		{1 << 20, 1 << 30, 4096},
	} {
		if err := queue.ReadHeader(h.slots, h.size, h.value); err == nil {
			t.Errorf("%+v: no error", h)
		}
	}
	if err := queue.ReadHeader(4, 64+4*8, 4); err != nil {
		t.Error(err)
	}
}

// A process that dials with another buffer than a producer's is refused.
func TestFalseProducer(t *testing.T) {
	nodes, c := ways[0].start(t)
	p := nodes[0].Open(t)
	box, err := p.ImportName(within(t), name)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{64, 68, 1 << 20} {
		e, err := pair.Export(func(id uint32) (*vmmc.Export, error) {
			return p.Export(id, make([]byte, n))
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pair.Dial(within(t), p, box, 60, e); !errors.Is(err, pair.ErrRefused) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if n := c.Lanes(); n != 0 {
		t.Errorf("%d lanes", n)
	}
}

func TestRefused(t *testing.T) {
	ctx := within(t)
	nodes, c := ways[0].start(t)
	p := nodes[0].Open(t)
	type other struct {
		From uint32
		N    int32
	}
	_, err := queue.Dial[other](ctx, p, name)
	var layout *view.LayoutError
	if !errors.As(err, &layout) || layout.Field != "N" {
		t.Errorf("another type: %v", err)
	}
	var refused *view.TypeError
	if _, err := queue.Listen[string](ctx, p, "strings"); !errors.As(err, &refused) {
		t.Errorf("strings: %v", err)
	}
	if _, err := queue.Dial[string](ctx, p, name); !errors.As(err, &refused) {
		t.Errorf("strings: %v", err)
	}
	for _, n := range []int{-1, 0, 1<<24 + 1, 1 << 24} { // the last has too much memory
		_, err := queue.Listen[item](ctx, p, "slots", queue.Slots(n))
		if !errors.Is(err, vmmc.ErrBadArg) {
			t.Errorf("%d slots: %v", n, err)
		}
	}
	if _, err := queue.Listen[item](ctx, p, name); !errors.Is(err, vmmc.ErrNameTaken) {
		t.Errorf("a second consumer: %v", err)
	}
	values, err := view.Export[item](p, 1, 3, vmmc.WithName("values"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := queue.Dial[item](ctx, nodes[0].Open(t), "values"); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("no queue: %v", err)
	}
	for _, v := range values.Slice() {
		if v != (item{}) {
			t.Errorf("a dialler has changed what is no queue: %+v", v)
		}
	}
	var none context.Context
	if _, err := c.Get(none); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("a nil context: %v", err)
	}
	if _, err := queue.Dial[item](none, p, name); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("a nil context: %v", err)
	}
	soon, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := queue.Dial[item](soon, p, name); !errors.Is(err, vmmc.ErrCanceled) {
		t.Errorf("a dial that was given up: %v", err)
	}
}

// A process that writes to the letterbox changes no lane.
func TestLetterboxOverwritten(t *testing.T) {
	const n = 40
	nodes, c := ways[0].start(t, queue.Slots(8))
	box, err := nodes[0].Open(t).ImportName(within(t), name)
	if err != nil {
		t.Fatal(err)
	}
	for at := 8; at < 60; at += 4 {
		if err := box.Send(within(t), []byte{1, 0, 0, 0}, at); err != nil {
			t.Fatal(err)
		}
	}
	q, got := dial(t, nodes[0].Open(t)), tally{}
	for i := range n {
		put(t, q, newItem(1, uint32(i)))
		got.add(t, get(t, c))
	}
	if err := q.Close(within(t)); err != nil {
		t.Error(err)
	}
	if err := box.Send(within(t), make([]byte, 8), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := queue.Dial[item](within(t), nodes[0].Open(t), name); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("a letterbox without its magic: %v", err)
	}
}

// A consumer has no more producers than it may have. One that has ended makes room for another one.
func TestMaxProducers(t *testing.T) {
	nodes, c := ways[0].start(t, queue.MaxProducers(2))
	p, qs := nodes[0].Open(t), []*queue.Producer[item]{}
	for range 2 {
		qs = append(qs, dial(t, p))
	}
	if _, err := queue.Dial[item](within(t), p, name); !errors.Is(err, vmmc.ErrNoMem) {
		t.Errorf("a third producer: %v", err)
	}
	if err := qs[0].Close(within(t)); err != nil {
		t.Error(err)
	}
	eventually(t, "the first producer's lane is dropped", func() bool {
		if _, ok, err := c.TryGet(); ok || err != nil {
			t.Errorf("a value, or %v", err)
		}
		return c.Lanes() == 1
	})
	put(t, dial(t, p), newItem(1, 0))
	if v := get(t, c); v != newItem(1, 0) {
		t.Errorf("%+v", v)
	}
	_, err := queue.Listen[item](within(t), p, "none", queue.MaxProducers(0))
	if !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("no producers: %v", err)
	}
}

// A producer whose values were all taken learns that, though the consumer is closed at once.
func TestCloseAfterTheLastValue(t *testing.T) {
	const rounds = 50
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes := vmmctest.Nodes(t, w.nodes)
			p, far := nodes[0].Open(t), nodes[len(nodes)-1].Open(t)
			var opts []queue.Option
			if w.unmapped {
				opts = append(opts, queue.Unmapped())
			}
			for k := range rounds {
				c := listen(t, p, opts...)
				q := dial(t, far)
				put(t, q, items(1, 0, 3)...)
				closed := make(chan error, 1)
				ctx := within(t)
				go func() { closed <- q.Close(ctx) }()
				for range 3 {
					get(t, c)
				}
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
				if err := <-closed; err != nil {
					t.Fatalf("round %d: %v, %d values are pending", k, err, q.Pending())
				}
			}
		})
	}
}

// Values of a burst are coalesced, also among batches and tries, and arrive in their order. So do
// the last ones, though the producer then does nothing.
func TestCoalesced(t *testing.T) {
	const n = 3000
	for _, w := range ways[1:] {
		for _, slots := range []int{1, 6, 4096} {
			t.Run(w.name+"/"+itoa(slots), func(t *testing.T) {
				t.Cleanup(queue.CoalesceWithin(bound))
				var queued atomic.Int32
				steps.On(t, func(s string) {
					if s == "put.queued" {
						queued.Add(1)
					}
				})
				nodes, c := w.start(t, queue.Slots(slots), queue.StartAt(1<<32-1000))
				q := dial(t, nodes[len(nodes)-1].Open(t))
				done, ctx := make(chan error, 1), within(t)
				go func() {
					for i := 0; i < n; {
						k := 1
						var err error
						switch {
						case i == n-1 || i%50 > 1:
							err = q.Put(ctx, newItem(1, uint32(i)))
						case i%50 == 1:
							k, err = q.PutAll(ctx, items(1, i, min(7, n-i)))
						default:
							var ok bool
							if ok, err = q.TryPut(newItem(1, uint32(i))); !ok {
								k = 0
							}
						}
						if err != nil {
							done <- err
							return
						}
						i += k
					}
					done <- nil
				}()
				for got := (tally{}); got[1] < n; {
					got.add(t, get(t, c))
				}
				if err := <-done; err != nil {
					t.Error(err)
				}
				if k := queued.Load(); k < n/2 {
					t.Errorf("%d of %d values were coalesced", k, n)
				}
				if err := q.Close(ctx); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A value that is put to an idle queue leaves at once.
func TestIdleIsNotCoalesced(t *testing.T) {
	t.Cleanup(queue.CoalesceWithin(0)) // any time is longer
	steps.On(t, func(s string) {
		if s == "put.queued" {
			t.Error("a value was queued")
		}
	})
	nodes, c := ways[2].start(t)
	q, got := dial(t, nodes[1].Open(t)), tally{}
	for i := range 3 {
		put(t, q, newItem(1, uint32(i)))
		got.add(t, get(t, c))
	}
	if err := q.Close(within(t)); err != nil {
		t.Error(err)
	}
}

// Puts of a burst end with the consumer, and with their context when there is no room.
func TestCoalescedPutsEnd(t *testing.T) {
	const slots = 8
	t.Cleanup(queue.CoalesceWithin(bound))
	nodes, c := ways[2].start(t, queue.Slots(slots))
	q := dial(t, nodes[1].Open(t))
	for i := range slots {
		if err := q.Put(within(t), newItem(1, uint32(i))); err != nil {
			t.Fatal(err)
		}
	}
	gone, stop := context.WithCancel(within(t))
	stop()
	if err := q.Put(gone, newItem(1, slots)); !errors.Is(err, vmmc.ErrCanceled) {
		t.Errorf("a put without room: %v", err)
	}
	got := tally{}
	for range slots {
		got.add(t, get(t, c))
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	var err error
	for i := 0; err == nil && i <= 2*slots; i++ {
		err = q.Put(within(t), newItem(1, slots))
	}
	if !errors.Is(err, vmmc.ErrRevoked) || errors.Is(err, vmmc.ErrOutcomeUnknown) {
		t.Errorf("a put into a queue that was closed: %v", err)
	}
}

// Values from another node are acknowledged together: after a quarter of the slots and not each by
// itself, so that the producer always has room, and at the latest when the consumer is closed.
func TestAcknowledgedTogether(t *testing.T) {
	const slots, n = 16, 200
	t.Cleanup(queue.DelayAcks(bound)) // undone when the consumer is closed
	nodes, c := ways[2].start(t, queue.Slots(slots))
	q, got := dial(t, nodes[1].Open(t)), tally{}
	for i := range n {
		put(t, q, newItem(1, uint32(i)))
		got.add(t, get(t, c))
		if want := (i + 1) % (slots / 4); q.Pending() < want {
			t.Fatalf("%d of %d values are pending, want %d at least", q.Pending(), i+1, want)
		}
	}
	put(t, q, newItem(1, n))
	got.add(t, get(t, c))
	closed, ctx := make(chan error, 1), within(t)
	go func() { closed <- q.Close(ctx) }()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Errorf("the producer's close: %v", err)
	}
}

// The last values are acknowledged though no get follows.
func TestAcknowledgedWithoutAGet(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes, c := w.start(t)
			q, got := dial(t, nodes[len(nodes)-1].Open(t)), tally{}
			for i := range 20 {
				put(t, q, newItem(1, uint32(i)))
				got.add(t, get(t, c))
				eventually(t, "the value is acknowledged", func() bool { return q.Pending() == 0 })
			}
			if err := q.Close(within(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// Only those that are permitted put.
func TestPermit(t *testing.T) {
	ctx := within(t)
	node := vmmctest.Nodes(t, 1)[0]
	p := node.Open(t)
	only := queue.Permit(vmmc.Permission{Processes: []vmmc.ProcessID{p.ID()}})
	c, err := queue.Listen[uint16](ctx, node.Open(t), "small", only)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := queue.Dial[uint16](ctx, node.Open(t), "small"); !errors.Is(err, vmmc.ErrNoRights) {
		t.Errorf("%v", err)
	}
	q, err := queue.Dial[uint16](ctx, p, "small")
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint16(100) {
		if err := q.Put(ctx, i); err != nil {
			t.Fatal(err)
		}
		if v, err := c.Get(ctx); v != i || err != nil {
			t.Fatalf("%d, %v", v, err)
		}
	}
	if err := q.Close(ctx); err != nil {
		t.Error(err)
	}
}

func TestAllocations(t *testing.T) {
	if raceEnabled || invariant.Enabled {
		t.Skip("the race detector and the library's own checks allocate")
	}
	for _, w := range ways[:2] { // the wire between nodes allocates
		t.Run(w.name, func(t *testing.T) {
			nodes, c := w.start(t)
			q := dial(t, nodes[len(nodes)-1].Open(t))
			vs, dst := items(1, 0, 64), make([]item, 64)
			for _, ctx := range []context.Context{within(t), context.Background()} {
				for name, f := range map[string]func() error{
					"Put and Get": func() error {
						err := q.Put(ctx, vs[0])
						_, err2 := c.Get(ctx)
						return errors.Join(err, err2)
					},
					"Puts and GetSome": func() error {
						for _, v := range vs {
							if err := q.Put(ctx, v); err != nil {
								return err
							}
						}
						for n := 0; n < len(vs); {
							k, err := c.GetSome(ctx, dst)
							if n += k; err != nil {
								return err
							}
						}
						return nil
					},
					"PutAll and GetSome": func() error {
						_, err := q.PutAll(ctx, vs)
						for n := 0; n < len(vs) && err == nil; {
							var k int
							k, err = c.GetSome(ctx, dst)
							n += k
						}
						return err
					},
				} {
					if n := testing.AllocsPerRun(200, func() {
						if err := f(); err != nil {
							t.Fatal(err)
						}
					}); n != 0 {
						t.Errorf("%s, %T: %v allocations", name, ctx, n)
					}
				}
			}
			if err := q.Close(within(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

func itoa(n int) string { return strconv.Itoa(n) }
