package call_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/call"
	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/view"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// gate is handlers that wait until the test lets them go on, or their context ends.
type gate struct {
	running atomic.Int32
	open    chan struct{}
	ended   chan error // what the contexts of those say that ended so
}

func newGate() *gate { return &gate{open: make(chan struct{}), ended: make(chan error, 64)} }

func (g *gate) handle(ctx context.Context, q *question, a *answer) error {
	g.running.Add(1)
	defer g.running.Add(-1)
	switch q.What {
	case fails:
		return errors.New("it fails")
	case panics:
		panic("a secret")
	case exits:
		runtime.Goexit()
	case blocks:
		select {
		case <-g.open:
		case <-ctx.Done():
			g.ended <- context.Cause(ctx)
			return ctx.Err()
		}
	}
	return reply(q, a)
}

// begin makes a call that blocks, and returns when its handler runs.
func (g *gate) begin(
	t testing.TB, ctx context.Context, c *call.Client[question, answer], id uint64,
) chan error {
	t.Helper()
	done, n := make(chan error, 1), g.running.Load()
	go func() { done <- get(ctx, c, ask(9, id, blocks)) }()
	eventually(t, "a handler runs", func() bool { return g.running.Load() > n })
	return done
}

// Calls of several clients, several of each at a time, have their answers, and run once, also where
// the numbers of calls begin anew.
func TestCalls(t *testing.T) {
	const clients, callers, n = 3, 5, 60
	for _, w := range ways {
		nodes := vmmctest.Nodes(t, w.nodes)
		for about, start := range map[string]uint64{
			"from 0": 0, "the low word wraps": 1<<32 - 100,
		} {
			t.Run(w.name+"/"+about, func(t *testing.T) {
				var ran sync.Map
				world := w.on(t, nodes, func(_ context.Context, q *question, a *answer) error {
					if _, again := ran.LoadOrStore(uint64(q.From)<<32|q.ID, true); again {
						t.Errorf("call %d of caller %d runs again", q.ID, q.From)
					}
					return reply(q, a)
				})
				ctx := within(t)
				var wg sync.WaitGroup
				for i := range clients {
					c := world.dial(t, call.Slots(i+1), call.StartAt(start))
					for j := range callers {
						wg.Go(func() {
							for k := range n {
								from := uint32(i*callers + j)
								if err := get(ctx, c, ask(from, uint64(k), plain)); err != nil {
									t.Error(err)
									return
								}
								if _, ok := ran.Load(uint64(from)<<32 | uint64(k)); !ok {
									t.Errorf("call %d of caller %d has not run", k, from)
								}
							}
						})
					}
				}
				wg.Wait()
			})
		}
	}
}

// Values of all sizes arrive whole, those whose number lies elsewhere too.
func TestValues(t *testing.T) {
	type large struct {
		N    uint64
		Fill [40_000]uint64
	}
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes := vmmctest.Nodes(t, w.nodes)
			p, q := nodes[0].Open(t), nodes[len(nodes)-1].Open(t)
			steps.On(t, func(s string) {
				if s == "serve.late" && w.name == "mapped" {
					t.Error("an answer that waits for nothing is sent twice")
				}
			})
			echoes(t, w, p, q, "n1/byte", uint8(200), uint8(7))
			echoes(t, w, p, q, "n1/short", uint16(50_000), uint16(7))
			echoes(t, w, p, q, "n1/three", [3]uint32{1, 2, 3}, [3]uint32{4, 5, 6})
			one, two := large{N: 1}, large{N: 2}
			for i := range one.Fill {
				one.Fill[i], two.Fill[i] = uint64(i), uint64(i)*3
			}
			echoes(t, w, p, q, "n1/large", one, two)
		})
	}
}

// echoes calls a server that returns what it is given.
func echoes[T comparable](t *testing.T, w way, server, client *vmmc.Process, name string, vs ...T) {
	t.Helper()
	var opts []call.ServeOption
	var dials []call.DialOption
	if w.unmapped {
		opts = append(opts, call.UnmappedRequests())
		dials = append(dials, call.UnmappedAnswers())
	}
	s, err := call.Serve(within(t), server, name, func(_ context.Context, q, a *T) error {
		*a = *q
		return nil
	}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := call.Dial[T, T](within(t), client, name, append(dials, call.Slots(2))...)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		for _, v := range vs {
			var a T
			if err := c.Call(within(t), &v, &a); err != nil || a != v {
				t.Errorf("%s: another value, or %v", name, err)
			}
		}
	}
}

// An error of a handler reaches the client as text, of a bounded length.
func TestRemoteError(t *testing.T) {
	var text atomic.Value
	c := ways[0].start(t, func(context.Context, *question, *answer) error {
		return errors.New(text.Load().(string))
	}).dial(t)
	for in, want := range map[string]string{
		"":                             "",
		"no such item":                 "no such item",
		strings.Repeat("x", 1000):      strings.Repeat("x", 1000),
		strings.Repeat("x", 5000):      strings.Repeat("x", 1000),
		strings.Repeat("é", 600):       strings.Repeat("é", 500),
		"x" + strings.Repeat("é", 600): "x" + strings.Repeat("é", 499) + "\uFFFD",
		"a\xffb":                       "a\uFFFDb",
		strings.Repeat("\xff ", 600):   strings.Repeat("\uFFFD ", 250),
	} {
		text.Store(in)
		err := get(within(t), c, ask(1, 1, plain))
		var remote *call.RemoteError
		if !errors.As(err, &remote) {
			t.Fatalf("%v", err)
		}
		if !utf8.ValidString(remote.Text) || len(remote.Text) > call.MaxText || remote.Panicked {
			t.Errorf("%q: %d bytes, %+v", in, len(remote.Text), remote)
		}
		if remote.Text != want && remote.Text != strings.TrimSuffix(want, "\uFFFD") {
			t.Errorf("%q: %q, want %q", in, remote.Text, want)
		}
		if errors.Is(err, vmmc.ErrOutcomeUnknown) {
			t.Errorf("%v: the outcome is known", err)
		}
	}
}

// A handler that panics, or ends its goroutine, is logged, and ends nothing but its call.
func TestPanic(t *testing.T) {
	var log strings.Builder
	g := newGate()
	w := ways[0].start(t, g.handle, call.Handlers(1),
		call.Logger(slog.New(slog.NewTextHandler(&log, nil))))
	c := w.dial(t)
	for range 3 {
		for _, what := range []uint32{panics, exits} {
			err := get(within(t), c, ask(1, 1, what))
			var remote *call.RemoteError
			if !errors.As(err, &remote) || !remote.Panicked || strings.Contains(err.Error(), "secret") {
				t.Errorf("%v", err)
			}
			if err := get(within(t), c, ask(1, 2, plain)); err != nil {
				t.Errorf("the next call: %v", err)
			}
		}
	}
	if err := w.s.Shutdown(within(t)); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"a secret", "gate).handle", "has ended its goroutine"} {
		if n := strings.Count(log.String(), want); n < 3 {
			t.Errorf("%q is logged %d times: %s", want, n, log.String())
		}
	}
}

// A handler that does not return does not hold up others, up to the number of handlers. Then
// requests wait, and go on when one has returned.
func TestSlowHandlers(t *testing.T) {
	const handlers = 4
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			g := newGate()
			world := w.start(t, g.handle, call.Handlers(handlers))
			c, other := world.dial(t), world.dial(t)
			ctx := within(t)
			var begun []chan error
			for i := range handlers - 1 {
				begun = append(begun, g.begin(t, ctx, c, uint64(i)))
				for range 3 {
					if err := get(ctx, other, ask(2, 1, plain)); err != nil {
						t.Fatal(err)
					}
				}
			}
			begun = append(begun, g.begin(t, ctx, other, 100))
			waits := make(chan error, 1)
			giveUp(t, c, ask(1, 1, plain)) // beside as many as may run
			go func() { waits <- get(ctx, c, ask(1, 2, plain)) }()
			g.open <- struct{}{}
			if err := <-waits; err != nil {
				t.Error(err)
			}
			close(g.open)
			for _, done := range begun {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			if n := world.s.Workers(); n > handlers {
				t.Errorf("%d workers", n)
			}
		})
	}
}

// A client has as many calls under way as it has slots; others wait, also for a call that was given
// up, whose late answer is in no other call.
func TestSlots(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			g := newGate()
			c := w.start(t, g.handle).dial(t, call.Slots(2))
			ctx := within(t)
			first := g.begin(t, ctx, c, 1)
			soon, cancel := context.WithCancel(ctx)
			second := g.begin(t, soon, c, 2)
			cancel()
			err := <-second
			if !errors.Is(err, vmmc.ErrCanceled) || !errors.Is(err, context.Canceled) ||
				!errors.Is(err, vmmc.ErrOutcomeUnknown) {
				t.Errorf("a call that was given up: %v", err)
			}
			soon, cancel = context.WithTimeout(ctx, 10*time.Millisecond)
			defer cancel()
			err = get(soon, c, ask(1, 3, plain))
			if !errors.Is(err, vmmc.ErrTimeout) || errors.Is(err, vmmc.ErrOutcomeUnknown) {
				t.Errorf("a call without a slot: %v", err)
			}
			waits := make(chan error, 4)
			for i := range cap(waits) {
				go func() { waits <- get(ctx, c, ask(1, uint64(4+i), plain)) }()
			}
			eventually(t, "calls wait", func() bool { return c.Waiting() == cap(waits) })
			close(g.open)
			for range cap(waits) {
				if err := <-waits; err != nil {
					t.Error(err)
				}
			}
			if err := <-first; err != nil {
				t.Error(err)
			}
			eventually(t, "all slots are free", func() bool { c.Sweep(); return c.Free() == 2 })
			for i := range 20 {
				if err := get(ctx, c, ask(1, uint64(i), plain)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Late answers of calls that were given up at any time are in no other call, and nothing runs twice.
func TestGivenUp(t *testing.T) {
	const n = 400
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			var ran [n]atomic.Int32
			c := w.start(t, func(_ context.Context, q *question, a *answer) error {
				ran[q.ID].Add(1)
				for range q.ID % 7 {
					runtime.Gosched()
				}
				return reply(q, a)
			}).dial(t, call.Slots(3))
			var wg sync.WaitGroup
			var succeeded [n]bool
			for part := range 4 {
				wg.Go(func() {
					for i := part; i < n; i += 4 {
						ctx, cancel := context.WithTimeout(within(t), time.Duration(i%40)*5*time.Microsecond)
						if i%3 == 0 {
							cancel()
							ctx, cancel = context.WithCancel(within(t))
						}
						err := get(ctx, c, ask(1, uint64(i), plain))
						cancel()
						if succeeded[i] = err == nil; err != nil && !errors.Is(err, vmmc.ErrTimeout) {
							t.Errorf("call %d: %v", i, err)
						}
						if k := ran[i].Load(); err != nil && k > 0 && !errors.Is(err, vmmc.ErrOutcomeUnknown) {
							t.Errorf("call %d has run: %v", i, err)
						}
					}
				})
			}
			wg.Wait()
			eventually(t, "all slots are free", func() bool { c.Sweep(); return c.Free() == 3 })
			for i := range n {
				if k := ran[i].Load(); k > 1 || succeeded[i] && k != 1 {
					t.Errorf("call %d ran %d times, and returned nil: %t", i, k, succeeded[i])
				}
			}
		})
	}
}

// A handler's context ends when its client is closed, and when the server is.
func TestHandlerContext(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			g := newGate()
			world := w.start(t, g.handle)
			c := world.dial(t)
			done := g.begin(t, within(t), c, 1)
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if err := <-done; !errors.Is(err, vmmc.ErrClosed) || !errors.Is(err, vmmc.ErrOutcomeUnknown) {
				t.Errorf("the call: %v", err)
			}
			if err := <-g.ended; !errors.Is(err, context.Canceled) {
				t.Errorf("the handler: %v", err)
			}
			eventually(t, "the server has no client", func() bool { return world.s.Clients() == 0 })
			if err := get(within(t), c, ask(1, 1, plain)); !errors.Is(err, vmmc.ErrClosed) ||
				errors.Is(err, vmmc.ErrOutcomeUnknown) {
				t.Errorf("a call after the close: %v", err)
			}
			c = world.dial(t)
			done = g.begin(t, within(t), c, 2)
			if err := world.s.Close(); err != nil {
				t.Error(err)
			}
			if err := <-g.ended; !errors.Is(err, context.Canceled) {
				t.Errorf("the handler: %v", err)
			}
			if err := <-done; !errors.Is(err, vmmc.ErrRevoked) || !errors.Is(err, vmmc.ErrOutcomeUnknown) {
				t.Errorf("the call: %v", err)
			}
			if err := get(within(t), c, ask(1, 1, plain)); !errors.Is(err, vmmc.ErrRevoked) ||
				errors.Is(err, vmmc.ErrOutcomeUnknown) {
				t.Errorf("a call after the server's close: %v", err)
			}
		})
	}
}

func TestCaller(t *testing.T) {
	var from atomic.Value
	var mu sync.Mutex
	contexts := map[context.Context]int{}
	w := ways[0].start(t, func(ctx context.Context, q *question, a *answer) error {
		id, ok := call.Caller(ctx)
		if !ok {
			return errors.New("it has no caller")
		}
		from.Store(id)
		mu.Lock()
		contexts[ctx]++
		mu.Unlock()
		return reply(q, a)
	})
	for range 2 {
		p := w.last().Open(t)
		c := dial(t, p)
		for n := range uint64(2) {
			if err := get(within(t), c, ask(1, n, plain)); err != nil {
				t.Fatal(err)
			}
		}
		if from.Load() != p.ID() {
			t.Errorf("from %v, want %v", from.Load(), p.ID())
		}
	}
	mu.Lock()
	for _, n := range contexts {
		if n != 2 || len(contexts) != 2 {
			t.Errorf("%d contexts of two clients, one of %d calls", len(contexts), n)
		}
	}
	mu.Unlock()
	if _, ok := call.Caller(context.Background()); ok {
		t.Error("no handler has a caller")
	}
}

// Shutdown waits for handlers, and their answers arrive. What was not taken is known not to run.
func TestShutdown(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			g := newGate()
			world := w.start(t, g.handle, call.Handlers(1))
			c := world.dial(t)
			runs := g.begin(t, within(t), c, 1)
			arrived := make(chan struct{}, 1)
			steps.On(t, func(s string) {
				if s == "call.sent" {
					arrived <- struct{}{}
				}
			})
			waits := make(chan error, 1)
			go func() { waits <- get(within(t), c, ask(1, 2, plain)) }()
			<-arrived
			if err := c.Lane().Fence(within(t)); err != nil {
				t.Fatal(err)
			}
			soon, cancel := context.WithTimeout(within(t), 10*time.Millisecond)
			defer cancel()
			if err := world.s.Shutdown(soon); !errors.Is(err, vmmc.ErrTimeout) {
				t.Errorf("a shutdown beside a handler: %v", err)
			}
			close(g.open)
			if err := world.s.Shutdown(within(t)); err != nil {
				t.Error(err)
			}
			if err := <-runs; err != nil {
				t.Errorf("the call that ran: %v", err)
			}
			if err := <-waits; !errors.Is(err, vmmc.ErrRevoked) || errors.Is(err, vmmc.ErrOutcomeUnknown) {
				t.Errorf("the call that waited: %v", err)
			}
			// The name is free again.
			serve(t, world.nodes[0].Open(t), plainly)
			if err := get(within(t), world.dial(t), ask(1, 3, plain)); err != nil {
				t.Error(err)
			}
		})
	}
}

// Calls go on over lost connections, and each runs once.
func TestOverCuts(t *testing.T) {
	const n = 600
	nodes := vmmctest.Nodes(t, 2)
	var ran [n]atomic.Int32
	serve(t, nodes[0].Open(t, vmmc.WithResume(bound)),
		func(_ context.Context, q *question, a *answer) error {
			ran[q.ID].Add(1)
			return reply(q, a)
		})
	c := dial(t, nodes[1].Open(t, vmmc.WithResume(bound)), call.Slots(4))
	var wg sync.WaitGroup
	for part := range 4 {
		wg.Go(func() {
			for i := part; i < n; i += 4 {
				if i%200 == 100 {
					nodes[0].Cut()
					nodes[0].Heal()
				}
				if err := get(within(t), c, ask(1, uint64(i), plain)); err != nil {
					t.Errorf("call %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	for i := range n {
		if k := ran[i].Load(); k != 1 {
			t.Errorf("call %d ran %d times", i, k)
		}
	}
}

// Calls of other clients go on while the link with one client is away; its answers come when it is
// back, and its calls that were given up leave its slots.
func TestBesideALostLink(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	down := make(chan struct{}, 64)
	p := nodes[0].Open(t, vmmc.WithResume(10*bound), vmmc.WithEvents(func(e vmmc.Event) {
		if e.Kind == vmmc.LinkDown {
			down <- struct{}{}
		}
	}))
	g := newGate()
	serve(t, p, g.handle, call.Handlers(2))
	far := dial(t, nodes[1].Open(t, vmmc.WithResume(10*bound)), call.Slots(4))
	near := dial(t, nodes[0].Open(t))
	var begun []chan error
	for i := range 2 {
		begun = append(begun, g.begin(t, within(t), far, uint64(i)))
	}
	nodes[0].Cut()
	<-down
	<-down // its link with the server, and the server's with it
	close(g.open)
	for i := range 20 {
		if err := get(within(t), near, ask(1, uint64(i), plain)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 { // the requests are sent, or not
		ctx, cancel := context.WithTimeout(within(t), time.Millisecond)
		if err := get(ctx, far, ask(1, uint64(100+i), plain)); !errors.Is(err, vmmc.ErrTimeout) {
			t.Errorf("a call without a link: %v", err)
		}
		cancel()
	}
	nodes[0].Heal()
	for _, done := range begun {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	eventually(t, "all slots are free", func() bool { far.Sweep(); return far.Free() == 4 })
	if err := get(within(t), far, ask(1, 200, plain)); err != nil {
		t.Error(err)
	}
}

// A Shutdown does not wait for a link that is away, which an answer waits for.
func TestShutdownBesideALostLink(t *testing.T) {
	defer call.SetFenceTime(100 * time.Millisecond)()
	nodes := vmmctest.Nodes(t, 2)
	down := make(chan struct{}, 64)
	p := nodes[0].Open(t, vmmc.WithResume(10*bound), vmmc.WithEvents(func(e vmmc.Event) {
		if e.Kind == vmmc.LinkDown {
			down <- struct{}{}
		}
	}))
	g := newGate()
	s := serve(t, p, g.handle)
	far := dial(t, nodes[1].Open(t, vmmc.WithResume(10*bound)))
	ctx, cancel := context.WithCancel(within(t))
	done := g.begin(t, ctx, far, 1)
	nodes[0].Cut()
	<-down
	<-down // its link with the server, and the server's with it
	late := make(chan struct{})
	steps.On(t, func(s string) {
		if s == "serve.late" {
			close(late)
		}
	})
	close(g.open)
	<-late
	if err := s.Shutdown(within(t)); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("a call whose answer was lost")
	}
	nodes[0].Heal()
}

// There are as many clients, with as many slots, as the server allows.
func TestBounds(t *testing.T) {
	w := ways[0].start(t, plainly, call.MaxClients(2), call.MaxSlots(4))
	p := w.last().Open(t)
	dials := func(n int) (*call.Client[question, answer], error) {
		return call.Dial[question, answer](within(t), p, name, call.Slots(n))
	}
	if _, err := dials(5); !errors.Is(err, vmmc.ErrNoMem) {
		t.Errorf("5 slots: %v", err)
	}
	dial(t, p, call.Slots(4))
	c := dial(t, p, call.Slots(4))
	if _, err := dials(4); !errors.Is(err, vmmc.ErrNoMem) {
		t.Errorf("a third client: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server knows", func() bool { return w.s.Clients() == 1 })
	dial(t, p, call.Slots(4))
}

func TestRefused(t *testing.T) {
	ctx := within(t)
	w := ways[0].start(t, plainly)
	p := w.last().Open(t)
	type other struct {
		ID   uint64
		Kind uint32
		_    [4]byte
	}
	var layout *view.LayoutError
	_, err := call.Dial[other, answer](ctx, p, name)
	if !errors.As(err, &layout) || layout.Field != "Kind" || !strings.Contains(err.Error(), "requests") {
		t.Errorf("another request: %v", err)
	}
	type poor struct {
		ID   uint64
		Fill [4]uint64
		Sum  uint64
	}
	_, err = call.Dial[question, poor](ctx, p, name)
	if !errors.As(err, &layout) || layout.Field != "Fill" || !strings.Contains(err.Error(), "answers") {
		t.Errorf("another answer: %v", err)
	}
	type rich struct { // of a size for which the server has no number of slots
		ID   uint64
		Fill [12345]uint64
	}
	_, err = call.Dial[question, rich](ctx, p, name)
	if !errors.As(err, &layout) || layout.Field != "Fill" || !strings.Contains(err.Error(), "answers") {
		t.Errorf("a longer answer: %v", err)
	}
	eventually(t, "the server has no client", func() bool { return w.s.Clients() == 0 })
	var refused *view.TypeError
	if _, err := call.Dial[string, answer](ctx, p, name); !errors.As(err, &refused) {
		t.Errorf("strings: %v", err)
	}
	if _, err := call.Dial[question, []byte](ctx, p, name); !errors.As(err, &refused) {
		t.Errorf("slices: %v", err)
	}
	if _, err := call.Serve(ctx, p, "strings", func(context.Context, *string, *answer) error {
		return nil
	}); !errors.As(err, &refused) {
		t.Errorf("strings: %v", err)
	}
	local, err := view.Export[question](p, 77, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	if err := local.Export().PublishAs(ctx, "no server"); err != nil {
		t.Fatal(err)
	}
	c, s := dial(t, p), w.s
	q, a := ask(1, 1, plain), answer{}
	for what, do := range map[string]func() error{
		"no server":                 func() error { _, err := call.Dial[question, answer](ctx, p, "no server"); return err },
		"no slots":                  func() error { _, err := call.Dial[question, answer](ctx, p, name, call.Slots(0)); return err },
		"many slots":                func() error { _, err := call.Dial[question, answer](ctx, p, name, call.Slots(1025)); return err },
		"nil option":                func() error { _, err := call.Dial[question, answer](ctx, p, name, nil); return err },
		"nil context":               func() error { _, err := call.Dial[question, answer](nil, p, name); return err }, //nolint:staticcheck // the test
		"no handlers":               func() error { _, err := call.Serve(ctx, p, "x", plainly, call.Handlers(0)); return err },
		"no clients":                func() error { _, err := call.Serve(ctx, p, "x", plainly, call.MaxClients(0)); return err },
		"no maximum":                func() error { _, err := call.Serve(ctx, p, "x", plainly, call.MaxSlots(0)); return err },
		"serve nil":                 func() error { _, err := call.Serve(ctx, p, "x", plainly, nil); return err },
		"no function":               func() error { _, err := call.Serve[question, answer](ctx, p, "x", nil); return err },
		"a call with a nil context": func() error { return c.Call(nil, &q, &a) }, //nolint:staticcheck // the test
		"a nil request":             func() error { return c.Call(ctx, nil, &a) },
		"a nil answer":              func() error { return c.Call(ctx, &q, nil) },
		"a shutdown with nil":       func() error { return s.Shutdown(nil) }, //nolint:staticcheck // the test
	} {
		if err := do(); !errors.Is(err, vmmc.ErrBadArg) {
			t.Errorf("%s: %v", what, err)
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := c.Call(ended, &q, &a); !errors.Is(err, vmmc.ErrCanceled) ||
		errors.Is(err, vmmc.ErrOutcomeUnknown) {
		t.Errorf("a context that has ended: %v", err)
	}
	if _, err := call.Serve(ctx, p, name, plainly); !errors.Is(err, vmmc.ErrNameTaken) {
		t.Errorf("a name that is taken: %v", err)
	}
}

// No call may be made in a notification handler, where it could wait for itself.
func TestInHandler(t *testing.T) {
	w := ways[0].start(t, plainly)
	p := w.last().Open(t)
	c, mem := dial(t, p), make(chan error, 4)
	m, err := p.Alloc(4)
	if err != nil {
		t.Fatal(err)
	}
	e, err := p.Export(1, m.Bytes(), vmmc.WithHandler(func(vmmc.Notification) {
		_, err := call.Dial[question, answer](context.Background(), p, name)
		mem <- err
		mem <- get(context.Background(), c, ask(1, 1, plain))
		mem <- c.Close()
		mem <- w.s.Close()
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	im, err := w.last().Open(t).Import(within(t), p.Node(), p.PID(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := im.SendNotify(within(t), make([]byte, 4), 0); err != nil {
		t.Fatal(err)
	}
	for i := range cap(mem) {
		if err := <-mem; !errors.Is(err, vmmc.ErrNotInHandler) {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

// A handler may call, also its own server.
func TestCallsInHandlers(t *testing.T) {
	const depth = 5
	var own atomic.Pointer[call.Client[question, answer]]
	w := ways[0].start(t, func(ctx context.Context, q *question, a *answer) error {
		if q.ID > 0 {
			if err := get(ctx, own.Load(), ask(1, q.ID-1, plain)); err != nil {
				return err
			}
		}
		return reply(q, a)
	}, call.Handlers(depth+1))
	c := w.dial(t)
	own.Store(c)
	for range 3 {
		if err := get(within(t), c, ask(1, depth, plain)); err != nil {
			t.Error(err)
		}
	}
}

func TestAllocations(t *testing.T) {
	if raceEnabled || invariant.Enabled {
		t.Skip("the race detector and the library's own checks allocate")
	}
	for _, w := range ways[:2] { // the wire between nodes allocates
		t.Run(w.name, func(t *testing.T) {
			c := w.start(t, plainly).dial(t)
			for _, ctx := range []context.Context{within(t), context.Background()} {
				id := uint64(0)
				if n := testing.AllocsPerRun(500, func() {
					id++
					if err := get(ctx, c, ask(1, id, plain)); err != nil {
						t.Fatal(err)
					}
				}); n != 0 {
					t.Errorf("%T: %v allocations", ctx, n)
				}
			}
		})
	}
}
