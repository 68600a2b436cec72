package channel_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/channel"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// steps has tests act at the steps of the protocol.
var steps testutil.Steps

func TestMain(m *testing.M) {
	pair.Step = steps.At
	vmmctest.Role("sender", send)
	vmmctest.Role("receiver", receive)
	vmmctest.Main(m)
}

var (
	within     = testutil.Context
	eventually = testutil.Eventually
)

// item is a value that can be told from a torn one.
type item struct {
	From, N uint32
	Not     [6]uint32 // ^N, six times
}

func newItem(from, n uint32) item {
	v := item{From: from, N: n}
	for i := range v.Not {
		v.Not[i] = ^n
	}
	return v
}

// tally checks that each sender's values are a prefix, and whole.
type tally map[uint32]uint32

func (s tally) add(t testing.TB, v item) {
	t.Helper()
	if v != newItem(v.From, s[v.From]) {
		t.Fatalf("value %d of sender %d, want %d: %+v", v.N, v.From, s[v.From], v)
	}
	s[v.From]++
}

// send is a child: name, number, values, step, how often, file. It sends values and closes.
func send(ctx context.Context, p *vmmc.Process, args ...string) error {
	steps.PauseAt(args[3], args[4], args[5])
	from, err1 := strconv.Atoi(args[1])
	n, err2 := strconv.Atoi(args[2])
	s, err := channel.Dial[item](ctx, p, args[0])
	if err := errors.Join(err, err1, err2); err != nil {
		return err
	}
	for i := range n {
		if err := s.Send(ctx, newItem(uint32(from), uint32(i))); err != nil {
			return err
		}
	}
	return s.Close(ctx)
}

// receive is a child: name, senders, step, how often, file. It prints how many values of one sender
// it has received when the channel is closed.
func receive(ctx context.Context, p *vmmc.Process, args ...string) error {
	steps.PauseAt(args[2], args[3], args[4])
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	c, err := channel.Make[item](ctx, p, args[0], channel.Senders(n), channel.Buffer(4))
	if err != nil {
		return err
	}
	got := uint32(0)
	for v, err := range c.All(ctx) {
		if err != nil {
			return err
		}
		if v != newItem(v.From, got) {
			return fmt.Errorf("value %d, want %d", v.N, got)
		}
		got++
	}
	fmt.Println(got)
	return c.Close()
}

// where is on how many nodes a test runs: the receiver on the first, senders on the last.
var where = []struct {
	name  string
	nodes int
}{{"one node", 1}, {"two nodes", 2}}

const name = "n1/channel"

func newChan(t testing.TB, p *vmmc.Process, opts ...channel.Option) *channel.Chan[item] {
	t.Helper()
	c, err := channel.Make[item](within(t), p, name, opts...)
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

func dial(t testing.TB, p *vmmc.Process) *channel.Sender[item] {
	t.Helper()
	s, err := channel.Dial[item](within(t), p, name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func itoa(n int) string { return strconv.Itoa(n) }
