package call_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/call"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// TestModel compares a server and its clients with a model of what runs, waits and is over. Its
// handlers wait until the model ends them, so it knows what the calls must return.
func TestModel(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	server, clients := node.Open(t), []*vmmc.Process{node.Open(t), node.Open(t)}
	rapid.Check(t, func(t *rapid.T) {
		m := &model{
			t: t, p: clients, handlers: rapid.IntRange(1, 4).Draw(t, "handlers"),
			slots:   rapid.IntRange(1, 3).Draw(t, "slots"),
			release: map[uint64]chan uint32{},
		}
		s, err := call.Serve(t.Context(), server, "model", m.handle, call.Handlers(m.handlers),
			call.Logger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		m.s = s
		defer m.end()
		for i := range clients {
			m.clients = append(m.clients, &modelClient{})
			m.dial(i)
		}
		t.Repeat(map[string]func(*rapid.T){
			"call": m.call, "let go": m.letGo, "cancel": m.cancel, "dial anew": m.dialAnew, "": m.check,
		})
	})
}

// model is what is known. Times at which handlers begin are not, only how many run in the end.
type model struct {
	t               *rapid.T
	p               []*vmmc.Process
	s               *call.Server
	handlers, slots int
	clients         []*modelClient
	calls           []*modelCall // not over at the server, in no order
	last            uint64

	mu      sync.Mutex
	release map[uint64]chan uint32 // of the handlers that run
	ran     sync.Map               // how often each call has run, by id
}

type modelClient struct {
	c    *call.Client[question, answer]
	used int // slots, also those of calls that were given up and not answered
}

type modelCall struct {
	id      uint64
	of      *modelClient
	cancel  context.CancelFunc
	done    chan error
	givenUp bool
}

func (m *model) handle(ctx context.Context, q *question, a *answer) error {
	n, _ := m.ran.LoadOrStore(q.ID, new(atomic.Int32))
	n.(*atomic.Int32).Add(1)
	goOn := make(chan uint32, 1)
	m.mu.Lock()
	m.release[q.ID] = goOn
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		delete(m.release, q.ID)
		m.mu.Unlock()
	}()
	select {
	case what := <-goOn:
		if what == fails {
			return errors.New("it fails")
		}
		if what == panics {
			panic("it panics")
		}
		return reply(q, a)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *model) running() []uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var ids []uint64
	for id := range m.release {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (m *model) dial(i int) {
	c, err := call.Dial[question, answer](m.t.Context(), m.p[i], "model", call.Slots(m.slots))
	if err != nil {
		m.t.Fatal(err)
	}
	m.clients[i].c, m.clients[i].used = c, 0
}

// call begins a call where there is a slot.
func (m *model) call(t *rapid.T) {
	c := m.clients[rapid.IntRange(0, len(m.clients)-1).Draw(t, "client")]
	m.last++
	k := &modelCall{id: m.last, of: c, done: make(chan error, 1)}
	var ctx context.Context
	ctx, k.cancel = context.WithCancel(context.Background())
	if c.used == m.slots {
		k.cancel()
		soon, stop := context.WithTimeout(context.Background(), time.Millisecond)
		defer stop()
		err := get(soon, c.c, ask(1, k.id, plain))
		if !errors.Is(err, vmmc.ErrTimeout) || errors.Is(err, vmmc.ErrOutcomeUnknown) {
			t.Fatalf("a call without a slot: %v", err)
		}
		return
	}
	c.used++
	m.calls = append(m.calls, k)
	go func() { k.done <- get(ctx, k.of.c, ask(1, k.id, plain)) }()
	m.await(func() bool { return c.c.Free() == m.slots-c.used })
}

// letGo has a handler return.
func (m *model) letGo(t *rapid.T) {
	if len(m.calls) == 0 {
		return
	}
	ids := m.running()
	id := ids[rapid.IntRange(0, len(ids)-1).Draw(t, "handler")]
	what := rapid.SampledFrom([]uint32{plain, fails, panics}).Draw(t, "what")
	m.mu.Lock()
	m.release[id] <- what
	m.mu.Unlock()
	for i, k := range m.calls {
		if k.id != id {
			continue
		}
		m.calls = append(m.calls[:i], m.calls[i+1:]...)
		k.of.used--
		m.await(func() bool { return !slices.Contains(m.running(), id) })
		if k.givenUp {
			m.await(func() bool { k.of.c.Sweep(); return k.of.c.Free() == m.slots-k.of.used })
			return
		}
		err := <-k.done
		var remote *call.RemoteError
		failed := errors.As(err, &remote)
		if failed != (what != plain) || !failed && err != nil || failed && remote.Panicked != (what == panics) {
			t.Fatalf("call %d: %v", id, err)
		}
		k.cancel()
		return
	}
	t.Fatalf("call %d runs, and is not known", id)
}

// cancel gives a call up.
func (m *model) cancel(t *rapid.T) {
	if len(m.calls) == 0 {
		return
	}
	k := m.calls[rapid.IntRange(0, len(m.calls)-1).Draw(t, "call")]
	if k.givenUp {
		return
	}
	k.givenUp = true
	k.cancel()
	if err := <-k.done; !errors.Is(err, vmmc.ErrCanceled) {
		t.Fatalf("call %d: %v", k.id, err)
	} else if !errors.Is(err, vmmc.ErrOutcomeUnknown) { // it was not sent
		m.drop(k)
	}
}

func (m *model) drop(k *modelCall) {
	for i, o := range m.calls {
		if o == k {
			m.calls = append(m.calls[:i], m.calls[i+1:]...)
			k.of.used--
			return
		}
	}
}

// dialAnew closes a client, which ends its calls and their handlers.
func (m *model) dialAnew(t *rapid.T) {
	i := rapid.IntRange(0, len(m.clients)-1).Draw(t, "client")
	c := m.clients[i]
	if err := c.c.Close(); err != nil {
		t.Fatal(err)
	}
	var rest []*modelCall
	for _, k := range m.calls {
		if k.of != c {
			rest = append(rest, k)
			continue
		}
		if !k.givenUp {
			if err := <-k.done; !errors.Is(err, vmmc.ErrClosed) {
				t.Fatalf("call %d: %v", k.id, err)
			}
			k.cancel()
		}
		m.await(func() bool { return !slices.Contains(m.running(), k.id) })
	}
	m.calls = rest
	m.dial(i)
}

// await waits for what happens by itself.
func (m *model) await(cond func() bool) {
	for late := time.Now().Add(bound); !cond(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(late) {
			m.t.Fatalf("it does not happen: %d calls, %d run", len(m.calls), len(m.running()))
		}
	}
}

// check compares what runs: as many calls as may.
func (m *model) check(t *rapid.T) {
	want := min(len(m.calls), m.handlers)
	m.await(func() bool { return len(m.running()) == want })
	m.ran.Range(func(id, n any) bool {
		if k := n.(*atomic.Int32).Load(); k != 1 {
			t.Fatalf("call %d ran %d times", id, k)
		}
		return true
	})
}

func (m *model) end() {
	for _, c := range m.clients {
		if err := c.c.Close(); err != nil {
			m.t.Error(err)
		}
	}
	for _, k := range m.calls {
		k.cancel()
	}
	if err := m.s.Shutdown(context.Background()); err != nil {
		m.t.Error(err)
	}
}
