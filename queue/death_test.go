package queue_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/queue"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// producerSteps are where a producer of a queue of 8 slots is killed and stopped, how often it has
// been there, how many values it is to put, and how many it has put.
var producerSteps = []struct {
	step       string
	nth, n, at int
}{
	{"dial.found", 1, 5, 0},
	{"dial.exported", 1, 5, 0},
	{"dial.requested", 1, 5, 0},
	{"dial.answered", 1, 5, 0},
	{"dial.joined", 1, 5, 0},
	{"put.room", 2, 5, 1},
	{"put.encoded", 2, 5, 1},
	{"put.sent", 2, 5, 3},
	{"put.wait", 1, 20, 8},
	{"put.queued", 2, 5, 3},
	{"close.wait", 1, 5, 5},
}

var deathWays = []way{ways[0], ways[2]}

// A producer that is killed at any step leaves a prefix of its values, and others go on.
func TestProducerKilled(t *testing.T) {
	for _, w := range deathWays {
		for i, s := range producerSteps {
			if s.step == "put.queued" && w.nodes == 1 || testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue // in memory no value is queued
			}
			t.Run(w.name+"/"+s.step, func(t *testing.T) {
				nodes, c := w.start(t, queue.Slots(8))
				last := nodes[len(nodes)-1]
				q := dial(t, last.Open(t))
				args := []string{name, "7", itoa(s.n), s.step, itoa(s.nth), "/nonexistent/file"}
				killed := vmmctest.Child(t, last, "producer", args...)
				if got := killed.Line(); got != s.step {
					t.Fatal(got)
				}
				arrived := s.step == "put.wait" || s.step == "close.wait"
				if arrived {
					eventually(t, "the values arrive", func() bool { return c.Values() == s.at })
				}
				killed.Kill()
				put(t, q, newItem(1, 0))
				got := tally{}
				for got[1] < 1 {
					got.add(t, get(t, c))
				}
				rest := make(chan item, 1)
				ctx := within(t)
				go func() {
					defer close(rest)
					for v, err := range c.All(ctx) { // it drops the dead producer
						if err != nil {
							return
						}
						rest <- v
						if v.From == 1 {
							return
						}
					}
				}()
				for (c.Requests() > 0 || c.Lanes() > 1) && ctx.Err() == nil {
					select {
					case v := <-rest:
						got.add(t, v)
					case <-time.After(time.Millisecond):
					}
				}
				put(t, q, newItem(1, 1))
				for v := range rest {
					got.add(t, v)
				}
				if got[1] != 2 {
					t.Errorf("%d values of the producer that lives", got[1])
				}
				if n := int(got[7]); n > s.at || (arrived || w.nodes == 1) && n != s.at {
					t.Errorf("%d values of the dead producer, want %d", n, s.at)
				}
				if err := q.Close(ctx); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A producer that is stopped at any step holds up no other process, and goes on where it was.
func TestProducerStopped(t *testing.T) {
	for _, w := range deathWays {
		for i, s := range producerSteps {
			if s.step == "put.queued" && w.nodes == 1 || testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue // in memory no value is queued
			}
			t.Run(w.name+"/"+s.step, func(t *testing.T) {
				nodes, c := w.start(t, queue.Slots(8))
				last := nodes[len(nodes)-1]
				q := dial(t, last.Open(t))
				file := filepath.Join(t.TempDir(), "continue")
				child := vmmctest.Child(t, last, "producer", name, "7", itoa(s.n), s.step, itoa(s.nth), file)
				if got := child.Line(); got != s.step {
					t.Fatal(got)
				}
				child.Stop()
				got := tally{}
				for k := range 20 {
					put(t, q, newItem(1, uint32(k)))
					for int(got[1]) <= k {
						got.add(t, get(t, c))
					}
				}
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				child.Continue()
				for int(got[7]) < s.n {
					got.add(t, get(t, c))
				}
				if err := child.Wait(); err != nil {
					t.Error(err)
				}
				if err := q.Close(within(t)); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// consumerSteps are where a consumer is killed and stopped.
var consumerSteps = []struct {
	step string
	nth  int
}{
	{"accept.imported", 1},
	{"accept.exported", 1},
	{"accept.answered", 1},
	{"get.sleeps", 2}, // the first time there is no producer
	{"get.seen", 3},
	{"get.copied", 3},
	{"get.counted", 2},
	{"get.late", 1},
	{"lane.dropped", 1},
}

// produced dials, puts 21 values into 8 slots and closes. The last one is no quarter of the slots.
func produced(t *testing.T, p *vmmc.Process) chan error {
	ctx := within(t)
	done := make(chan error, 1)
	go func() {
		done <- func() error {
			q, err := queue.Dial[item](ctx, p, name)
			if err != nil {
				return err
			}
			_, err = q.PutAll(ctx, items(1, 0, 21))
			return errors.Join(err, q.Close(ctx))
		}()
	}()
	return done
}

// endless dials and puts values until a put fails.
func endless(t *testing.T, p *vmmc.Process) chan error {
	ctx := within(t)
	done := make(chan error, 1)
	go func() {
		q, err := queue.Dial[item](ctx, p, name)
		for n := 0; err == nil; n += 21 {
			_, err = q.PutAll(ctx, items(2, n, 21))
		}
		done <- err
	}()
	return done
}

// A consumer that is killed at any step ends what its producers wait for.
func TestConsumerKilled(t *testing.T) {
	for _, w := range deathWays {
		for i, s := range consumerSteps {
			if s.step == "get.late" && w.nodes == 1 || testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue // in memory no acknowledgement is late
			}
			t.Run(w.name+"/"+s.step, func(t *testing.T) {
				nodes := vmmctest.Nodes(t, w.nodes)
				p := nodes[len(nodes)-1].Open(t)
				nth := itoa(s.nth)
				child := vmmctest.Child(t, nodes[0], "consumer", name, s.step, nth, "/nonexistent/file")
				var ends chan error
				if s.step == "lane.dropped" {
					ends = produced(t, p)
				}
				done := endless(t, p)
				if got := child.Line(); got != s.step {
					t.Fatal(got)
				}
				if ends != nil {
					if err := <-ends; err != nil {
						t.Errorf("the producer whose lane was dropped: %v", err)
					}
				}
				child.Kill()
				if err := <-done; !errors.Is(err, vmmc.ErrPeerGone) && !errors.Is(err, vmmc.ErrNoSuchProcess) {
					t.Errorf("%v", err)
				}
			})
		}
	}
}

// A consumer that is stopped at any step goes on where it was.
func TestConsumerStopped(t *testing.T) {
	for _, w := range deathWays {
		for i, s := range consumerSteps {
			if s.step == "get.late" && w.nodes == 1 || testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue // in memory no acknowledgement is late
			}
			t.Run(w.name+"/"+s.step, func(t *testing.T) {
				nodes := vmmctest.Nodes(t, w.nodes)
				file := filepath.Join(t.TempDir(), "continue")
				child := vmmctest.Child(t, nodes[0], "consumer", name, s.step, itoa(s.nth), file)
				done := produced(t, nodes[len(nodes)-1].Open(t))
				if got := child.Line(); got != s.step {
					t.Fatal(got)
				}
				child.Stop()
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				child.Continue()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Puts that are given up while the consumer is stopped, in the middle of messages too, leave
// nothing out and repeat nothing.
func TestPutGivenUp(t *testing.T) {
	const n, run = 40_000, 20_000
	for _, w := range deathWays {
		t.Run(w.name, func(t *testing.T) {
			nodes := vmmctest.Nodes(t, w.nodes)
			child := vmmctest.Child(t, nodes[0], "checker", name, itoa(n))
			q := dial(t, nodes[len(nodes)-1].Open(t))
			child.Stop()
			first := 0
			for k := range 5 {
				soon, stop := context.WithTimeout(within(t), 10*time.Millisecond)
				put, err := q.PutAll(soon, items(1, first, min(run, n-first)))
				stop()
				if first += put; err != nil && !errors.Is(err, vmmc.ErrTimeout) {
					t.Fatal(err)
				}
				if put == 0 && errors.Is(err, vmmc.ErrOutcomeUnknown) {
					t.Errorf("put %d: %v, though nothing of it was sent", k, err)
				}
			}
			child.Continue()
			put(t, q, items(1, first, n-first)...)
			if s := child.Line(); s != "all" {
				t.Error(s)
			}
			if err := q.Close(within(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// A value of several frames whose transfer is given up in the middle is repeated.
func TestLargePutGivenUp(t *testing.T) {
	type large struct {
		N    uint32
		Fill [1 << 18]uint32
	}
	for _, w := range ways[1:] {
		t.Run(w.name, func(t *testing.T) {
			nodes := vmmctest.Nodes(t, w.nodes)
			opts := []queue.Option{queue.Slots(4)}
			if w.unmapped {
				opts = append(opts, queue.Unmapped())
			}
			c, err := queue.Listen[large](within(t), nodes[0].Open(t), name, opts...)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			q, err := queue.Dial[large](within(t), nodes[len(nodes)-1].Open(t), name)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(within(t))
			steps.On(t, func(s string) {
				if s == "put.encoded" {
					cancel()
				}
			})
			v, put := &large{}, []uint32{}
			for n := range uint32(3) {
				v.N, v.Fill[0], v.Fill[len(v.Fill)-1] = n, n, n
				err := q.Put(ctx, *v)
				if err == nil || errors.Is(err, vmmc.ErrOutcomeUnknown) {
					put = append(put, n)
				}
				if err != nil && (n > 0 || !errors.Is(err, vmmc.ErrCanceled)) {
					t.Fatal(err)
				}
				ctx = within(t)
			}
			for _, n := range put {
				v, err := c.Get(within(t))
				if err != nil {
					t.Fatal(err)
				}
				if v.N != n || v.Fill[0] != n || v.Fill[len(v.Fill)-1] != n {
					t.Errorf("value %d is %d, %d ... %d", n, v.N, v.Fill[0], v.Fill[len(v.Fill)-1])
				}
			}
			if err := q.Close(within(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// Producers that are killed while they put, and replaced, lose and repeat nothing of what came
// before.
func TestProducersKilledAndReplaced(t *testing.T) {
	const producers, kills = 8, 16
	for _, w := range deathWays {
		t.Run(w.name, func(t *testing.T) {
			nodes, c := w.start(t, queue.Slots(32))
			last := nodes[len(nodes)-1]
			alive := map[uint32]*vmmctest.Proc{}
			number := uint32(0)
			begin := func() {
				number++
				args := []string{name, itoa(int(number)), "100000000", "none", "1", ""}
				alive[number] = vmmctest.Child(t, last, "producer", args...)
			}
			for range producers {
				begin()
			}
			got := tally{}
			for killed := 0; killed < kills; {
				v := get(t, c)
				got.add(t, v)
				if p := alive[v.From]; p != nil && v.N > 500 {
					p.Kill()
					delete(alive, v.From)
					begin()
					killed++
				}
			}
		})
	}
}
