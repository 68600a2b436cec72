package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/queue"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// steps has tests act at the steps of the protocol.
var steps testutil.Steps

func TestMain(m *testing.M) {
	pair.Step = steps.At
	vmmctest.Role("producer", produce)
	vmmctest.Role("consumer", consume)
	vmmctest.Role("checker", checkAll)
	vmmctest.Role("taker", takeAll)
	vmmctest.Role("sharer", share)
	vmmctest.Role("bench taker", takePayloads)
	vmmctest.Role("record producer", produceRecords)
	vmmctest.Role("record consumer", consumeRecords)
	vmmctest.Main(m)
}

// bound is a guard against hanging.
const bound = testutil.Bound

var (
	within     = testutil.Context
	eventually = testutil.Eventually
)

// item is a value that can be told from a torn one.
type item struct {
	From, N uint32
	Fill    [12]uint32
	_       uint32
	Sum     uint32
}

func newItem(from, n uint32) item {
	v := item{From: from, N: n}
	for i := range v.Fill {
		v.Fill[i] = n*31 + uint32(i) + from<<16
	}
	v.Sum = sum(v)
	return v
}

func items(from, first, n int) (vs []item) {
	for i := range n {
		vs = append(vs, newItem(uint32(from), uint32(first+i)))
	}
	return vs
}

func sum(v item) uint32 {
	s := v.From*0x9E3779B1 + v.N
	for _, w := range v.Fill {
		s = s*0x01000193 ^ w
	}
	return s
}

// tally checks that each producer's values are a prefix, and whole.
type tally map[uint32]uint32

func (s tally) add(t testing.TB, vs ...item) {
	t.Helper()
	for _, v := range vs {
		if v.Sum != sum(v) {
			t.Fatalf("value %d of producer %d is torn: %+v", v.N, v.From, v)
		}
		if v.N != s[v.From] {
			t.Fatalf("value %d of producer %d, want %d", v.N, v.From, s[v.From])
		}
		s[v.From]++
	}
}

// produce is a child: name, number, values, step, how often, file. It puts values, by one, by twos
// and so on, and closes. To be paused at "put.queued" it puts all by one, and coalesces them.
func produce(ctx context.Context, p *vmmc.Process, args ...string) error {
	steps.PauseAt(args[3], args[4], args[5])
	q, err := queue.Dial[item](ctx, p, args[0])
	if err != nil {
		return err
	}
	from, err1 := strconv.Atoi(args[1])
	n, err2 := strconv.Atoi(args[2])
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if args[3] == "put.queued" {
		queue.CoalesceWithin(bound)
		for i := range n {
			if err := q.Put(ctx, newItem(uint32(from), uint32(i))); err != nil {
				return err
			}
		}
		return q.Close(ctx)
	}
	for first, run := 0, 1; first < n; first, run = first+run, run%7+1 {
		if _, err := q.PutAll(ctx, items(from, first, min(run, n-first))); err != nil {
			return err
		}
	}
	return q.Close(ctx)
}

// consume is a child: name, step, how often, file, and for a queue that ends how many producers it has.
// It takes values and drops them.
func consume(ctx context.Context, p *vmmc.Process, args ...string) error {
	steps.PauseAt(args[1], args[2], args[3])
	opts := []queue.Option{queue.Slots(8)}
	if len(args) > 4 {
		n, err := strconv.Atoi(args[4])
		if err != nil {
			return err
		}
		opts = append(opts, queue.Producers(n))
	}
	q, err := queue.Listen[item](ctx, p, args[0], opts...)
	if err != nil {
		return err
	}
	for _, err := range q.All(ctx) {
		if err != nil {
			return err
		}
	}
	return nil
}

// checkAll is a child: name, values. It takes the values of producer 1, and checks them.
func checkAll(ctx context.Context, p *vmmc.Process, args ...string) error {
	q, err := queue.Listen[item](ctx, p, args[0], queue.Slots(1<<18))
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	for i := range n {
		v, err := q.Get(ctx)
		if err != nil {
			return err
		}
		if v != newItem(1, uint32(i)) {
			return fmt.Errorf("value %d is %+v", i, v)
		}
	}
	fmt.Println("all")
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

// start starts nodes, and a consumer on the first one. Producers are on the last one.
func (w way) start(
	t testing.TB, opts ...queue.Option,
) (nodes []*vmmctest.Node, c *queue.Consumer[item]) {
	t.Helper()
	if w.unmapped {
		opts = append(opts, queue.Unmapped())
	}
	nodes = vmmctest.Nodes(t, w.nodes)
	return nodes, listen(t, nodes[0].Open(t), opts...)
}

const name = "n1/queue"

func listen(t testing.TB, p *vmmc.Process, opts ...queue.Option) *queue.Consumer[item] {
	t.Helper()
	c, err := queue.Listen[item](within(t), p, name, opts...)
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

func dial(t testing.TB, p *vmmc.Process) *queue.Producer[item] {
	t.Helper()
	q, err := queue.Dial[item](within(t), p, name)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func put(t testing.TB, q *queue.Producer[item], vs ...item) {
	t.Helper()
	if n, err := q.PutAll(within(t), vs); err != nil || n != len(vs) {
		t.Fatalf("%d of %d values: %v", n, len(vs), err)
	}
}

func get(t testing.TB, c *queue.Consumer[item]) item {
	t.Helper()
	v, err := c.Get(within(t))
	if err != nil {
		t.Fatal(err)
	}
	return v
}
