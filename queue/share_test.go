package queue_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/call"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/queue"
	"github.com/vmmc-go/vmmc/view"
	"github.com/vmmc-go/vmmc/vmmctest"
)

const takersName = "n1/takers"

// takeAll is a child: step, how often, file. It takes all values, one at a time, and prints how many
// it has taken.
func takeAll(ctx context.Context, p *vmmc.Process, args ...string) error {
	steps.PauseAt(args[0], args[1], args[2])
	k, err := queue.DialTaker[item](ctx, p, takersName)
	if err != nil {
		return err
	}
	n := 0
	for v, err := range k.All(ctx) {
		if err != nil {
			return err
		}
		if v.Attempt != 1 {
			return fmt.Errorf("value %d was taken %d times", v.Value.N, v.Attempt)
		}
		n++
	}
	fmt.Println(n)
	return k.Close()
}

// share is a child: step, how often, file. It shares a queue of one producer that ends.
func share(ctx context.Context, p *vmmc.Process, args ...string) error {
	steps.PauseAt(args[0], args[1], args[2])
	c, err := queue.Listen[item](ctx, p, name, queue.Producers(1))
	if err != nil {
		return err
	}
	if _, err := queue.Share(ctx, c, takersName); err != nil {
		return err
	}
	<-ctx.Done() // never: the test kills it
	return nil
}

func newShared(t testing.TB, c *queue.Consumer[item], opts ...queue.ShareOption) *queue.Shared[item] {
	t.Helper()
	s, err := queue.Share(within(t), c, takersName, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func dialTaker(t testing.TB, p *vmmc.Process) *queue.Taker[item] {
	t.Helper()
	k, err := queue.DialTaker[item](within(t), p, takersName)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

// takes checks that the next values of a producer are taken, from one number on.
func takes(t testing.TB, k *queue.Taker[item], from uint32, numbers ...uint32) {
	t.Helper()
	for _, n := range numbers {
		v, err := k.Take(within(t))
		if err != nil {
			t.Fatal(err)
		}
		if v.Value != newItem(from, n) {
			t.Fatalf("value %d of producer %d, want %d of %d", v.Value.N, v.Value.From, n, from)
		}
	}
}

// All values of several producers are taken by several takers, each by one of them.
func TestShare(t *testing.T) {
	const producers, takers, values = 3, 4, 500
	for _, w := range deathWays {
		t.Run(w.name, func(t *testing.T) {
			nodes, c := w.start(t, queue.Producers(producers), queue.Slots(64))
			s := newShared(t, c)
			last := nodes[len(nodes)-1]
			var wg sync.WaitGroup
			for i := range producers {
				q := dial(t, last.Open(t))
				wg.Go(func() {
					_, err := q.PutAll(within(t), items(i, 0, values))
					if err := errors.Join(err, q.Close(within(t))); err != nil {
						t.Error(err)
					}
				})
			}
			var mu sync.Mutex
			seen := map[item]int{}
			for i := range takers {
				k := dialTaker(t, last.Open(t))
				wg.Go(func() {
					vs := make([]queue.Taken[item], 1+5*i)
					for {
						n, err := k.TakeSome(within(t), vs)
						if errors.Is(err, queue.ErrEnd) {
							return
						}
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						for _, v := range vs[:n] {
							if seen[v.Value]++; v.Attempt != 1 {
								t.Errorf("value %d of %d: attempt %d", v.Value.N, v.Value.From, v.Attempt)
							}
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			for i := range producers {
				for _, v := range items(i, 0, values) {
					if seen[v] != 1 {
						t.Errorf("value %d of producer %d was taken %d times", v.N, v.From, seen[v])
					}
				}
			}
			if n := s.Unfinished(); n != 0 || len(seen) != producers*values {
				t.Errorf("%d values are unfinished, of %d", n, len(seen))
			}
		})
	}
}

// takerSteps are where a taker is killed and stopped, and which value another taker gets first then.
var takerSteps = []struct {
	step    string
	nth     int
	least   uint32
	most    uint32
	attempt int // of that value
}{
	{"dial.requested", 1, 0, 0, 1},
	{"dial.joined", 1, 0, 0, 1},
	{"take.begins", 1, 0, 0, 1},
	{"take.begins", 3, 1, 1, 2},
	{"call.encoded", 3, 1, 1, 2},
	{"call.sent", 3, 1, 2, 2}, // the request may not have been looked at
	{"call.answered", 3, 2, 2, 2},
	{"take.taken", 3, 2, 2, 2},
}

// What a taker that is killed at any step has not finished goes to another one, and nothing that it
// has finished.
func TestTakerKilled(t *testing.T) {
	const values = 6
	for _, w := range deathWays {
		for i, s := range takerSteps {
			if testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue
			}
			t.Run(fmt.Sprint(w.name, "/", s.step, s.nth), func(t *testing.T) {
				nodes, c := w.start(t)
				sh := newShared(t, c)
				last := nodes[len(nodes)-1]
				put(t, dial(t, last.Open(t)), items(1, 0, values)...)
				child := vmmctest.Child(t, last, "taker", s.step, itoa(s.nth), "/nonexistent/file")
				if got := child.Line(); got != s.step {
					t.Fatal(got)
				}
				child.Kill()
				k := dialTaker(t, last.Open(t))
				eventually(t, "the death is known", func() bool { return sh.Takers() == 0 })
				v, err := k.Take(within(t))
				if err != nil {
					t.Fatal(err)
				}
				n := v.Value.N
				if n < s.least || n > s.most || v.Attempt != s.attempt {
					t.Errorf("value %d, attempt %d", n, v.Attempt)
				}
				for n++; n < values; n++ {
					takes(t, k, 1, n)
				}
			})
		}
	}
}

// A taker that is killed while it waits takes no value with it.
func TestTakerKilledWhileItWaits(t *testing.T) {
	for _, w := range deathWays {
		t.Run(w.name, func(t *testing.T) {
			nodes, c := w.start(t)
			sh := newShared(t, c)
			last := nodes[len(nodes)-1]
			q := dial(t, last.Open(t))
			child := vmmctest.Child(t, last, "taker", "call.sent", "1", os.DevNull)
			if got := child.Line(); got != "call.sent" {
				t.Fatal(got)
			}
			eventually(t, "it waits", func() bool { return sh.Waiters() == 1 })
			child.Kill()
			eventually(t, "the death is known", func() bool { return sh.Takers() == 0 })
			put(t, q, items(1, 0, 3)...)
			takes(t, dialTaker(t, last.Open(t)), 1, 0, 1, 2)
		})
	}
}

// A taker that is stopped at any step holds up no other one, and what it has taken is taken once.
func TestTakerStopped(t *testing.T) {
	const values = 20
	for _, w := range deathWays {
		for i, s := range takerSteps {
			if testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue
			}
			t.Run(fmt.Sprint(w.name, "/", s.step, s.nth), func(t *testing.T) {
				nodes, c := w.start(t, queue.Producers(1))
				newShared(t, c)
				last := nodes[len(nodes)-1]
				q := dial(t, last.Open(t))
				put(t, q, items(1, 0, values)...)
				file := filepath.Join(t.TempDir(), "continue")
				child := vmmctest.Child(t, last, "taker", s.step, itoa(s.nth), file)
				if got := child.Line(); got != s.step {
					t.Fatal(got)
				}
				child.Stop()
				k := dialTaker(t, last.Open(t))
				n := 0
				take := func() bool {
					v, err := k.Take(within(t))
					if err != nil && !errors.Is(err, queue.ErrEnd) {
						t.Fatal(err)
					}
					if err == nil {
						n++
						if v.Attempt != 1 {
							t.Errorf("value %d: attempt %d", v.Value.N, v.Attempt)
						}
					}
					return err == nil
				}
				for range values - s.nth { // the others are, or were, the child's
					take()
				}
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				child.Continue()
				if err := q.Close(within(t)); err != nil {
					t.Error(err)
				}
				for take() {
				}
				if got := child.Line(); got != itoa(values-n) {
					t.Errorf("%s values at the one taker, %d at the other", got, n)
				}
				if err := child.Wait(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// shareSteps are where the process that shares a queue is killed and stopped.
var shareSteps = []struct {
	step string
	nth  int
}{
	{"serve.seen", 2}, {"share.waits", 1}, {"share.got", 1}, {"share.given", 2}, {"share.finished", 3},
}

// If the process that shares a queue is killed at any step, no take waits on.
func TestSharerKilled(t *testing.T) {
	for _, w := range deathWays {
		for i, s := range shareSteps {
			if testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue
			}
			t.Run(w.name+"/"+s.step, func(t *testing.T) {
				nodes := vmmctest.Nodes(t, w.nodes)
				last := nodes[len(nodes)-1]
				child := vmmctest.Child(t, nodes[0], "sharer", s.step, itoa(s.nth), "/nonexistent/file")
				k, q := dialTaker(t, last.Open(t)), dial(t, last.Open(t))
				done := make(chan error, 1)
				go func() {
					for _, err := range k.All(within(t)) {
						if err != nil {
							done <- err
						}
					}
				}()
				go func() {
					_, _ = q.PutAll(within(t), items(1, 0, 4))
					_ = q.Close(within(t))
				}()
				if got := child.Line(); got != s.step {
					t.Fatal(got)
				}
				child.Kill()
				if err := <-done; !errors.Is(err, vmmc.ErrPeerGone) {
					t.Error(err)
				}
			})
		}
	}
}

// If it is stopped at any step and goes on, each value is taken once.
func TestSharerStopped(t *testing.T) {
	const values = 20
	for _, w := range deathWays {
		for i, s := range shareSteps {
			if testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue
			}
			t.Run(w.name+"/"+s.step, func(t *testing.T) {
				nodes := vmmctest.Nodes(t, w.nodes)
				last := nodes[len(nodes)-1]
				file := filepath.Join(t.TempDir(), "continue")
				child := vmmctest.Child(t, nodes[0], "sharer", s.step, itoa(s.nth), file)
				k, q := dialTaker(t, last.Open(t)), dial(t, last.Open(t))
				put := make(chan error, 1)
				go func() {
					_, err := q.PutAll(within(t), items(1, 0, values))
					put <- errors.Join(err, q.Close(within(t)))
				}()
				got, taken := tally{}, make(chan error, 1)
				go func() {
					var err error
					for v, e := range k.All(within(t)) {
						if err = e; err == nil {
							got.add(t, v.Value)
						}
					}
					taken <- err
				}()
				if got := child.Line(); got != s.step {
					t.Fatal(got)
				}
				child.Stop()
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				child.Continue()
				if err := errors.Join(<-taken, <-put); err != nil {
					t.Error(err)
				}
				if got[1] != values {
					t.Errorf("%d values", got[1])
				}
			})
		}
	}
}

// The queue has not ended while a taker has unfinished values, which another one may get.
func TestShareEnd(t *testing.T) {
	nodes, c := ways[0].start(t, queue.Producers(1))
	sh := newShared(t, c)
	q, p := dial(t, nodes[0].Open(t)), nodes[0].Open(t)
	a, err := queue.DialTaker[item](within(t), p, takersName)
	if err != nil {
		t.Fatal(err)
	}
	b := dialTaker(t, nodes[0].Open(t))
	put(t, q, items(1, 0, 2)...)
	closed := make(chan error, 1)
	go func() { closed <- q.Close(within(t)) }()
	takes(t, a, 1, 0)
	takes(t, b, 1, 1)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	ended := make(chan queue.Taken[item], 1)
	go func() {
		v, err := b.Take(within(t))
		if err != nil {
			t.Error(err)
		}
		ended <- v
	}()
	eventually(t, "the other take waits", func() bool { return sh.Waiters() == 1 })
	if err := p.Close(); err != nil { // a's
		t.Error(err)
	}
	if v := <-ended; v.Value != newItem(1, 0) || v.Attempt != 2 {
		t.Errorf("%+v", v)
	}
	for range 2 {
		if _, err := b.Take(within(t)); !errors.Is(err, queue.ErrEnd) {
			t.Error(err)
		}
	}
	if n := sh.Unfinished(); n != 0 {
		t.Errorf("%d values are unfinished", n)
	}
	_ = a.Close()
}

// A queue whose producer was lost ends with an error that is no end, unless another one replaces it.
func TestShareProducerLost(t *testing.T) {
	nodes, c := ways[0].start(t, queue.Producers(1))
	sh := newShared(t, c)
	p := nodes[0].Open(t)
	put(t, dial(t, p), newItem(1, 0))
	k := dialTaker(t, nodes[0].Open(t))
	takes(t, k, 1, 0)
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if _, err := k.Take(within(t)); !errors.Is(err, queue.ErrProducerLost) {
			t.Error(err)
		}
	}
	lost := sh.Lost()
	if len(lost) != 1 || lost[0].Values != 1 || !c.Replace(lost[0]) {
		t.Fatalf("%v", lost)
	}
	q := dial(t, nodes[0].Open(t))
	put(t, q, newItem(2, 0))
	takes(t, k, 2, 0)
	if err := q.Close(within(t)); err != nil {
		t.Error(err)
	}
	if _, err := k.Take(within(t)); !errors.Is(err, queue.ErrEnd) {
		t.Error(err)
	}
}

// A take that is given up takes no value, also if its answer is on its way.
func TestTakeGivenUp(t *testing.T) {
	for _, w := range deathWays {
		t.Run(w.name, func(t *testing.T) {
			nodes, c := w.start(t)
			sh := newShared(t, c)
			last := nodes[len(nodes)-1]
			q := dial(t, last.Open(t))
			a, b := dialTaker(t, last.Open(t)), dialTaker(t, last.Open(t))
			ctx, cancel := context.WithCancel(within(t))
			defer cancel()
			done := make(chan error, 1)
			go func() {
				_, err := a.Take(ctx)
				done <- err
			}()
			eventually(t, "the take waits", func() bool { return sh.Waiters() == 1 })
			cancel()
			if err := <-done; !errors.Is(err, vmmc.ErrCanceled) {
				t.Error(err)
			}
			eventually(t, "it is withdrawn", func() bool { return sh.Waiters() == 0 })
			for n := range uint32(20) { // the take may be answered, or withdrawn before or after
				ctx, cancel := context.WithCancel(within(t))
				steps.On(t, func(s string) {
					if s == "call.sent" {
						cancel()
					}
				})
				put(t, q, newItem(1, n))
				v, err := a.Take(ctx)
				cancel()
				steps.On(t, func(string) {})
				if err != nil && errors.Is(err, vmmc.ErrCanceled) {
					v, err = b.Take(within(t))
				}
				if want := newItem(1, n); err != nil || v.Value != want || v.Attempt != 1 {
					t.Fatalf("%+v, %v, want value %d", v, err, n)
				}
			}
		})
	}
}

// Takers and hosts with wrong types, options and names are refused.
func TestShareRefused(t *testing.T) {
	type other struct{ A, B uint32 }
	nodes, c := ways[0].start(t)
	newShared(t, c, queue.MaxTakers(1))
	p := nodes[0].Open(t)
	var layout *view.LayoutError
	if _, err := queue.DialTaker[other](within(t), p, takersName); !errors.As(err, &layout) {
		t.Error(err)
	}
	if _, err := queue.DialTaker[item](within(t), p, name); err == nil {
		t.Error("a queue that is not shared has takers")
	}
	eventually(t, "the refused one is forgotten", func() bool {
		k, err := queue.DialTaker[item](within(t), p, takersName)
		if err == nil {
			t.Cleanup(func() { _ = k.Close() })
		}
		return err == nil
	})
	if _, err := queue.DialTaker[item](within(t), p, takersName); !errors.Is(err, vmmc.ErrNoMem) {
		t.Error(err)
	}
	for _, o := range []queue.ShareOption{nil, queue.MaxTakers(0)} {
		if _, err := queue.Share(within(t), c, "n1/none", o); !errors.Is(err, vmmc.ErrBadArg) {
			t.Error(err)
		}
	}
	if _, err := queue.Share(within(t), c, takersName); err == nil {
		t.Error("a name is taken twice")
	}
	large, err := queue.Listen[[1025]uint32](within(t), p, "n1/large", queue.Slots(1))
	if err != nil {
		t.Fatal(err)
	}
	defer large.Close()
	if _, err := queue.Share(within(t), large, "n1/none"); !errors.Is(err, vmmc.ErrBadArg) {
		t.Error(err)
	}
}

// A false taker gets errors, and the others go on.
func TestFalseTaker(t *testing.T) {
	nodes, c := ways[0].start(t)
	newShared(t, c)
	q, k, bad := dial(t, nodes[0].Open(t)), dialTaker(t, nodes[0].Open(t)), dialTaker(t, nodes[0].Open(t))
	put(t, q, items(1, 0, 3)...)
	takes(t, k, 1, 0)
	for _, r := range [][3]uint64{{1, 1, 1}, {1, 1 << 63, 1}, {1, 0, 17}, {1, 0, 1 << 63}} {
		var remote *call.RemoteError
		if err := bad.Request(within(t), r[0], r[1], r[2]); !errors.As(err, &remote) {
			t.Errorf("%v: %v", r, err)
		}
	}
	for range 100 { // an old request, and one that drops the answers
		if err := bad.Request(within(t), 0, 0, 16); err != nil {
			t.Error(err)
		}
	}
	takes(t, k, 1, 1, 2)
}

// Takes end when the sharing does, and when the consumer is closed.
func TestShareClosed(t *testing.T) {
	for _, consumer := range []bool{false, true} {
		t.Run(fmt.Sprint("consumer ", consumer), func(t *testing.T) {
			nodes, c := ways[0].start(t)
			sh, k := newShared(t, c), dialTaker(t, nodes[0].Open(t))
			put(t, dial(t, nodes[0].Open(t)), items(1, 0, 2)...)
			takes(t, k, 1, 0, 1)
			done := make(chan error, 1)
			go func() {
				_, err := k.Take(within(t))
				done <- err
			}()
			eventually(t, "the take waits", func() bool { return sh.Waiters() == 1 })
			end := sh.Close
			if consumer {
				end = c.Close
			}
			if err := end(); err != nil {
				t.Error(err)
			}
			if err := <-done; !errors.Is(err, vmmc.ErrRevoked) {
				t.Error(err)
			}
			if err := k.Close(); err != nil {
				t.Error(err)
			}
			if _, err := k.Take(within(t)); !errors.Is(err, vmmc.ErrClosed) {
				t.Error(err)
			}
		})
	}
}

// Values that takers had and have not finished when the sharing ends are the consumer's again: a
// get, also one that waits, and the takers of another sharing get them, in their order and before
// all others.
func TestShareClosedReturnsValues(t *testing.T) {
	nodes, c := ways[0].start(t)
	sh, q := newShared(t, c), dial(t, nodes[0].Open(t))
	a, b := dialTaker(t, nodes[0].Open(t)), dialTaker(t, nodes[0].Open(t))
	gone := dialTaker(t, nodes[0].Open(t))
	put(t, q, items(1, 0, 9)...)
	for i, k := range []*queue.Taker[item]{gone, a, b} {
		vs := make([]queue.Taken[item], 2)
		if n, err := k.TakeSome(within(t), vs); n != 2 || err != nil || vs[0].Value.N != uint32(2*i) {
			t.Fatal(n, err, vs)
		}
	}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the taker is gone", func() bool { return sh.Takers() == 2 })
	if n := sh.Unfinished(); n != 6 {
		t.Errorf("%d values are unfinished", n)
	}
	if err := sh.Close(); err != nil {
		t.Fatal(err)
	}
	if n := sh.Unfinished(); n != 0 {
		t.Errorf("the sharing that is closed has %d unfinished values", n)
	}
	if v := get(t, c); v != newItem(1, 0) {
		t.Errorf("value %d", v.N)
	}
	if v, ok, err := c.TryGet(); v != newItem(1, 1) || !ok || err != nil {
		t.Error(v.N, ok, err)
	}
	sh = newShared(t, c)
	k := dialTaker(t, nodes[0].Open(t))
	for n := uint32(2); n < 9; n++ {
		v, err := k.Take(within(t))
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]int{true: 2, false: 1}[n < 6]; v.Value != newItem(1, n) || v.Attempt != want {
			t.Errorf("value %d, attempt %d, want value %d, attempt %d", v.Value.N, v.Attempt, n, want)
		}
	}
	asleep := make(chan struct{}, 1)
	steps.On(t, func(s string) {
		if s == "get.sleeps" {
			select {
			case asleep <- struct{}{}:
			default:
			}
		}
	})
	got := make(chan item, 1)
	go func() {
		v, err := c.Get(within(t))
		if err != nil {
			t.Error(err)
		}
		got <- v
	}()
	<-asleep
	if err := sh.Close(); err != nil {
		t.Fatal(err)
	}
	if v := <-got; v != newItem(1, 8) {
		t.Errorf("value %d", v.N)
	}
}

// Two sharings of one queue give their values back in the order in which these were in the queue,
// whichever is closed first, and whichever had which.
func TestSharesClosedReturnValuesInOrder(t *testing.T) {
	const otherName = "n1/other takers"
	for first := range 2 {
		t.Run(fmt.Sprint("sharing ", first, " first"), func(t *testing.T) {
			nodes, c := ways[0].start(t)
			other, err := queue.Share(within(t), c, otherName)
			if err != nil {
				t.Fatal(err)
			}
			shs := []*queue.Shared[item]{newShared(t, c), other}
			q := dial(t, nodes[0].Open(t))
			const n = 12
			put(t, q, items(1, 0, n)...)
			// 4 values are returned once, so that a sharing also gives back what it has got back.
			for round := range 2 {
				var ks []*queue.Taker[item]
				for i := range n / 2 { // by turns
					k, err := queue.DialTaker[item](within(t), nodes[0].Open(t), []string{takersName, otherName}[i%2])
					if err != nil {
						t.Fatal(err)
					}
					ks = append(ks, k)
					if v, err := k.Take(within(t)); err != nil || v.Value != newItem(1, uint32(i)) {
						t.Fatalf("round %d: value %d, %v, want %d", round, v.Value.N, err, i)
					}
				}
				for _, k := range []int{first, 1 - first} {
					if err := shs[k].Close(); err != nil {
						t.Fatal(err)
					}
				}
				for _, k := range ks {
					_ = k.Close()
				}
				if round == 0 {
					if shs[1], err = queue.Share(within(t), c, otherName); err != nil {
						t.Fatal(err)
					}
					shs[0] = newShared(t, c)
				}
			}
			for i := range uint32(n) {
				if v := get(t, c); v != newItem(1, i) {
					t.Fatalf("value %d, want %d", v.N, i)
				}
			}
			if err := q.Close(within(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// The consumer is told of a producer that was lost if the sharing that has found it is just closing.
func TestShareClosedTellsOfALostProducer(t *testing.T) {
	nodes, c := ways[0].start(t, queue.Producers(2))
	sh := newShared(t, c)
	p := nodes[0].Open(t)
	put(t, dial(t, p), newItem(1, 0))
	k := dialTaker(t, nodes[0].Open(t))
	takes(t, k, 1, 0)
	lives := dial(t, nodes[0].Open(t)) // without it the queue would end with the loss
	var once sync.Once
	closed := make(chan error, 1)
	steps.On(t, func(s string) {
		if s == "share.got" && c.Told() != nil {
			once.Do(func() {
				go func() { closed <- sh.Close() }()
				<-sh.Ended()
			})
		}
	})
	go func() { _, _ = k.Take(within(t)) }() // it ends with the sharing
	eventually(t, "the take waits", func() bool { return sh.Waiters() == 1 })
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if n := len(sh.Lost()); n != 0 {
		t.Errorf("the sharing tells of %d losses", n)
	}
	var lost *queue.LostError
	if _, _, err := c.TryGet(); !errors.As(err, &lost) || lost.Values != 1 {
		t.Fatalf("the consumer's get: %v", err)
	}
	if _, ok, err := c.TryGet(); ok || err != nil {
		t.Errorf("the get after it: %v", err)
	}
	if !c.Replace(lost) {
		t.Error("the loss cannot be replaced")
	}
	if err := lives.Close(within(t)); err != nil {
		t.Error(err)
	}
}

// A queue has not ended for its consumer while a sharing that is closed has given values back.
func TestShareClosedAtTheEnd(t *testing.T) {
	nodes, c := ways[0].start(t, queue.Producers(1))
	sh, q := newShared(t, c), dial(t, nodes[0].Open(t))
	put(t, q, newItem(1, 0))
	k := dialTaker(t, nodes[0].Open(t))
	takes(t, k, 1, 0)
	if err := q.Close(within(t)); err != nil {
		t.Error(err)
	}
	other := dialTaker(t, nodes[0].Open(t))
	done := make(chan error, 1)
	go func() {
		_, err := other.Take(within(t))
		done <- err
	}()
	eventually(t, "the take waits", func() bool { return sh.Waiters() == 1 })
	if err := sh.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, vmmc.ErrRevoked) {
		t.Error(err)
	}
	if v := get(t, c); v != newItem(1, 0) {
		t.Errorf("value %d", v.N)
	}
	if _, err := c.Get(within(t)); !errors.Is(err, queue.ErrEnd) {
		t.Error(err)
	}
}

// A take that waits while others have unfinished values gets those of a producer that replaces a lost
// one, and is not told that a producer was lost.
func TestShareProducerReplacedBesideATake(t *testing.T) {
	nodes, c := ways[0].start(t, queue.Producers(1))
	sh := newShared(t, c)
	p := nodes[0].Open(t)
	put(t, dial(t, p), items(1, 0, 2)...)
	a, b := dialTaker(t, nodes[0].Open(t)), dialTaker(t, nodes[0].Open(t))
	takes(t, a, 1, 0)
	takes(t, b, 1, 1)
	told := make(chan struct{}, 1)
	lost := 0
	steps.On(t, func(s string) {
		if s == "share.lost" {
			if lost++; lost == 2 { // the second time, no value can come
				close(told)
			}
		}
	})
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	got := make(chan queue.Taken[item], 1)
	go func() {
		v, err := b.Take(within(t))
		if err != nil {
			t.Error(err)
		}
		got <- v
	}()
	<-told
	eventually(t, "the loss is told", func() bool { return len(sh.Lost()) == 1 })
	if !c.Replace(sh.Lost()[0]) {
		t.Fatal("the producer is not replaced")
	}
	put(t, dial(t, nodes[0].Open(t)), newItem(2, 0))
	if v := <-got; v.Value != newItem(2, 0) || v.Attempt != 1 {
		t.Errorf("value %d of %d, attempt %d", v.Value.N, v.Value.From, v.Attempt)
	}
}

// When the last take that waits is given up, no value is taken for it: the process that shares the
// queue gets the next one.
func TestGetAfterATakeIsGivenUp(t *testing.T) {
	nodes, c := ways[0].start(t)
	sh, q := newShared(t, c), dial(t, nodes[0].Open(t))
	k := dialTaker(t, nodes[0].Open(t))
	asleep := make(chan struct{}, 16)
	steps.On(t, func(s string) {
		if s == "get.sleeps" {
			asleep <- struct{}{}
		}
	})
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := k.Take(ctx)
		done <- err
	}()
	<-asleep
	cancel()
	if err := <-done; !errors.Is(err, vmmc.ErrCanceled) {
		t.Error(err)
	}
	eventually(t, "the take is withdrawn", func() bool { return sh.Waiters() == 0 })
	steps.Off()
	put(t, q, newItem(1, 0))
	if v := get(t, c); v != newItem(1, 0) {
		t.Errorf("value %d", v.N)
	}
	put(t, q, newItem(1, 1))
	takes(t, k, 1, 1)
}

// On one node a take of a value that is there allocates nothing, nor does its host.
func TestShareAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	nodes, c := ways[0].start(t)
	newShared(t, c)
	q, k := dial(t, nodes[0].Open(t)), dialTaker(t, nodes[0].Open(t))
	ctx := within(t)
	vs := make([]queue.Taken[item], 16)
	take := func() {
		if ok, err := q.TryPut(newItem(1, 0)); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if n, err := k.TakeSome(ctx, vs); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	for range 1000 {
		take()
	}
	if n := testing.AllocsPerRun(2000, take); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestShareModel compares a shared queue on one node with slices.
func TestShareModel(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	host, producer := node.Open(t), node.Open(t)
	open := func(t *rapid.T) *vmmc.Process {
		p, err := vmmc.Open(t.Context(), vmmc.WithSocket(node.Socket()))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	rapid.Check(t, func(t *rapid.T) {
		c, err := queue.Listen[item](t.Context(), host, "shared", queue.Slots(256))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		m := &shareModel{open: open, c: c}
		m.share(t)
		defer func() { _ = m.s.Close() }()
		if m.q, err = queue.Dial[item](t.Context(), producer, "shared"); err != nil {
			t.Fatal(err)
		}
		defer m.q.Close(canceled())
		for range 2 {
			m.dial(t)
		}
		defer m.leave()
		t.Repeat(map[string]func(*rapid.T){
			"put": m.put, "take": m.take, "give up": m.giveUp, "finish": m.finish, "die": m.die,
			"dial": m.dial, "close": m.close, "": m.check,
		})
	})
}

func canceled() context.Context {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	return ctx
}

// shareTaker is what the model knows of a taker.
type shareTaker struct {
	p     *vmmc.Process
	k     *queue.Taker[item]
	calls bool // reports whether it has called
	has   []queue.Taken[item]
}

type shareModel struct {
	open   func(*rapid.T) *vmmc.Process
	c      *queue.Consumer[item]
	s      *queue.Shared[item]
	q      *queue.Producer[item]
	put1   int
	next   []queue.Taken[item] // in the order in which they are to be taken
	takers []*shareTaker
}

func (m *shareModel) draw(t *rapid.T) (int, *shareTaker) {
	if len(m.takers) == 0 {
		t.Skip("no taker lives")
	}
	i := rapid.IntRange(0, len(m.takers)-1).Draw(t, "taker")
	return i, m.takers[i]
}

func (m *shareModel) dial(t *rapid.T) {
	if len(m.takers) == 4 {
		t.Skip("there are enough")
	}
	k := &shareTaker{p: m.open(t)}
	var err error
	if k.k, err = queue.DialTaker[item](t.Context(), k.p, "shared takers"); err != nil {
		t.Fatal(err)
	}
	m.takers = append(m.takers, k)
}

func (m *shareModel) put(t *rapid.T) {
	n := rapid.IntRange(1, 20).Draw(t, "values")
	if len(m.next)+n > 200 {
		t.Skip("there is no room")
	}
	vs := items(1, m.put1, n)
	if _, err := m.q.PutAll(t.Context(), vs); err != nil {
		t.Fatal(err)
	}
	for _, v := range vs {
		m.next = append(m.next, queue.Taken[item]{Value: v})
	}
	m.put1 += n
}

func (m *shareModel) take(t *rapid.T) {
	_, k := m.draw(t)
	if len(m.next) == 0 {
		t.Skip("it would wait")
	}
	vs := make([]queue.Taken[item], rapid.IntRange(1, 20).Draw(t, "room"))
	n, err := k.k.TakeSome(t.Context(), vs)
	k.calls = true
	if err != nil || n < 1 || n > min(len(vs), len(m.next), 16) {
		t.Fatalf("%d values, %v", n, err)
	}
	k.has = nil
	for i, v := range vs[:n] {
		want := m.next[i]
		if want.Attempt++; v != want {
			t.Fatalf("value %d, attempt %d, want %d, %d",
				v.Value.N, v.Attempt, want.Value.N, want.Attempt)
		}
		k.has = append(k.has, v)
	}
	m.next = m.next[n:]
}

// giveUp begins a take and gives it up at a step. It may have succeeded before.
func (m *shareModel) giveUp(t *rapid.T) {
	_, k := m.draw(t)
	at := rapid.SampledFrom([]string{"call.encoded", "call.sent", "share.waits", "call.answered"})
	stop := at.Draw(t, "step")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	act := func(s string) {
		if s == stop {
			cancel()
		}
	}
	steps.On(t, act)
	defer steps.Off()
	if stop == "call.answered" && len(m.next) == 0 || stop == "share.waits" && len(m.next) > 0 {
		return // it would not come there
	}
	v, err := k.k.Take(ctx)
	k.calls, k.has = true, nil
	if err == nil {
		want := m.next[0]
		if want.Attempt++; v != want {
			t.Fatalf("value %d, want %d", v.Value.N, want.Value.N)
		}
		k.has, m.next = []queue.Taken[item]{v}, m.next[1:]
	} else if !errors.Is(err, vmmc.ErrCanceled) {
		t.Fatal(err)
	}
	steps.Off()
	if err != nil { // the next call waits until the take is withdrawn
		m.finishOf(t, k)
	}
}

func (m *shareModel) finish(t *rapid.T) {
	_, k := m.draw(t)
	m.finishOf(t, k)
}

func (m *shareModel) finishOf(t *rapid.T, k *shareTaker) {
	if err := k.k.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.calls, k.has = true, nil
}

// die ends a taker's process, or the taker.
func (m *shareModel) die(t *rapid.T) {
	i, k := m.draw(t)
	var err error
	if rapid.Bool().Draw(t, "process") {
		err = k.p.Close()
	} else {
		err = k.k.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	m.giveBack(k.has)
	m.takers = append(m.takers[:i], m.takers[i+1:]...)
	alive := 0
	for _, k := range m.takers {
		if k.calls {
			alive++
		}
	}
	for ctx := t.Context(); m.s.Takers() != alive; {
		if ctx.Err() != nil {
			t.Fatal("the death is not known")
		}
	}
	_ = errors.Join(k.k.Close(), k.p.Close())
}

// giveBack puts values that a taker has not finished to their places, which their numbers are.
func (m *shareModel) giveBack(vs []queue.Taken[item]) {
	m.next = append(m.next, vs...)
	slices.SortFunc(m.next, func(a, b queue.Taken[item]) int { return cmp.Compare(a.Value.N, b.Value.N) })
}

func (m *shareModel) share(t *rapid.T) {
	var err error
	if m.s, err = queue.Share(t.Context(), m.c, "shared takers"); err != nil {
		t.Fatal(err)
	}
}

// close ends the sharing, takes some values by gets, and shares the queue again.
func (m *shareModel) close(t *rapid.T) {
	if err := m.s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := m.s.Unfinished(); n != 0 {
		t.Fatalf("%d values are unfinished", n)
	}
	for _, k := range m.takers {
		m.giveBack(k.has)
	}
	m.leave()
	for n := rapid.IntRange(0, min(len(m.next), 5)).Draw(t, "gets"); n > 0; n-- {
		v, ok, err := m.c.TryGet()
		if want := m.next[0].Value; !ok || err != nil || v != want {
			t.Fatalf("value %d, %t, %v, want value %d", v.N, ok, err, want.N)
		}
		m.next = m.next[1:]
	}
	m.share(t)
	for range 2 {
		m.dial(t)
	}
}

func (m *shareModel) check(t *rapid.T) {
	n := 0
	for _, k := range m.takers {
		n += len(k.has)
	}
	if got := m.s.Unfinished(); got < n || got > n+len(m.next) {
		t.Fatalf("%d values are unfinished, %d at takers", got, n)
	}
}

func (m *shareModel) leave() {
	for _, k := range m.takers {
		_ = errors.Join(k.k.Close(), k.p.Close())
	}
	m.takers = nil
}
