package lock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/lock"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// What the next holder knows of a client that is killed.
const (
	clean   = iota // it did not have the lock
	mayHave        // that depends on what has arrived
	died
)

// clientSteps are where a client is killed and stopped. If others contend, this process locks all
// the time; otherwise it does not before the client is there.
var clientSteps = []struct {
	step    string
	nth     int
	contend bool
	leaves  int
	how     string
}{
	{"open.found", 1, false, clean, ""},
	{"dial.exported", 1, false, clean, ""},
	{"dial.requested", 1, false, clean, ""},
	{"dial.answered", 1, false, clean, ""},
	{"open.joined", 1, false, clean, ""},
	{"lock.request", 1, true, clean, ""},
	{"lock.waits", 2, true, mayHave, ""},
	{"lock.answered", 1, false, died, ""},
	{"lock.lease", 2, false, clean, ""},
	{"lock.taken", 2, false, died, ""},
	{"change.half", 1, false, died, ""},
	{"change.half", 2, true, died, ""},
	{"unlock.fenced", 1, false, died, ""},
	{"unlock.returned", 2, false, clean, ""},
	{"unlock.recalled", 2, true, died, ""},
	{"unlock.released", 2, true, mayHave, ""},
	{"lock.withdraws", 2, true, mayHave, "impatient"},
	{"lock.withdrawn", 2, true, mayHave, "impatient"},
	{"close.sent", 1, false, clean, ""},
}

// contender locks and changes the account all the time.
type contender struct {
	t         testing.TB
	m         *lock.Mutex
	a         account
	stop      context.CancelFunc
	wg        sync.WaitGroup
	rounds    atomic.Int32
	abandoned atomic.Int32
}

func contend(t testing.TB, p *vmmc.Process) *contender {
	c := &contender{t: t, m: open(t, p)}
	var err error
	if c.a, err = importAccount(within(t), p); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *contender) begin() {
	ctx, stop := context.WithCancel(within(c.t))
	c.stop = stop
	c.wg.Go(func() {
		for ctx.Err() == nil {
			abandoned, err := round(context.WithoutCancel(ctx), c.m, c.a)
			if err != nil {
				c.t.Error(err)
				return
			}
			if abandoned {
				c.abandoned.Add(1)
			}
			c.rounds.Add(1)
		}
	})
}

// goesOn waits for more rounds.
func (c *contender) goesOn() {
	c.t.Helper()
	n := c.rounds.Load()
	eventually(c.t, "others get the lock", func() bool { return c.rounds.Load() > n+2 || c.t.Failed() })
}

func (c *contender) end() {
	c.stop()
	c.wg.Wait()
}

// A client that is killed at any step does not keep the lock, and the next holder knows if it had
// it.
func TestClientKilled(t *testing.T) {
	for _, w := range deathWays {
		w = w.sharing(t)
		for i, s := range clientSteps {
			if testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue
			}
			t.Run(w.name+"/"+s.step, func(t *testing.T) {
				nodes, host, _ := w.startWithAccount(t)
				last := nodes[len(nodes)-1]
				c := contend(t, last.Open(t))
				if s.contend {
					c.begin()
				}
				child := vmmctest.Child(t, last, "worker", s.step, itoa(s.nth), "/nonexistent/file", "2", s.how)
				if got := child.Line(); got != s.step {
					t.Fatal(got)
				}
				child.Kill()
				if !s.contend {
					c.begin()
				}
				c.goesOn()
				eventually(t, "its lane ends", func() bool { return host.Clients() == 1 })
				c.goesOn()
				c.end()
				n := int(c.abandoned.Load())
				if s.leaves == clean && n > 0 || s.leaves == died && n != 1 || n > 1 {
					t.Errorf("%d holders find that one has died", n)
				}
			})
		}
	}
}

// A client that is stopped at any step keeps the lock if it has it, and holds up none if it has
// not; it goes on where it was.
func TestClientStopped(t *testing.T) {
	for _, w := range deathWays {
		w = w.sharing(t)
		for i, s := range clientSteps {
			if testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue
			}
			t.Run(w.name+"/"+s.step, func(t *testing.T) {
				nodes, _, _ := w.startWithAccount(t)
				last := nodes[len(nodes)-1]
				c := contend(t, last.Open(t))
				if s.contend {
					c.begin()
				}
				file := filepath.Join(t.TempDir(), "continue")
				child := vmmctest.Child(t, last, "worker", s.step, itoa(s.nth), file, "20", s.how)
				if got := child.Line(); got != s.step {
					t.Fatal(got)
				}
				child.Stop()
				switch {
				case s.leaves == clean && s.contend:
					c.goesOn()
				case s.leaves == clean:
					h, err := c.m.Lock(within(t))
					if err != nil {
						t.Fatal(err)
					}
					unlock(t, h)
				case s.leaves == died && !s.contend:
					if _, ok, err := c.m.TryLock(within(t)); ok || err != nil {
						t.Errorf("the lock is held: %t, %v", ok, err)
					}
				}
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				child.Continue()
				if !s.contend {
					c.begin()
				}
				if err := child.Wait(); err != nil {
					t.Error(err)
				}
				c.goesOn()
				c.end()
				if n := c.abandoned.Load(); n > 0 {
					t.Errorf("%d holders find that one has died", n)
				}
			})
		}
	}
}

// A lock whose holder is killed is free within 100 ms of the holder's end: that end frees it, and no
// clock. What the machine itself delays does not count. All but the holder is in this process, so the
// kernel counts all of it.
func TestFreeSoon(t *testing.T) {
	for _, w := range deathWays {
		t.Run(w.name, func(t *testing.T) {
			nodes, _, _ := w.startWithAccount(t)
			last := nodes[len(nodes)-1]
			m := open(t, last.Open(t))
			times := make([]time.Duration, 5)
			for i := range times {
				child := vmmctest.Child(t, last, "worker", "change.half", "1", "/nonexistent/file", "1", "")
				child.Line()
				ctx := within(t)
				free := make(chan time.Time)
				go func() {
					h, err := m.Lock(ctx)
					at := time.Now()
					if err == nil && !h.Abandoned() {
						err = errors.New("the holder does not know that the one before has died")
					}
					if err == nil {
						err = h.Unlock(ctx)
					}
					if err != nil {
						t.Error(err)
					}
					free <- at
				}()
				child.Kill()
				ended, delayed := time.Now(), testutil.Delays()
				at := <-free
				times[i] = at.Sub(ended) - delayed()
			}
			t.Logf("free after %v", times)
			slices.Sort(times) // other programs may delay some, but not most
			if d := times[len(times)/2]; d > 100*time.Millisecond {
				t.Errorf("free after %v", d)
			}
		})
	}
}

// hostSteps are where a host is killed and stopped.
var hostSteps = []string{
	"accept.imported", "accept.exported", "accept.answered",
	"host.request", "host.recalled", "host.granted", "host.answered", "host.release",
	"host.withdraw", "host.leave", "host.gone",
}

// disturb has the host come to all steps: clients give up and leave, until ctx ends.
func disturb(ctx context.Context, t testing.TB, p *vmmc.Process) {
	for i := 0; ctx.Err() == nil; i++ {
		m, err := lock.Open(ctx, p, name)
		if err != nil {
			continue // the host is gone
		}
		for range 20 {
			soon, cancel := context.WithTimeout(ctx, time.Duration(i%10)*20*time.Microsecond)
			h, err := m.Lock(soon)
			cancel()
			if err == nil {
				err = h.Unlock(context.WithoutCancel(ctx))
			}
			if err != nil && !errors.Is(err, vmmc.ErrTimeout) {
				break
			}
		}
		if err := m.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}
}

// hostAt starts a host that pauses at a step, and two clients that lock all the time until a call
// fails, the first one of which is m; and waits until the host is there.
func hostAt(
	t *testing.T, w way, s, file string,
) (host *vmmctest.Proc, m *lock.Mutex, ends chan error, rounds *atomic.Int32, stop func()) {
	nodes := w.started(t)
	last := nodes[len(nodes)-1]
	newAccount(t, nodes[0].Open(t))
	nth := "3"
	if s == "host.gone" {
		nth = "1"
	}
	host = vmmctest.Child(t, nodes[0], "host", s, nth, file)
	host.Line()
	ends, rounds = make(chan error, 2), &atomic.Int32{}
	ctx, end := context.WithCancel(within(t))
	var wg sync.WaitGroup
	for range 2 {
		p := last.Open(t)
		a, err := importAccount(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		c, err := lock.Open(ctx, p, name)
		if err != nil {
			t.Fatal(err)
		}
		if m == nil {
			m = c
		}
		wg.Go(func() {
			for err == nil && ctx.Err() == nil {
				_, err = round(context.WithoutCancel(ctx), c, a)
				rounds.Add(1)
			}
			ends <- err
			if err := c.Close(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		})
	}
	p := last.Open(t)
	wg.Go(func() { disturb(ctx, t, p) })
	if s == "host.gone" {
		child := vmmctest.Child(t, last, "worker", "change.half", "2", "/nonexistent/file", "1000", "")
		child.Line()
		child.Kill()
	}
	if got := host.Line(); got != s {
		t.Fatal(got)
	}
	var once sync.Once
	stop = func() {
		once.Do(func() {
			end()
			wg.Wait()
		})
	}
	t.Cleanup(stop)
	return host, m, ends, rounds, stop
}

// If the host is killed at any step, no call of a client hangs.
func TestHostKilled(t *testing.T) {
	for _, w := range deathWays {
		w = w.sharing(t)
		for i, s := range hostSteps {
			if testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue
			}
			t.Run(w.name+"/"+s, func(t *testing.T) {
				host, _, ends, _, _ := hostAt(t, w, s, "/nonexistent/file")
				host.Kill()
				for range 2 {
					if err := <-ends; !errors.Is(err, vmmc.ErrPeerGone) && !errors.Is(err, vmmc.ErrNoSuchProcess) {
						t.Errorf("%v", err)
					}
				}
			})
		}
	}
}

// While a host is stopped, at any step, calls end with their contexts. It goes on where it was.
func TestHostStopped(t *testing.T) {
	for _, w := range deathWays {
		w = w.sharing(t)
		for i, s := range hostSteps {
			if testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue
			}
			t.Run(w.name+"/"+s, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "continue")
				host, m, ends, rounds, stop := hostAt(t, w, s, file)
				host.Stop()
				// the name is there, but the host accepts no client
				soon, cancel := context.WithTimeout(within(t), 5*time.Millisecond)
				defer cancel()
				last := w.shared[len(w.shared)-1]
				if _, err := lock.Open(soon, last.Open(t), name); !errors.Is(err, vmmc.ErrTimeout) {
					t.Errorf("a stopped host has a new client: %v", err)
				}
				soon, cancel = context.WithTimeout(within(t), 5*time.Millisecond)
				defer cancel()
				if h, err := m.Lock(soon); err == nil {
					unlock(t, h) // it had a lease
				} else if !errors.Is(err, vmmc.ErrTimeout) {
					t.Errorf("a call of a stopped host's client: %v", err)
				}
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				host.Continue()
				n := rounds.Load()
				eventually(t, "clients go on", func() bool { return rounds.Load() > n+20 })
				stop()
				for range 2 {
					if err := <-ends; err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

// A holder learns that its host is gone.
func TestLost(t *testing.T) {
	for _, w := range deathWays {
		t.Run(w.name, func(t *testing.T) {
			nodes := vmmctest.Nodes(t, w.nodes)
			host := vmmctest.Child(t, nodes[0], "host", "none", "1", "")
			host.Line()
			h := locked(t, open(t, nodes[len(nodes)-1].Open(t)))
			select {
			case <-h.Lost():
				t.Error("the host lives")
			default:
			}
			host.Kill()
			<-h.Lost()
			if err := h.Unlock(within(t)); !errors.Is(err, vmmc.ErrPeerGone) {
				t.Errorf("an unlock: %v", err)
			}
		})
	}
}

// killTime is how long TestRandomKills takes for each way: VMMC_KILLS.
func killTime(t testing.TB) time.Duration {
	s := os.Getenv("VMMC_KILLS")
	if s == "" {
		return 700 * time.Millisecond
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("VMMC_KILLS: %v", err)
	}
	return d
}

// Clients that lock, try, give up, leave and come back are killed and stopped at random: never do
// two have the lock, no change is lost but that of a dead one, and the lock goes on.
func TestRandomKills(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			nodes, s, e := w.startWithAccount(t)
			last := nodes[len(nodes)-1]
			word := func(off int) vmmc.Word64 {
				v, err := e.Word64(off)
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			first, second, done := word(firstOff), word(secondOff), word(doneOff)
			begin := func() *vmmctest.Proc {
				return vmmctest.Child(t, last, "worker", "none", "1", "", "1000000000", "random")
			}
			workers := []*vmmctest.Proc{begin(), begin(), begin()}
			kills, longest := uint64(0), time.Duration(0)
			for end := time.Now().Add(killTime(t)); time.Now().Before(end) && !t.Failed(); {
				n := first.Load()
				eventually(t, "the lock goes on", func() bool { return first.Load() > n+3 })
				time.Sleep(time.Duration(rand.N(3000)) * time.Microsecond) // any step
				victim := rand.N(len(workers))
				if rand.N(3) == 0 {
					workers[victim].Stop()
					time.Sleep(time.Millisecond)
					workers[victim].Continue()
					continue
				}
				workers[victim].Kill()
				killed, n := time.Now(), first.Load()
				eventually(t, "the lock is free", func() bool { return first.Load() > n })
				longest = max(longest, time.Since(killed))
				kills++
				workers[victim] = begin()
			}
			for _, p := range workers {
				p.Kill()
				kills++
			}
			eventually(t, "the host knows", func() bool { return s.Clients() == 0 })
			m := open(t, last.Open(t))
			unlock(t, locked(t, m))
			t.Logf("%d kills, %d changes, the lock was free again within %v", kills, first.Load(), longest)
			if n := first.Load(); n < done.Load() || n > done.Load()+kills || second.Load()+1 < n || second.Load() > n {
				t.Errorf("%d and %d changes, %d were done, with %d kills", n, second.Load(), done.Load(), kills)
			}
		})
	}
}
