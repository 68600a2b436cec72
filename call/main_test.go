package call_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/call"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// steps has tests act at the steps of the protocol.
var steps testutil.Steps

func TestMain(m *testing.M) {
	pair.Step = steps.At
	vmmctest.Role("client", callAll)
	vmmctest.Role("server", serveChild)
	vmmctest.Role("bench", serveBench)
	vmmctest.Main(m)
}

// bound is a guard against hanging.
const bound = testutil.Bound

var (
	within     = testutil.Context
	eventually = testutil.Eventually
)

// question is a request that can be told from a torn one.
type question struct {
	ID   uint64
	From uint32
	What uint32
	Fill [12]uint32
	Sum  uint64
}

// answer is one to a question.
type answer struct {
	ID   uint64
	Fill [5]uint64
	Sum  uint64
}

// What a question asks for.
const (
	plain = iota
	fails
	panics
	exits
	blocks // until its context ends, or the test lets it go on
)

func ask(from uint32, id uint64, what uint32) question {
	q := question{ID: id, From: from, What: what}
	for i := range q.Fill {
		q.Fill[i] = uint32(id)*31 + uint32(i) + from<<16
	}
	q.Sum = q.sum()
	return q
}

func (q *question) sum() uint64 {
	s := q.ID*0x9E3779B1 + uint64(q.From)<<32 + uint64(q.What)
	for _, w := range q.Fill {
		s = s*0x100000001B3 ^ uint64(w)
	}
	return s
}

// reply answers a question, or says why it cannot be.
func reply(q *question, a *answer) error {
	if q.Sum != q.sum() {
		return fmt.Errorf("the request is torn: %+v", *q)
	}
	if *a != (answer{}) {
		return fmt.Errorf("the answer is not zeroed: %+v", *a)
	}
	a.ID = q.ID
	for i := range a.Fill {
		a.Fill[i] = q.Sum + uint64(i)
	}
	a.Sum = a.sum()
	return nil
}

func (a *answer) sum() uint64 {
	s := a.ID * 0x9E3779B1
	for _, w := range a.Fill {
		s = s*0x100000001B3 ^ w
	}
	return s
}

// check says what is wrong with an answer.
func (a *answer) check(q *question) error {
	var want answer
	if err := reply(q, &want); err != nil {
		return err
	}
	if *a != want {
		return fmt.Errorf("the answer to %d is %+v", q.ID, *a)
	}
	return nil
}

// callAll is a child: name, number, calls, step, how often, file. It calls, and prints the ids of
// the calls that succeeded.
func callAll(ctx context.Context, p *vmmc.Process, args ...string) error {
	from, err1 := strconv.Atoi(args[1])
	n, err2 := strconv.Atoi(args[2])
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	steps.PauseAt(args[3], args[4], args[5])
	c, err := call.Dial[question, answer](ctx, p, args[0], call.Slots(2))
	if err != nil {
		return err
	}
	for i := range n {
		q, a := ask(uint32(from), uint64(i), plain), answer{}
		if err := c.Call(ctx, &q, &a); err != nil {
			return err
		}
		if err := a.check(&q); err != nil {
			return err
		}
		fmt.Println("done", i)
	}
	return c.Close()
}

// serveChild is a child: name, step, how often, file. Its handlers print the ids of their calls.
func serveChild(ctx context.Context, p *vmmc.Process, args ...string) error {
	steps.PauseAt(args[1], args[2], args[3])
	_, err := published(ctx, p, args[0], func(_ context.Context, q *question, a *answer) error {
		fmt.Println("runs", q.From, q.ID)
		return reply(q, a)
	})
	if err != nil {
		return err
	}
	<-ctx.Done() // never: the test kills it
	return nil
}

// way is how values travel.
type way struct {
	name     string
	nodes    int
	unmapped bool
}

var ways = []way{{"mapped", 1, false}, {"stream", 1, true}, {"between nodes", 2, false}}

const name = "n1/oracle"

// world is a server on the first node; clients are on the last one.
type world struct {
	way
	nodes []*vmmctest.Node
	s     *call.Server
}

// start starts nodes, and a server on the first one.
func (w way) start(
	t testing.TB, f func(context.Context, *question, *answer) error, opts ...call.ServeOption,
) *world {
	t.Helper()
	return w.on(t, vmmctest.Nodes(t, w.nodes), f, opts...)
}

// on starts a server on the first of the nodes.
func (w way) on(
	t testing.TB, nodes []*vmmctest.Node, f func(context.Context, *question, *answer) error,
	opts ...call.ServeOption,
) *world {
	t.Helper()
	if w.unmapped {
		opts = append(opts, call.UnmappedRequests())
	}
	return &world{w, nodes, serve(t, nodes[0].Open(t), f, opts...)}
}

// published is a server, once the node knows that the one before has died.
func published(
	ctx context.Context, p *vmmc.Process, name string,
	f func(context.Context, *question, *answer) error, opts ...call.ServeOption,
) (s *call.Server, err error) {
	for {
		s, err = call.Serve(ctx, p, name, f, opts...)
		if !errors.Is(err, vmmc.ErrNameTaken) || ctx.Err() != nil {
			return s, err
		}
		time.Sleep(time.Millisecond)
	}
}

func serve(
	t testing.TB, p *vmmc.Process, f func(context.Context, *question, *answer) error,
	opts ...call.ServeOption,
) *call.Server {
	t.Helper()
	s, err := published(within(t), p, name, f, opts...)
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

func (w *world) last() *vmmctest.Node { return w.nodes[len(w.nodes)-1] }

// dial makes a client with a process of its own.
func (w *world) dial(t testing.TB, opts ...call.DialOption) *call.Client[question, answer] {
	t.Helper()
	if w.unmapped {
		opts = append(opts, call.UnmappedAnswers())
	}
	return dial(t, w.last().Open(t), opts...)
}

func dial(t testing.TB, p *vmmc.Process, opts ...call.DialOption) *call.Client[question, answer] {
	t.Helper()
	c, err := call.Dial[question, answer](within(t), p, name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// plainly is a handler.
func plainly(_ context.Context, q *question, a *answer) error { return reply(q, a) }

// get calls, and checks the answer.
func get(ctx context.Context, c *call.Client[question, answer], q question) error {
	var a answer
	if err := c.Call(ctx, &q, &a); err != nil {
		if a != (answer{}) {
			return fmt.Errorf("%w, and the answer is changed: %+v", err, a)
		}
		return err
	}
	return a.check(&q)
}

// giveUp calls, and gives the call up when its request is sent.
func giveUp(t testing.TB, c *call.Client[question, answer], q question) {
	t.Helper()
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	steps.On(t, func(s string) {
		if s == "call.sent" {
			cancel()
		}
	})
	defer steps.Off()
	err := get(ctx, c, q)
	if !errors.Is(err, vmmc.ErrCanceled) || !errors.Is(err, vmmc.ErrOutcomeUnknown) {
		t.Errorf("call %d: %v", q.ID, err)
	}
}

func itoa(n int) string { return strconv.Itoa(n) }
