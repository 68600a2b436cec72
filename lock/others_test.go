package lock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/lock"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// closing closes a server or a client when the test ends.
func closing(t testing.TB, c interface{ Close() error }) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// leaving has a client leave when the test ends.
func leaving(t testing.TB, c interface {
	Close(ctx context.Context) error
},
) {
	t.Cleanup(func() {
		if err := c.Close(within(t)); err != nil {
			t.Error(err)
		}
	})
}

func (w way) options() (opts []lock.Option) {
	if w.unmapped {
		opts = append(opts, lock.Unmapped())
	}
	return opts
}

// semaphore starts nodes and a host of a semaphore. Clients are on the last node.
func (w way) semaphore(t testing.TB, permits int) (last *vmmctest.Node, s *lock.Server) {
	t.Helper()
	nodes := w.started(t)
	s, err := lock.HostSemaphore(within(t), nodes[0].Open(t), name, permits, w.options()...)
	if err != nil {
		t.Fatal(err)
	}
	closing(t, s)
	return nodes[len(nodes)-1], s
}

func openSemaphore(t testing.TB, p *vmmc.Process) *lock.Semaphore {
	t.Helper()
	s, err := lock.OpenSemaphore(within(t), p, name)
	if err != nil {
		t.Fatal(err)
	}
	leaving(t, s)
	return s
}

func acquired(t testing.TB, s *lock.Semaphore) *lock.Permitted {
	t.Helper()
	a, err := s.Acquire(within(t))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// free takes all permits that are free, gives them back, and returns how many there were.
func free(t testing.TB, s *lock.Semaphore) int {
	t.Helper()
	var all []*lock.Permitted
	for {
		a, ok, err := s.TryAcquire(within(t))
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		all = append(all, a)
	}
	for _, a := range all {
		if err := a.Release(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	return len(all)
}

// No more processes and goroutines have permits than there are, and none is lost.
func TestSemaphore(t *testing.T) {
	const permits = 3
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			last, _ := w.semaphore(t, permits)
			var inside, most atomic.Int32
			var wg sync.WaitGroup
			ctx := within(t)
			for range 3 {
				s := openSemaphore(t, last.Open(t))
				for range 3 {
					wg.Go(func() {
						for range 50 {
							a, err := s.Acquire(ctx)
							if err != nil {
								t.Error(err)
								return
							}
							n := inside.Add(1)
							for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
							}
							inside.Add(-1)
							if err := a.Release(ctx); err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
			}
			wg.Wait()
			if n := most.Load(); n > permits {
				t.Errorf("%d had permits", n)
			}
			s := openSemaphore(t, last.Open(t))
			eventually(t, "all permits are free", func() bool { return free(t, s) == permits })
			a := acquired(t, s)
			if n := free(t, s); n != permits-1 {
				t.Errorf("%d permits are free beside one", n)
			}
			if err := a.Release(ctx); err != nil {
				t.Fatal(err)
			}
			if err := a.Release(ctx); !errors.Is(err, vmmc.ErrBadArg) {
				t.Errorf("a second release: %v", err)
			}
			if n := free(t, s); n != permits {
				t.Errorf("%d permits after a second release", n)
			}
		})
	}
}

// Waiters get permits in their order; one that gives up, and a permit that crosses that, is no loss.
func TestSemaphoreGivenUp(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			last, s := w.semaphore(t, 1)
			a, b := openSemaphore(t, last.Open(t)), openSemaphore(t, last.Open(t))
			held := acquired(t, a)
			ctx, cancel := context.WithCancel(within(t))
			errs := make(chan error, 1)
			go func() {
				_, err := b.Acquire(ctx)
				errs <- err
			}()
			eventually(t, "it waits", func() bool { return s.Waiting() == 1 })
			cancel()
			if err := <-errs; !errors.Is(err, vmmc.ErrCanceled) {
				t.Errorf("%v", err)
			}
			eventually(t, "it does not", func() bool { return s.Waiting() == 0 })
			if err := held.Release(within(t)); err != nil {
				t.Fatal(err)
			}
			ctx, cancel = context.WithCancel(within(t))
			withdraws, granted := make(chan struct{}), make(chan struct{})
			var once sync.Once
			steps.On(t, func(s string) {
				switch s {
				case "lock.waits":
					cancel()
				case "lock.withdraws":
					close(withdraws)
					<-granted
				case "host.request":
					<-withdraws
				case "host.answered":
					once.Do(func() { close(granted) })
				}
			})
			if _, err := a.Acquire(ctx); !errors.Is(err, vmmc.ErrCanceled) {
				t.Fatal(err)
			}
			steps.Off()
			if err := acquired(t, b).Release(within(t)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The permits of a client that leaves are given back, and its calls end.
func TestSemaphoreClose(t *testing.T) {
	last, s := ways[0].semaphore(t, 2)
	a, b := openSemaphore(t, last.Open(t)), openSemaphore(t, last.Open(t))
	x, _ := acquired(t, a), acquired(t, a)
	ctx := within(t)
	errs := make(chan error, 1)
	go func() {
		_, err := a.Acquire(ctx)
		errs <- err
	}()
	eventually(t, "it waits", func() bool { return s.Waiting() == 1 })
	if err := a.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-errs; !errors.Is(err, vmmc.ErrClosed) {
		t.Errorf("a call that waits: %v", err)
	}
	<-x.Lost()
	if err := x.Release(ctx); !errors.Is(err, vmmc.ErrClosed) {
		t.Errorf("a release after the close: %v", err)
	}
	if _, _, err := a.TryAcquire(ctx); !errors.Is(err, vmmc.ErrClosed) {
		t.Errorf("a call after the close: %v", err)
	}
	eventually(t, "they are free", func() bool { return free(t, b) == 2 })
}

// permits is a child: step, how often, file. It takes a permit and gives it back, gives up now and
// then, until it was at the step.
func permits(ctx context.Context, p *vmmc.Process, args ...string) error {
	awaits := steps.PauseAt(args[0], args[1], args[2])
	s, err := lock.OpenSemaphore(ctx, p, name)
	if err != nil {
		return err
	}
	for i := 0; awaits() || i < 20; i++ {
		soon, stop := context.WithTimeout(ctx, time.Duration(i%10)*100*time.Microsecond)
		a, err := s.Acquire(soon)
		stop()
		if err == nil {
			err = a.Release(ctx)
		}
		if err != nil && !errors.Is(err, vmmc.ErrTimeout) {
			return err
		}
	}
	return s.Close(ctx)
}

var permitSteps = []string{
	"lock.request", "lock.waits", "lock.answered", "unlock.fenced", "unlock.released",
	"lock.withdraws", "lock.withdrawn",
}

// useAll has a client take and give back a permit until the test says so.
func useAll(t testing.TB, s *lock.Semaphore) (uses *atomic.Int32, end func()) {
	uses = &atomic.Int32{}
	ctx, stop := context.WithCancel(within(t))
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			a, err := s.Acquire(context.WithoutCancel(ctx))
			if err == nil {
				err = a.Release(context.WithoutCancel(ctx))
			}
			if err != nil {
				t.Error(err)
				return
			}
			uses.Add(1)
		}
	})
	return uses, func() {
		stop()
		wg.Wait()
	}
}

// A process that is killed at any step leaves all permits, and one that is stopped goes on.
func TestSemaphoreClientKilledOrStopped(t *testing.T) {
	for _, w := range deathWays {
		w = w.sharing(t)
		for i, at := range permitSteps {
			if testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue
			}
			t.Run(w.name+"/"+at, func(t *testing.T) {
				last, host := w.semaphore(t, 1)
				s := openSemaphore(t, last.Open(t))
				uses, end := useAll(t, s)
				more := func() {
					t.Helper()
					n := uses.Load()
					eventually(t, "others get permits", func() bool { return uses.Load() > n+2 || t.Failed() })
				}
				file := filepath.Join(t.TempDir(), "continue")
				stopped := vmmctest.Child(t, last, "permits", at, "2", file)
				if got := stopped.Line(); got != at {
					t.Fatal(got)
				}
				stopped.Stop()
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				stopped.Continue()
				if err := stopped.Wait(); err != nil {
					t.Error(err)
				}
				more()
				killed := vmmctest.Child(t, last, "permits", at, "2", "/nonexistent/file")
				if got := killed.Line(); got != at {
					t.Fatal(got)
				}
				killed.Kill()
				eventually(t, "its lane ends", func() bool { return host.Clients() == 1 })
				more()
				end()
				if n := free(t, s); n != 1 {
					t.Errorf("%d permits", n)
				}
			})
		}
	}
}

// A false client makes no permits, and takes none of others.
func TestFalsePermits(t *testing.T) {
	last, _ := ways[0].semaphore(t, 2)
	s, bad := openSemaphore(t, last.Open(t)), openSemaphore(t, last.Open(t))
	a := acquired(t, s)
	ctx := within(t)
	for seq := range uint32(50) {
		for _, op := range []uint32{lock.OpRelease, lock.OpWithdraw, 0, 7} {
			if err := bad.Notify(ctx, op, seq, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := free(t, bad); n != 1 {
		t.Errorf("%d permits are free", n)
	}
	if err := a.Release(ctx); err != nil {
		t.Error(err)
	}
	for range 3 { // the same request again: one permit
		if err := bad.Notify(ctx, lock.OpRequest, 1<<20, false); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "one is free beside that of the false client", func() bool { return free(t, s) == 1 })
}

// once starts nodes and a host of a Once. Clients are on the last node.
func (w way) once(t testing.TB) (last *vmmctest.Node, s *lock.Server) {
	t.Helper()
	nodes := w.started(t)
	s, err := lock.HostOnce(within(t), nodes[0].Open(t), name, w.options()...)
	if err != nil {
		t.Fatal(err)
	}
	closing(t, s)
	return nodes[len(nodes)-1], s
}

func openOnce(t testing.TB, p *vmmc.Process) *lock.Once {
	t.Helper()
	o, err := lock.OpenOnce(within(t), p, name)
	if err != nil {
		t.Fatal(err)
	}
	leaving(t, o)
	return o
}

// One function runs, and all calls return when it has.
func TestOnce(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			last, s := w.once(t)
			ctx := within(t)
			var runs atomic.Int32
			var over atomic.Bool
			var wg sync.WaitGroup
			f := func(context.Context) error {
				runs.Add(1)
				eventually(t, "others wait", func() bool { return s.Waiting() == 2 })
				over.Store(true)
				return nil
			}
			var all []*lock.Once
			for range 3 {
				o := openOnce(t, last.Open(t))
				all = append(all, o)
				for range 2 {
					wg.Go(func() {
						if err := o.Do(ctx, f); err != nil || !over.Load() {
							t.Errorf("over: %t, %v", over.Load(), err)
						}
					})
				}
			}
			wg.Wait()
			if n := runs.Load(); n != 1 {
				t.Errorf("%d functions ran", n)
			}
			o := openOnce(t, last.Open(t))
			if o.Done() {
				t.Error("it cannot know")
			}
			if err := o.Do(ctx, f); err != nil || !o.Done() {
				t.Errorf("done: %t, %v", o.Done(), err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			for _, o := range all { // without the host
				if err := o.Do(ctx, f); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A function that fails or panics leaves it to the next one, and so does one whose client leaves.
func TestOnceFails(t *testing.T) {
	last, s := ways[0].once(t)
	a, b, c := openOnce(t, last.Open(t)), openOnce(t, last.Open(t)), openOnce(t, last.Open(t))
	ctx := within(t)
	failed := errors.New("failed")
	if err := a.Do(ctx, func(context.Context) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = a.Do(ctx, func(context.Context) error { panic("panics") })
	}()
	runs, left, errs := make(chan struct{}), make(chan struct{}), make(chan error, 2)
	go func() {
		errs <- a.Do(ctx, func(context.Context) error {
			close(runs)
			<-left
			return nil
		})
	}()
	<-runs
	soon, cancel := context.WithCancel(ctx)
	go func() { errs <- c.Do(soon, func(context.Context) error { return failed }) }()
	eventually(t, "one waits", func() bool { return s.Waiting() == 1 })
	cancel()
	if err := <-errs; !errors.Is(err, vmmc.ErrCanceled) {
		t.Errorf("a wait that is given up: %v", err)
	}
	if err := a.Close(ctx); err != nil {
		t.Fatal(err)
	}
	close(left)
	if err := <-errs; !errors.Is(err, vmmc.ErrClosed) {
		t.Errorf("a function whose client has left: %v", err)
	}
	ran := false
	if err := b.Do(ctx, func(context.Context) error { ran = true; return nil }); err != nil || !ran {
		t.Errorf("ran: %t, %v", ran, err)
	}
	if err := c.Do(ctx, func(context.Context) error { return failed }); err != nil {
		t.Errorf("it was done: %v", err)
	}
}

// runOnce is a child: step, how often, file. Its function succeeds.
func runOnce(ctx context.Context, p *vmmc.Process, args ...string) error {
	steps.PauseAt(args[0], args[1], args[2])
	o, err := lock.OpenOnce(ctx, p, name)
	if err != nil {
		return err
	}
	if err := o.Do(ctx, func(context.Context) error { return nil }); err != nil {
		return err
	}
	return o.Close(ctx)
}

// If the process that runs the function dies, another one runs its own; if it is stopped, others
// wait.
func TestOnceRunnerKilledOrStopped(t *testing.T) {
	for _, w := range deathWays {
		w = w.sharing(t)
		for i, at := range []string{"lock.request", "lock.answered", "once.runs", "once.ran", "unlock.released", "once.told", "close.sent"} {
			if testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue
			}
			for _, kill := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/kill %t", w.name, at, kill), func(t *testing.T) {
					last, s := w.once(t)
					file := filepath.Join(t.TempDir(), "continue")
					child := vmmctest.Child(t, last, "once", at, "1", file)
					if got := child.Line(); got != at {
						t.Fatal(got)
					}
					o := openOnce(t, last.Open(t))
					ran := 0
					errs := make(chan error, 1)
					ctx := within(t)
					if !kill {
						child.Stop()
					}
					go func() {
						errs <- o.Do(ctx, func(context.Context) error { ran++; return nil })
					}()
					over := at == "close.sent" || at == "once.told" || at == "unlock.released"
					if at != "lock.request" && !over {
						eventually(t, "it waits", func() bool { return s.Waiting() == 1 })
					}
					if kill {
						child.Kill()
					} else {
						if err := os.WriteFile(file, nil, 0o600); err != nil {
							t.Fatal(err)
						}
						child.Continue()
					}
					if err := <-errs; err != nil {
						t.Fatal(err)
					}
					if !kill {
						if err := child.Wait(); err != nil {
							t.Error(err)
						}
					}
					switch {
					case at == "lock.request", at == "unlock.released" && w.nodes == 2 && kill: // either of them
					case over && ran != 0, !kill && ran != 0:
						t.Error("another function has run")
					case kill && !over && ran != 1:
						t.Errorf("%d others have run", ran)
					}
				})
			}
		}
	}
}

// Do returns without an error only when the host knows that the function has succeeded: if the
// process died before, another one would run its own.
func TestOnceTold(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	host := vmmctest.Child(t, nodes[0], "others")
	host.Line()
	o, err := lock.OpenOnce(within(t), nodes[1].Open(t), "n1/once")
	if err != nil {
		t.Fatal(err)
	}
	leaving(t, o)
	ctx, cancel := context.WithCancel(within(t))
	steps.On(t, func(s string) {
		switch s {
		case "once.fenced":
			host.Stop()
		case "unlock.released":
			cancel()
		}
	})
	err = o.Do(ctx, func(context.Context) error { return nil })
	if !errors.Is(err, vmmc.ErrCanceled) || !errors.Is(err, vmmc.ErrOutcomeUnknown) || o.Done() {
		t.Errorf("the host does not know yet: done: %t, %v", o.Done(), err)
	}
	host.Continue()
	err = o.Do(within(t), func(context.Context) error { return errors.New("it runs again") })
	if err != nil || !o.Done() {
		t.Errorf("done: %t, %v", o.Done(), err)
	}
}

// closeAtAnswer closes a client when the answer to its request is there, before its call goes on.
func closeAtAnswer(t *testing.T, c interface {
	Close(ctx context.Context) error
},
) {
	t.Helper()
	sent := make(chan struct{})
	steps.On(t, func(s string) {
		switch s {
		case "lock.answered":
			go func() {
				if err := c.Close(within(t)); err != nil {
					t.Error(err)
				}
			}()
			<-sent
		case "close.sent":
			close(sent)
		}
	})
}

// A call that has its answer when its client is closed gets nothing: the host gives it to others.
func TestAnswerBesideClose(t *testing.T) {
	t.Run("semaphore", func(t *testing.T) {
		last, _ := ways[0].semaphore(t, 1)
		s := openSemaphore(t, last.Open(t))
		closeAtAnswer(t, s)
		if a, err := s.Acquire(within(t)); !errors.Is(err, vmmc.ErrClosed) {
			t.Errorf("%v, %v", a, err)
		}
	})
	t.Run("once", func(t *testing.T) {
		last, _ := ways[0].once(t)
		o := openOnce(t, last.Open(t))
		closeAtAnswer(t, o)
		err := o.Do(within(t), func(context.Context) error {
			t.Error("the function runs")
			return nil
		})
		if !errors.Is(err, vmmc.ErrClosed) {
			t.Errorf("%v", err)
		}
	})
	t.Run("mutex", func(t *testing.T) {
		nodes, _ := ways[0].start(t)
		m := open(t, nodes[0].Open(t))
		closeAtAnswer(t, m)
		if h, err := m.Lock(within(t)); !errors.Is(err, vmmc.ErrClosed) {
			t.Errorf("%v, %v", h, err)
		}
	})
}

// The numbers of requests wrap around. Then none is that of a permit that the client still has, nor
// that of the last answer.
func TestNumbersWrap(t *testing.T) {
	last, _ := ways[0].semaphore(t, 4)
	s := openSemaphore(t, last.Open(t))
	a, b := acquired(t, s), acquired(t, s) // 1 and 2
	s.SetSeq(lock.MaxSeq - 1)
	c := acquired(t, s) // the highest
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	steps.On(t, func(s string) {
		if s == "lock.waits" {
			cancel()
		}
	})
	d := acquired(t, s) // not 1 or 2
	if n := s.Seq(); n != 3 {
		t.Errorf("the next request has number %d", n)
	}
	s.SetSeq(2) // the last answer is to 3
	if e, err := s.Acquire(ctx); !errors.Is(err, vmmc.ErrCanceled) {
		t.Errorf("a permit beside the four that there are: %v, %v", e, err)
	}
	steps.Off()
	for _, x := range []*lock.Permitted{a, b, c, d} {
		if err := x.Release(within(t)); err != nil {
			t.Error(err)
		}
	}
	if n := free(t, s); n != 4 {
		t.Errorf("%d permits", n)
	}
}

// An event of a client's earlier end, which comes when the client is there again, ends nothing.
func TestLateEvent(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes, s := w.start(t)
			p := nodes[len(nodes)-1].Open(t)
			h := locked(t, open(t, p))
			s.TellGone(p.ID())
			if n := s.Clients(); n != 1 {
				t.Errorf("%d clients", n)
			}
			unlock(t, h)
		})
	}
}

// When a client ends, the host looks at its lease before it gives the memory of that back.
func TestLeaseOfTheDead(t *testing.T) {
	for _, w := range deathWays {
		t.Run(w.name, func(t *testing.T) {
			nodes, s := w.start(t)
			last := nodes[len(nodes)-1]
			m := open(t, last.Open(t))
			child := vmmctest.Child(t, last, "holder")
			child.Line()
			var closes atomic.Bool
			steps.On(t, func(s string) {
				switch s {
				case "host.closes":
					closes.Store(true)
				case "host.ends": // it is about to look
					for range 10_000 {
						runtime.Gosched()
					}
					if closes.Load() {
						t.Error("the memory of the lease was given back")
					}
				}
			})
			child.Kill()
			h := locked(t, m)
			if !h.Abandoned() {
				t.Error("the holder before has died")
			}
			unlock(t, h)
			eventually(t, "its lane ends", func() bool { return s.Clients() == 1 && closes.Load() })
		})
	}
}

// holder is a child that has the lock until it is killed.
func holder(ctx context.Context, p *vmmc.Process, _ ...string) error {
	m, err := lock.Open(ctx, p, name)
	if err != nil {
		return err
	}
	if _, err := m.Lock(ctx); err != nil {
		return err
	}
	fmt.Println("holds")
	<-ctx.Done() // never: the test kills it
	return nil
}

// Calls of a semaphore and a Once end with their host.
func TestOtherHostsKilled(t *testing.T) {
	for _, w := range deathWays {
		t.Run(w.name, func(t *testing.T) {
			nodes := vmmctest.Nodes(t, w.nodes)
			host := vmmctest.Child(t, nodes[0], "others")
			host.Line()
			p := nodes[len(nodes)-1].Open(t)
			ctx := within(t)
			s, err := lock.OpenSemaphore(ctx, p, "n1/semaphore")
			if err != nil {
				t.Fatal(err)
			}
			leaving(t, s)
			o, err := lock.OpenOnce(ctx, p, "n1/once")
			if err != nil {
				t.Fatal(err)
			}
			leaving(t, o)
			c, err := lock.OpenCounter(ctx, p, "n1/counter")
			if err != nil {
				t.Fatal(err)
			}
			closing(t, c)
			a := acquired(t, s)
			errs := make(chan error, 2)
			waits := make(chan struct{}, 2)
			steps.On(t, func(s string) {
				if s == "lock.waits" {
					waits <- struct{}{}
				}
			})
			go func() {
				_, err := s.Acquire(ctx)
				errs <- err
			}()
			<-waits
			go func() {
				errs <- o.Do(ctx, func(context.Context) error {
					host.Kill()
					<-a.Lost()
					return nil
				})
			}()
			for range 2 {
				if err := <-errs; !errors.Is(err, vmmc.ErrPeerGone) {
					t.Errorf("%v", err)
				}
			}
			if err := a.Release(ctx); !errors.Is(err, vmmc.ErrPeerGone) {
				t.Errorf("a release: %v", err)
			}
			if _, err := c.Add(ctx, 1); !errors.Is(err, vmmc.ErrPeerGone) {
				t.Errorf("an addition: %v", err)
			}
		})
	}
}

// hostOthers is a child that hosts several things.
func hostOthers(ctx context.Context, p *vmmc.Process, _ ...string) error {
	_, err1 := lock.HostSemaphore(ctx, p, "n1/semaphore", 1)
	_, err2 := lock.HostOnce(ctx, p, "n1/once")
	_, err3 := lock.HostCounter(ctx, p, "n1/counter", 0)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	fmt.Println("hosts")
	<-ctx.Done() // never: the test kills it
	return nil
}

// addForever is a child that adds one again and again, after it has printed.
func addForever(ctx context.Context, p *vmmc.Process, _ ...string) error {
	c, err := lock.OpenCounter(ctx, p, name)
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		if _, err := c.Add(ctx, 1); err != nil {
			return err
		}
		if i == 100 {
			fmt.Println("adds")
		}
	}
}

// Nothing that was added is lost, nor added twice, whichever process dies.
func TestCounter(t *testing.T) {
	const begin = 1<<32 - 50 // both halves change
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes := vmmctest.Nodes(t, w.nodes)
			p, last := nodes[0].Open(t), nodes[len(nodes)-1]
			ctx := within(t)
			host, err := lock.HostCounter(ctx, p, name, begin, w.options()...)
			if err != nil {
				t.Fatal(err)
			}
			closing(t, host)
			var wg sync.WaitGroup
			var counters []*lock.Counter
			for _, q := range []*vmmc.Process{p, last.Open(t), last.Open(t)} {
				c, err := lock.OpenCounter(ctx, q, name)
				if err != nil {
					t.Fatal(err)
				}
				closing(t, c)
				counters = append(counters, c)
				wg.Go(func() {
					for range 100 {
						if _, err := c.Add(ctx, 3); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			c := counters[0]
			if n, err := c.Load(ctx); n != begin+900 || err != nil {
				t.Errorf("%d, %v, want %d", n, err, uint64(begin+900))
			}
			child := vmmctest.Child(t, last, "adder")
			child.Line()
			child.Kill()
			eventually(t, "it ends", func() bool {
				a, err1 := c.Load(ctx)
				time.Sleep(time.Millisecond)
				b, err2 := c.Load(ctx)
				return a == b && a >= begin+1000 && err1 == nil && err2 == nil
			})
			n, err := c.Load(ctx)
			if sum, err2 := c.Add(ctx, 1<<63); sum != n+1<<63 || err != nil || err2 != nil {
				t.Errorf("%d, %v, %v", sum, err, err2)
			}
			if err := host.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Add(ctx, 1); !errors.Is(err, vmmc.ErrRevoked) {
				t.Errorf("its host has closed it: %v", err)
			}
		})
	}
}

// A name is for one kind of thing, and options for those that have what they are about.
func TestKinds(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	p, ctx := node.Open(t), within(t)
	for kind, host := range map[string]func(name string, opts ...lock.Option) (*lock.Server, error){
		"semaphore": func(name string, opts ...lock.Option) (*lock.Server, error) {
			return lock.HostSemaphore(ctx, p, name, 1, opts...)
		},
		"once": func(name string, opts ...lock.Option) (*lock.Server, error) {
			return lock.HostOnce(ctx, p, name, opts...)
		},
		"counter": func(name string, opts ...lock.Option) (*lock.Server, error) {
			return lock.HostCounter(ctx, p, name, 1, opts...)
		},
	} {
		s, err := host(kind)
		if err != nil {
			t.Fatal(err)
		}
		closing(t, s)
		if _, err := lock.Open(ctx, p, kind); !errors.Is(err, vmmc.ErrBadArg) || !strings.Contains(err.Error(), "it is a "+kind+" and no mutex") {
			t.Errorf("%s: %v", kind, err)
		}
		if _, err := host(kind+"2", lock.After(1)); !errors.Is(err, vmmc.ErrBadArg) {
			t.Errorf("tokens of a %s: %v", kind, err)
		}
		if _, err := host(kind); !errors.Is(err, vmmc.ErrBufAlreadyExists) && !errors.Is(err, vmmc.ErrNameTaken) {
			t.Errorf("a second %s: %v", kind, err)
		}
	}
	if _, err := lock.OpenCounter(ctx, p, "once"); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("a counter: %v", err)
	}
	if _, err := lock.HostCounter(ctx, p, "x", 1, lock.MaxClients(2)); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("clients of a counter: %v", err)
	}
	if _, err := lock.HostSemaphore(ctx, p, "x", 0); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("no permits: %v", err)
	}
}
