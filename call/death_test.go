package call_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/call"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/vmmctest"
)

var deathWays = []way{ways[0], ways[2]}

// clientSteps are where a client is killed and stopped, and how often it has been there.
var clientSteps = []struct {
	step string
	nth  int
	sent int // requests
}{
	{"dial.found", 1, 0},
	{"dial.exported", 1, 0},
	{"dial.requested", 1, 0},
	{"dial.answered", 1, 0},
	{"dial.joined", 1, 0},
	{"call.encoded", 3, 2},
	{"call.sent", 3, 3},
	{"call.answered", 3, 3},
	{"call.done", 3, 3},
}

// counter counts how often each call runs.
type counter struct {
	mu  sync.Mutex
	ran map[[2]uint64]int
}

func (n *counter) handle(_ context.Context, q *question, a *answer) error {
	n.mu.Lock()
	if n.ran == nil {
		n.ran = map[[2]uint64]int{}
	}
	n.ran[[2]uint64{uint64(q.From), q.ID}]++
	n.mu.Unlock()
	return reply(q, a)
}

func (n *counter) of(from uint32, id int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ran[[2]uint64{uint64(from), uint64(id)}]
}

// A client that is killed at any step ends its own calls alone, each of which has run at most once.
func TestClientKilled(t *testing.T) {
	for _, w := range deathWays {
		nodes := vmmctest.Nodes(t, w.nodes)
		for i, s := range clientSteps {
			if testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue
			}
			t.Run(w.name+"/"+s.step, func(t *testing.T) {
				var count counter
				world := w.on(t, nodes, count.handle)
				c := world.dial(t)
				args := []string{name, "7", "100", s.step, itoa(s.nth), "/nonexistent/file"}
				child := vmmctest.Child(t, world.last(), "client", args...)
				done := 0
				for line := child.Line(); line != s.step; line = child.Line() {
					if line != fmt.Sprint("done ", done) {
						t.Fatal(line)
					}
					done++
				}
				child.Kill()
				for i := range 10 {
					if err := get(within(t), c, ask(1, uint64(i), plain)); err != nil {
						t.Error(err)
					}
				}
				eventually(t, "the server knows", func() bool {
					return world.s.Clients() == 1 && world.s.Requests() == 0
				})
				for i := range 100 {
					n := count.of(7, i)
					if n > 1 || n > 0 && i >= s.sent || n == 0 && i < done {
						t.Errorf("call %d ran %d times, %d calls were done", i, n, done)
					}
				}
			})
		}
	}
}

// A client that is stopped at any step holds up no other one, and goes on where it was.
func TestClientStopped(t *testing.T) {
	for _, w := range deathWays {
		nodes := vmmctest.Nodes(t, w.nodes)
		for i, s := range clientSteps {
			if testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue
			}
			t.Run(w.name+"/"+s.step, func(t *testing.T) {
				var count counter
				world := w.on(t, nodes, count.handle, call.Handlers(1))
				c := world.dial(t)
				file := filepath.Join(t.TempDir(), "continue")
				child := vmmctest.Child(t, world.last(), "client", name, "7", "6", s.step, itoa(s.nth), file)
				for child.Line() != s.step {
				}
				child.Stop()
				for i := range 20 {
					if err := get(within(t), c, ask(1, uint64(i), plain)); err != nil {
						t.Error(err)
					}
				}
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				child.Continue()
				if err := child.Wait(); err != nil {
					t.Error(err)
				}
				for i := range 6 {
					if n := count.of(7, i); n != 1 {
						t.Errorf("call %d ran %d times", i, n)
					}
				}
			})
		}
	}
}

// serverSteps are where a server is killed and stopped. The first call ends before any of them but
// those of accepting.
var serverSteps = []struct {
	step string
	nth  int
}{
	{"accept.imported", 1},
	{"accept.exported", 1},
	{"accept.answered", 1},
	{"serve.sleeps", 3},
	{"serve.seen", 3},
	{"serve.taken", 3},
	{"serve.runs", 3},
	{"serve.ran", 3},
	{"serve.answered", 3},
}

// A server that is killed at any step ends what its clients wait for. No call has run twice, and
// each that has succeeded has run. A new server under its name serves new clients.
func TestServerKilled(t *testing.T) {
	for _, w := range deathWays {
		nodes := vmmctest.Nodes(t, w.nodes)
		for i, s := range serverSteps {
			if testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue
			}
			t.Run(w.name+"/"+s.step, func(t *testing.T) {
				p := nodes[len(nodes)-1].Open(t)
				args := []string{name, s.step, itoa(s.nth), "/nonexistent/file"}
				child := vmmctest.Child(t, nodes[0], "server", args...)
				var succeeded atomic.Int32
				done := make(chan error, 1)
				ctx := within(t)
				go func() {
					done <- func() error {
						c, err := call.Dial[question, answer](ctx, p, name)
						if err != nil {
							return err
						}
						for i := uint64(0); err == nil; i++ {
							if err = get(ctx, c, ask(1, i, plain)); err == nil {
								succeeded.Add(1)
							}
						}
						return errors.Join(err, c.Close())
					}()
				}()
				var ran []string
				for line := child.Line(); line != s.step; line = child.Line() {
					ran = append(ran, line)
				}
				child.Kill()
				if err := <-done; !errors.Is(err, vmmc.ErrPeerGone) && !errors.Is(err, vmmc.ErrNoSuchProcess) {
					t.Errorf("%v", err)
				}
				for i, line := range ran {
					if line != fmt.Sprint("runs 1 ", i) {
						t.Errorf("%d: %q", i, line)
					}
				}
				if n := int(succeeded.Load()); n > len(ran) || n < len(ran)-1 {
					t.Errorf("%d calls have succeeded, %d have run", n, len(ran))
				}
				serve(t, nodes[0].Open(t), plainly)
				if err := get(ctx, dial(t, p), ask(1, 1, plain)); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// The outcome of a call whose server dies is unknown once the request is sent, and known before.
func TestOutcomes(t *testing.T) {
	for _, w := range deathWays {
		nodes := vmmctest.Nodes(t, w.nodes)
		for _, at := range []string{"call.encoded", "call.sent"} {
			t.Run(w.name+"/"+at, func(t *testing.T) {
				args := []string{name, "serve.runs", "1", "/nonexistent/file"}
				child := vmmctest.Child(t, nodes[0], "server", args...)
				c := dial(t, nodes[len(nodes)-1].Open(t))
				steps.On(t, func(s string) {
					if s == at {
						child.Kill()
						<-c.Lane().Done()
					}
				})
				err := get(within(t), c, ask(1, 1, plain))
				if !errors.Is(err, vmmc.ErrPeerGone) || errors.Is(err, vmmc.ErrOutcomeUnknown) != (at == "call.sent") {
					t.Errorf("%v", err)
				}
				if err := get(within(t), c, ask(1, 2, plain)); !errors.Is(err, vmmc.ErrPeerGone) ||
					errors.Is(err, vmmc.ErrOutcomeUnknown) {
					t.Errorf("the next call: %v", err)
				}
			})
		}
	}
}

// A server that is stopped at any step goes on where it was. Calls that are given up meanwhile have
// their slots back then, and none runs twice.
func TestServerStopped(t *testing.T) {
	for _, w := range deathWays {
		nodes := vmmctest.Nodes(t, w.nodes)
		for i, s := range serverSteps {
			if testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue
			}
			t.Run(w.name+"/"+s.step, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "continue")
				child := vmmctest.Child(t, nodes[0], "server", name, s.step, itoa(s.nth), file)
				done := make(chan error, 1)
				ctx := within(t)
				p := nodes[len(nodes)-1].Open(t)
				go func() {
					done <- func() error {
						c, err := call.Dial[question, answer](ctx, p, name, call.Slots(2))
						if err != nil {
							return err
						}
						for i := 0; i < 8 && err == nil; i++ {
							err = get(ctx, c, ask(1, uint64(i), plain))
						}
						return errors.Join(err, c.Close())
					}()
				}()
				var ran []string
				for line := child.Line(); line != s.step; line = child.Line() {
					ran = append(ran, line)
				}
				child.Stop()
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				child.Continue()
				if err := <-done; err != nil {
					t.Error(err)
				}
				for len(ran) < 8 {
					ran = append(ran, child.Line())
				}
				for i, line := range ran {
					if line != fmt.Sprint("runs 1 ", i) {
						t.Errorf("%d: %q", i, line)
					}
				}
			})
		}
	}
}

// A server that is stopped uses up the slots of a client whose calls are given up; all are free when
// it goes on, and nothing runs twice.
func TestGivenUpWhileStopped(t *testing.T) {
	const slots = 3
	for _, w := range deathWays {
		t.Run(w.name, func(t *testing.T) {
			nodes := vmmctest.Nodes(t, w.nodes)
			child := vmmctest.Child(t, nodes[0], "server", name, "none", "1", "")
			c := dial(t, nodes[len(nodes)-1].Open(t), call.Slots(slots))
			child.Stop()
			for i := range slots {
				giveUp(t, c, ask(1, uint64(i), plain))
			}
			ctx, cancel := context.WithTimeout(within(t), time.Millisecond)
			defer cancel()
			err := get(ctx, c, ask(1, slots, plain))
			if !errors.Is(err, vmmc.ErrTimeout) || errors.Is(err, vmmc.ErrOutcomeUnknown) {
				t.Errorf("a call without a slot: %v", err)
			}
			waits := make(chan error, 1)
			go func() { waits <- get(within(t), c, ask(1, 100, plain)) }()
			eventually(t, "the call waits", func() bool { return c.Waiting() == 1 })
			child.Continue()
			if err := <-waits; err != nil {
				t.Error(err)
			}
			eventually(t, "all slots are free", func() bool { c.Sweep(); return c.Free() == slots })
			got := map[string]int{}
			for range slots + 1 {
				got[child.Line()]++
			}
			for _, i := range []int{0, 1, 2, 100} {
				if n := got[fmt.Sprint("runs 1 ", i)]; n != 1 {
					t.Errorf("call %d ran %d times: %v", i, n, got)
				}
			}
		})
	}
}

// A client whose calls were all given up learns that its server is gone.
func TestKilledWhileNoSlotIsFree(t *testing.T) {
	for _, w := range deathWays {
		t.Run(w.name, func(t *testing.T) {
			nodes := vmmctest.Nodes(t, w.nodes)
			child := vmmctest.Child(t, nodes[0], "server", name, "serve.runs", "1", "/nonexistent/file")
			c := dial(t, nodes[len(nodes)-1].Open(t), call.Slots(1))
			ctx, cancel := context.WithCancel(within(t))
			first := make(chan error, 1)
			go func() { first <- get(ctx, c, ask(1, 1, plain)) }()
			if s := child.Line(); s != "serve.runs" {
				t.Fatal(s)
			}
			cancel()
			if err := <-first; !errors.Is(err, vmmc.ErrOutcomeUnknown) {
				t.Errorf("%v", err)
			}
			waits := make(chan error, 2)
			for range cap(waits) {
				go func() { waits <- get(within(t), c, ask(1, 2, plain)) }()
			}
			eventually(t, "the calls wait", func() bool { return c.Waiting() == cap(waits) })
			child.Kill()
			for range cap(waits) {
				if err := <-waits; !errors.Is(err, vmmc.ErrPeerGone) || errors.Is(err, vmmc.ErrOutcomeUnknown) {
					t.Errorf("%v", err)
				}
			}
		})
	}
}

// Clients that are killed while they call, and replaced, hold up no other, and no call of theirs
// runs twice.
func TestClientsKilledAndReplaced(t *testing.T) {
	const clients, kills = 2, 5
	for _, w := range deathWays {
		t.Run(w.name, func(t *testing.T) {
			var count counter
			world := w.start(t, count.handle)
			number := 0
			begin := func() *vmmctest.Proc {
				number++
				return vmmctest.Child(t, world.last(), "client", name, itoa(number), "100000000", "none", "1", "")
			}
			var all []*vmmctest.Proc
			for range clients {
				all = append(all, begin())
			}
			c := world.dial(t)
			for killed := range kills {
				for i := range 10 {
					if err := get(within(t), c, ask(1000, uint64(100*killed+i), plain)); err != nil {
						t.Fatal(err)
					}
				}
				for range 20 {
					all[0].Line()
				}
				all[0].Kill()
				all = append(all[1:], begin())
			}
			for _, p := range all {
				p.Kill()
			}
			eventually(t, "the server knows", func() bool { return world.s.Clients() == 1 })
			count.mu.Lock()
			defer count.mu.Unlock()
			for k, n := range count.ran {
				if n != 1 {
					t.Errorf("call %d of client %d ran %d times", k[1], k[0], n)
				}
			}
		})
	}
}
