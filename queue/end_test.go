package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/queue"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// A queue for three producers ends when all three have been closed and their values are taken.
func TestEnd(t *testing.T) {
	const n, producers = 50, 3
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes, c := w.start(t, queue.Slots(8), queue.Producers(producers))
			p, ctx := nodes[len(nodes)-1].Open(t), within(t)
			done := make(chan error, producers)
			for i := range producers {
				q := dial(t, p)
				go func() {
					_, err := q.PutAll(ctx, items(i, 0, n))
					done <- errors.Join(err, q.Close(ctx))
				}()
			}
			got := tally{}
			for v, err := range c.All(ctx) {
				if err != nil {
					t.Fatal(err)
				}
				got.add(t, v)
			}
			for i := range uint32(producers) {
				if got[i] != n {
					t.Errorf("%d values of producer %d", got[i], i)
				}
			}
			for range producers {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			if _, err := c.Get(ctx); !errors.Is(err, queue.ErrEnd) {
				t.Errorf("a get: %v", err)
			}
			if k, err := c.GetSome(ctx, make([]item, 1)); k != 0 || !errors.Is(err, queue.ErrEnd) {
				t.Errorf("%d values: %v", k, err)
			}
			if _, ok, err := c.TryGet(); ok || !errors.Is(err, queue.ErrEnd) {
				t.Errorf("a try: %t, %v", ok, err)
			}
			if _, err := queue.Dial[item](ctx, p, name); !errors.Is(err, vmmc.ErrNoMem) {
				t.Errorf("a fourth producer: %v", err)
			}
		})
	}
}

// A queue that has lost a producer says so once, goes on with the others, and never ends as if it
// had lost none.
func TestLost(t *testing.T) {
	nodes, c := ways[0].start(t, queue.Producers(2))
	ctx, p := within(t), nodes[0].Open(t)
	lost, q := dial(t, nodes[0].Open(t)), dial(t, p)
	put(t, lost, items(1, 0, 3)...)
	if err := lost.Process().Close(); err != nil { // all that lives of it
		t.Fatal(err)
	}
	got := tally{}
	got.add(t, get(t, c), get(t, c), get(t, c))
	var e *queue.LostError
	_, err := c.Get(ctx)
	if !errors.As(err, &e) || !errors.Is(err, vmmc.ErrPeerGone) || errors.Is(err, queue.ErrEnd) {
		t.Fatalf("%v", err)
	}
	if e.Producer != lost.Process().ID() || e.Values != 3 || e.Queue != name {
		t.Errorf("%+v", e)
	}
	put(t, q, newItem(2, 0))
	if v := get(t, c); v != newItem(2, 0) {
		t.Errorf("%+v", v)
	}
	if _, ok, err := c.TryGet(); ok || err != nil {
		t.Errorf("it is told again: %t, %v", ok, err)
	}
	if err := q.Close(ctx); err != nil {
		t.Error(err)
	}
	for range 2 {
		if _, err := c.Get(ctx); !errors.Is(err, e) {
			t.Errorf("the end: %v", err)
		}
	}
	if _, err := queue.Dial[item](ctx, p, name); !errors.Is(err, vmmc.ErrNoMem) {
		t.Errorf("a third producer: %v", err)
	}
	// Another producer in its place.
	if !c.Replace(e) || c.Replace(e) || c.Replace(&queue.LostError{}) {
		t.Error("the lost producer is replaced never, or twice")
	}
	if _, ok, err := c.TryGet(); ok || err != nil {
		t.Errorf("before it comes: %t, %v", ok, err)
	}
	q = dial(t, p)
	put(t, q, newItem(1, 3))
	got.add(t, get(t, c))
	if err := q.Close(ctx); err != nil {
		t.Error(err)
	}
	if _, err := c.Get(ctx); !errors.Is(err, queue.ErrEnd) {
		t.Errorf("the end: %v", err)
	}
	if err := lost.Close(ctx); !errors.Is(err, vmmc.ErrClosed) {
		t.Errorf("the close of the lost one: %v", err)
	}
}

// A loss is told while other producers keep values coming.
func TestLostBesideOthers(t *testing.T) {
	nodes, c := ways[0].start(t, queue.Producers(2))
	lost, q := dial(t, nodes[0].Open(t)), dial(t, nodes[0].Open(t))
	if err := lost.Process().Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the consumer knows", c.SomeLaneOver)
	var e *queue.LostError
	for i := range 10 {
		put(t, q, newItem(2, uint32(2*i)), newItem(2, uint32(2*i+1))) // there is always a value
		if _, err := c.Get(within(t)); errors.As(err, &e) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
	t.Error("no get tells of the loss")
}

// A loss that no get has told cannot be replaced.
func TestReplaceUntold(t *testing.T) {
	nodes, c := ways[0].start(t, queue.Producers(2))
	ended, stop := context.WithCancel(within(t))
	stop()
	for range 2 { // closes that are given up before the values are taken
		q := dial(t, nodes[0].Open(t))
		if err := q.Process().Close(); err != nil {
			t.Fatal(err)
		}
		if err := q.Close(ended); err == nil {
			t.Error("a close without a process")
		}
	}
	eventually(t, "the consumer learns of the ends", c.LanesOver)
	var told, untold *queue.LostError
	if _, err := c.Get(within(t)); !errors.As(err, &told) {
		t.Fatal(err)
	}
	if c.Replace(&queue.LostError{}) {
		t.Error("a loss of no queue is replaced")
	}
	if _, err := c.Get(within(t)); !errors.As(err, &untold) || untold == told {
		t.Fatal(err)
	}
	for _, e := range []*queue.LostError{untold, told} {
		if !c.Replace(e) {
			t.Errorf("%v is not replaced", e)
		}
	}
}

// A Dial that is given up at its last step takes no place.
func TestDialGivenUpTakesNoPlace(t *testing.T) {
	nodes, c := ways[2].start(t, queue.Producers(1))
	p := nodes[1].Open(t)
	ctx, cancel := context.WithCancel(within(t))
	steps.On(t, func(s string) {
		if s == "dial.entered" {
			nodes[0].Delay(20 * time.Millisecond) // otherwise the answer could come before the look
			cancel()
		}
	})
	if _, err := queue.Dial[item](ctx, p, name); !errors.Is(err, vmmc.ErrCanceled) {
		t.Fatalf("%v", err)
	}
	nodes[0].Heal()
	eventually(t, "the consumer learns of the end", c.LanesOver)
	if _, ok, err := c.TryGet(); ok || err != nil {
		t.Errorf("%t, %v", ok, err)
	}
	q := dial(t, p)
	if err := q.Close(within(t)); err != nil {
		t.Error(err)
	}
	if _, err := c.Get(within(t)); !errors.Is(err, queue.ErrEnd) {
		t.Error(err)
	}
}

// A dialler that is killed after its lane was made, and before it has joined, takes no place.
func TestDiallerKilledTakesNoPlace(t *testing.T) {
	for _, w := range deathWays {
		t.Run(w.name, func(t *testing.T) {
			nodes, c := w.start(t, queue.Producers(1))
			last := nodes[len(nodes)-1]
			args := []string{name, "7", "5", "dial.entered", "1", "/nonexistent/file"}
			killed := vmmctest.Child(t, last, "producer", args...)
			if s := killed.Line(); s != "dial.entered" {
				t.Fatal(s)
			}
			if _, err := queue.Dial[item](within(t), last.Open(t), name); !errors.Is(err, vmmc.ErrNoMem) {
				t.Errorf("a second producer: %v", err)
			}
			killed.Kill()
			eventually(t, "the consumer learns of the end", c.LanesOver)
			q := dial(t, last.Open(t)) // though no get has dropped the lane
			put(t, q, newItem(1, 0))
			if v := get(t, c); v != newItem(1, 0) {
				t.Errorf("%+v", v)
			}
			closed := make(chan error, 1)
			go func() { closed <- q.Close(within(t)) }()
			if _, err := c.Get(within(t)); !errors.Is(err, queue.ErrEnd) {
				t.Error(err)
			}
			if err := <-closed; err != nil {
				t.Error(err)
			}
		})
	}
}

// A producer that marks an end with another number of values than it has put is a lost one.
func TestFalseEnd(t *testing.T) {
	nodes, c := ways[0].start(t, queue.Producers(1))
	q := dial(t, nodes[0].Open(t))
	put(t, q, items(1, 0, 2)...)
	if err := q.Lane().Send(within(t), []byte{3, 0, 0, 0, 2, 0, 0, 0}, 16); err != nil {
		t.Fatal(err)
	}
	got := tally{}
	got.add(t, get(t, c), get(t, c))
	var e *queue.LostError
	if _, err := c.Get(within(t)); !errors.As(err, &e) || e.Values != 2 {
		t.Errorf("%v", err)
	}
	eventually(t, "puts fail", func() bool {
		_, err := q.TryPut(newItem(1, 2))
		if err != nil && !errors.Is(err, vmmc.ErrRevoked) {
			t.Errorf("a put: %v", err)
		}
		return err != nil
	})
}

// A close whose link is lost before the end mark has arrived fails, though all values were taken:
// the consumer takes the producer for a lost one.
func TestCloseOverALostLink(t *testing.T) {
	for _, at := range []string{"close.unmarked", "close.fence"} {
		t.Run(at, func(t *testing.T) {
			nodes, c := ways[2].start(t, queue.Producers(1))
			q := dial(t, nodes[1].Open(t, vmmc.WithResume(0)))
			put(t, q, items(1, 0, 3)...)
			got := tally{}
			got.add(t, get(t, c), get(t, c), get(t, c))
			eventually(t, "the producer learns that all are taken", func() bool { return q.Pending() == 0 })
			steps.On(t, func(s string) {
				if s == "close.unmarked" {
					nodes[0].Delay(bound) // the mark does not arrive
				}
				if s == at {
					nodes[0].Cut()
					nodes[0].Heal() // what was in flight is lost
				}
			})
			if err := q.Close(within(t)); !errors.Is(err, vmmc.ErrPeerGone) {
				t.Errorf("the close: %v", err)
			}
			var lost *queue.LostError
			if _, err := c.Get(within(t)); !errors.As(err, &lost) || lost.Values != 3 {
				t.Errorf("the get: %v", err)
			}
		})
	}
}

// A consumer that gives a producer up before it has the end mark revokes its lane, as one that is
// closed does. The producer is lost then, so its Close does not succeed.
func TestCloseOfALaneThatWasGivenUp(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes, c := w.start(t, queue.Producers(1))
			q := dial(t, nodes[len(nodes)-1].Open(t))
			put(t, q, items(1, 0, 3)...)
			got := tally{}
			got.add(t, get(t, c), get(t, c), get(t, c))
			eventually(t, "the producer learns that all are taken", func() bool { return q.Pending() == 0 })
			c.GiveUp()
			var lost *queue.LostError
			if _, err := c.Get(within(t)); !errors.As(err, &lost) || lost.Values != 3 {
				t.Errorf("the get: %v", err)
			}
			eventually(t, "the producer learns of the end", func() bool { return q.Lane().Err() != nil })
			if err := q.Close(within(t)); !errors.Is(err, vmmc.ErrRevoked) {
				t.Errorf("the close: %v", err)
			}
		})
	}
}

// If the consumer was closed when all was taken, a Close without an end mark succeeds.
func TestCloseOfAQueueThatWasClosed(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes, c := w.start(t, queue.Producers(1))
			q := dial(t, nodes[len(nodes)-1].Open(t))
			put(t, q, items(1, 0, 3)...)
			got := tally{}
			got.add(t, get(t, c), get(t, c), get(t, c))
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			eventually(t, "the producer learns of the end", func() bool { return q.Lane().Err() != nil })
			if err := q.Close(within(t)); err != nil {
				t.Errorf("the close: %v", err)
			}
		})
	}
}

// If the consumer was killed when all was taken, a Close without an end mark fails: it does not know
// that the queue's end was reached.
func TestCloseOfAQueueWhoseConsumerWasKilled(t *testing.T) {
	for _, w := range deathWays {
		t.Run(w.name, func(t *testing.T) {
			nodes := vmmctest.Nodes(t, w.nodes)
			child := vmmctest.Child(t, nodes[0], "consumer", name, "no step", "1", "/nonexistent/file", "1")
			q := dial(t, nodes[len(nodes)-1].Open(t))
			put(t, q, items(1, 0, 3)...)
			eventually(t, "the producer learns that all are taken", func() bool { return q.Pending() == 0 })
			child.Kill()
			eventually(t, "the producer learns of the death", func() bool { return q.Lane().Err() != nil })
			if err := q.Close(within(t)); !errors.Is(err, vmmc.ErrPeerGone) {
				t.Errorf("the close: %v", err)
			}
		})
	}
}

// Diallers that end before they have joined cost memory no longer than until the next one dials,
// though no get is called.
func TestAbandonedLanesAreDropped(t *testing.T) {
	const diallers = 5
	nodes, c := ways[0].start(t, queue.Producers(2))
	for range diallers {
		p := nodes[0].Open(t)
		steps.On(t, func(s string) {
			if s == "dial.entered" {
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			}
		})
		if _, err := queue.Dial[item](within(t), p, name); err == nil {
			t.Error("a process that was closed has dialled")
		}
		eventually(t, "the consumer learns of the end", c.LanesOver)
	}
	eventually(t, "no lane is left", func() bool { return c.Lanes() == 0 })
}

// The memory of a producer that has been closed or has died is freed though no get is called, also
// where another one is there. If it has left values, that is when the last one is taken, and if it was
// lost from a queue that ends, when a get has told.
func TestLanesOfEndedProducersAreDropped(t *testing.T) {
	for _, w := range ways {
		for _, ends := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/ends=%t", w.name, ends), func(t *testing.T) {
				var opts []queue.Option
				if ends {
					opts = append(opts, queue.Producers(2))
				}
				nodes, c := w.start(t, opts...)
				last := nodes[len(nodes)-1]
				closes, dies := dial(t, last.Open(t)), dial(t, last.Open(t))
				put(t, closes, items(1, 0, 3)...)
				got := tally{}
				got.add(t, get(t, c), get(t, c), get(t, c))
				if err := closes.Close(within(t)); err != nil {
					t.Error(err)
				}
				eventually(t, "the closed producer's lane is dropped", func() bool { return c.Lanes() == 1 })
				put(t, dies, items(2, 0, 2)...)
				eventually(t, "the values arrive", func() bool { return c.Values() == 2 })
				if err := dies.Process().Close(); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the consumer learns of the end", c.LanesOver)
				got.add(t, get(t, c))
				if n := c.Lanes(); n != 1 {
					t.Errorf("%d lanes, though a value is left", n)
				}
				got.add(t, get(t, c))
				var lost *queue.LostError
				if ends {
					if _, err := c.Get(within(t)); !errors.As(err, &lost) {
						t.Errorf("the get behind the last value: %v", err)
					}
				}
				eventually(t, "the dead producer's lane is dropped", func() bool { return c.Lanes() == 0 })
			})
		}
	}
}

// A lane whose producer ends while a get is under way, and after the queue has ended, is dropped.
func TestLaneOverBesideAGet(t *testing.T) {
	nodes, c := ways[0].start(t, queue.Producers(1))
	q := dial(t, nodes[0].Open(t))
	closed, ctx := make(chan error, 1), within(t)
	var once sync.Once
	steps.On(t, func(s string) {
		if s == "close.fence" { // the mark is there: the queue ends before the producer's process does
			once.Do(func() {
				if _, err := c.Get(ctx); !errors.Is(err, queue.ErrEnd) {
					t.Errorf("the end: %v", err)
				}
				if n := c.Lanes(); n != 1 {
					t.Errorf("%d lanes", n)
				}
			})
		}
	})
	go func() { closed <- q.Close(ctx) }()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	eventually(t, "its lane is dropped", func() bool { return c.Lanes() == 0 })
}

// The bound on producers at a time changes nothing of how many there are in all, in either order.
func TestMaxProducersOfAQueueThatEnds(t *testing.T) {
	for about, opts := range map[string][]queue.Option{
		"before": {queue.MaxProducers(1), queue.Producers(2)},
		"behind": {queue.Producers(2), queue.MaxProducers(1)},
	} {
		t.Run(about, func(t *testing.T) {
			nodes, c := ways[0].start(t, opts...)
			p := nodes[0].Open(t)
			for range 2 {
				q := dial(t, p)
				if _, err := queue.Dial[item](within(t), p, name); !errors.Is(err, vmmc.ErrNoMem) {
					t.Errorf("a second producer at a time: %v", err)
				}
				if _, ok, err := c.TryGet(); ok || err != nil {
					t.Errorf("before the end: %t, %v", ok, err)
				}
				if err := q.Close(within(t)); err != nil {
					t.Error(err)
				}
				eventually(t, "its lane is dropped", func() bool {
					_, ok, err := c.TryGet()
					return !ok && c.Lanes() == 0 || errors.Is(err, queue.ErrEnd)
				})
			}
			if _, err := c.Get(within(t)); !errors.Is(err, queue.ErrEnd) {
				t.Errorf("the end: %v", err)
			}
		})
	}
	for _, opts := range [][]queue.Option{
		{queue.Producers(0)},
		{queue.Producers(2), queue.MaxProducers(0)},
	} {
		_, err := queue.Listen[item](within(t), vmmctest.Nodes(t, 1)[0].Open(t), name, opts...)
		if !errors.Is(err, vmmc.ErrBadArg) {
			t.Errorf("no producers: %v", err)
		}
	}
}
