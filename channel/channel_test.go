package channel_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/channel"
	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// All values of all senders arrive, and then the channel is closed, for each call.
func TestClosed(t *testing.T) {
	const n, senders = 200, 3
	for _, w := range where {
		t.Run(w.name, func(t *testing.T) {
			nodes := vmmctest.Nodes(t, w.nodes)
			c := newChan(t, nodes[0].Open(t), channel.Senders(senders), channel.Buffer(8))
			ctx, last := within(t), nodes[len(nodes)-1]
			var wg sync.WaitGroup
			for i := range uint32(senders) {
				s := dial(t, last.Open(t))
				wg.Go(func() {
					for k := range uint32(n) {
						if err := s.Send(ctx, newItem(i, k)); err != nil {
							t.Error(err)
							return
						}
					}
					if err := s.Close(ctx); err != nil {
						t.Error(err)
					}
					if k := s.Pending(); k != 0 {
						t.Errorf("%d values are pending", k)
					}
					if err := s.Send(ctx, item{}); !errors.Is(err, vmmc.ErrClosed) {
						t.Errorf("a send after the close: %v", err)
					}
				})
			}
			got := tally{}
			for range n {
				v, ok, err := c.Recv(ctx)
				if !ok || err != nil {
					t.Fatalf("%t, %v", ok, err)
				}
				got.add(t, v)
			}
			for v, err := range c.All(ctx) {
				if err != nil {
					t.Fatal(err)
				}
				got.add(t, v)
			}
			wg.Wait()
			if got[0]+got[1]+got[2] != n*senders {
				t.Errorf("%v", got)
			}
			for range 2 {
				if v, ok, err := c.Recv(ctx); v != (item{}) || ok || err != nil {
					t.Errorf("a closed channel: %+v, %t, %v", v, ok, err)
				}
			}
			for v, err := range c.All(ctx) {
				t.Errorf("a closed channel: %+v, %v", v, err)
			}
			if _, err := channel.Dial[item](ctx, last.Open(t), name); !errors.Is(err, vmmc.ErrNoMem) {
				t.Errorf("a sender more: %v", err)
			}
		})
	}
}

// A channel is not closed before its last sender has come and gone.
func TestNotClosedBeforeTheLast(t *testing.T) {
	nodes := vmmctest.Nodes(t, 1)
	c := newChan(t, nodes[0].Open(t), channel.Senders(2))
	if err := dial(t, nodes[0].Open(t)).Close(within(t)); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(within(t))
	cancel()
	if _, ok, err := c.Recv(ctx); ok || !errors.Is(err, vmmc.ErrCanceled) {
		t.Errorf("%t, %v", ok, err)
	}
	s := dial(t, nodes[0].Open(t))
	if err := s.Send(within(t), newItem(1, 0)); err != nil {
		t.Error(err)
	}
	closed := make(chan error, 1)
	bounded := within(t)
	go func() { closed <- s.Close(bounded) }()
	if v, ok, err := c.Recv(bounded); v != newItem(1, 0) || !ok || err != nil {
		t.Errorf("%+v, %t, %v", v, ok, err)
	}
	if _, ok, err := c.Recv(bounded); ok || err != nil {
		t.Errorf("%t, %v", ok, err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// A Close returns when all values are received, though nothing is received afterwards, and the end
// is not lost when the sender's process ends at once.
func TestSenderEndsAtOnce(t *testing.T) {
	const rounds = 20
	for _, w := range where {
		t.Run(w.name, func(t *testing.T) {
			nodes := vmmctest.Nodes(t, w.nodes)
			p, ctx := nodes[0].Open(t), within(t)
			for k := range rounds {
				c, err := channel.Make[item](ctx, p, name)
				if err != nil {
					t.Fatal(err)
				}
				s := dial(t, nodes[len(nodes)-1].Open(t))
				if err := s.Send(ctx, newItem(1, 0)); err != nil {
					t.Fatal(err)
				}
				if v, ok, err := c.Recv(ctx); v != newItem(1, 0) || !ok || err != nil {
					t.Fatalf("%+v, %t, %v", v, ok, err)
				}
				if err := s.Close(ctx); err != nil {
					t.Fatalf("round %d: %v", k, err)
				}
				if _, ok, err := c.Recv(ctx); ok || err != nil {
					t.Fatalf("round %d: %t, %v", k, ok, err)
				}
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// A close that is given up is none, if it leaves values.
func TestCloseGivenUp(t *testing.T) {
	nodes := vmmctest.Nodes(t, 1)
	c := newChan(t, nodes[0].Open(t), channel.Buffer(1))
	s := dial(t, nodes[0].Open(t))
	ctx, cancel := context.WithCancel(within(t))
	if err := s.Send(ctx, newItem(1, 0)); err != nil {
		t.Fatal(err)
	}
	waits := make(chan error, 1)
	go func() { waits <- s.Send(ctx, newItem(1, 1)) }()
	cancel()
	if err := <-waits; err == nil {
		t.Error("a value more than there is room for")
	}
	if err := s.Close(ctx); !errors.Is(err, vmmc.ErrCanceled) {
		t.Errorf("%v", err)
	}
	if n := s.Pending(); n != 1 {
		t.Errorf("%d values are pending", n)
	}
	// The value had arrived, and the end mark with it: nothing is lost.
	if v, ok, err := c.Recv(within(t)); v != newItem(1, 0) || !ok || err != nil {
		t.Errorf("%+v, %t, %v", v, ok, err)
	}
	if _, ok, err := c.Recv(within(t)); ok || err != nil {
		t.Errorf("%t, %v", ok, err)
	}
}

// A close that is given up ends a call that waits, and says that its own context has ended.
func TestCloseGivenUpBesideASend(t *testing.T) {
	waiting, once := make(chan struct{}), sync.Once{}
	defer steps.Off()
	steps.On(t, func(s string) {
		if s == "put.wait" {
			once.Do(func() { close(waiting) })
		}
	})
	nodes := vmmctest.Nodes(t, 1)
	newChan(t, nodes[0].Open(t), channel.Buffer(1))
	s := dial(t, nodes[0].Open(t))
	if err := s.Send(within(t), newItem(1, 0)); err != nil {
		t.Fatal(err)
	}
	waits := make(chan error, 1)
	go func() { waits <- s.Send(within(t), newItem(1, 1)) }()
	<-waiting
	ctx, cancel := context.WithCancel(within(t))
	cancel()
	if err := s.Close(ctx); !errors.Is(err, vmmc.ErrCanceled) {
		t.Errorf("%v", err)
	}
	if err := <-waits; err == nil {
		t.Error("a value more than there is room for")
	}
}

// A receiver that ends the channel ends its senders' calls.
func TestReceiverClosed(t *testing.T) {
	nodes := vmmctest.Nodes(t, 1)
	c := newChan(t, nodes[0].Open(t), channel.Buffer(1))
	s := dial(t, nodes[0].Open(t))
	ctx := within(t)
	if err := s.Send(ctx, newItem(1, 0)); err != nil {
		t.Fatal(err)
	}
	waits := make(chan error, 1)
	go func() { waits <- s.Send(ctx, newItem(1, 1)) }()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-waits; !errors.Is(err, vmmc.ErrRevoked) {
		t.Errorf("a send: %v", err)
	}
	if err := s.Close(ctx); !errors.Is(err, vmmc.ErrRevoked) {
		t.Errorf("the close: %v", err)
	}
	if _, ok, err := c.Recv(ctx); ok || !errors.Is(err, vmmc.ErrClosed) {
		t.Errorf("%t, %v", ok, err)
	}
}

func TestBadOptions(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	p := node.Open(t)
	for about, o := range map[string]channel.Option{
		"no sender": channel.Senders(0), "no buffer": channel.Buffer(0), "nil": nil,
	} {
		if _, err := channel.Make[item](within(t), p, name, o); !errors.Is(err, vmmc.ErrBadArg) {
			t.Errorf("%s: %v", about, err)
		}
	}
	other := node.Open(t)
	newChan(t, p, channel.Permit(vmmc.Permission{Processes: []vmmc.ProcessID{other.ID()}}))
	if _, err := channel.Dial[item](within(t), p, name); !errors.Is(err, vmmc.ErrNoRights) {
		t.Errorf("without a permission: %v", err)
	}
	ctx, cancel := context.WithCancel(within(t))
	cancel()
	if _, err := channel.Dial[item](ctx, other, "none"); !errors.Is(err, vmmc.ErrCanceled) {
		t.Errorf("no such channel: %v", err)
	}
	if err := dial(t, other).Close(within(t)); err != nil {
		t.Error(err)
	}
}

func TestAllocations(t *testing.T) {
	if raceEnabled || invariant.Enabled {
		t.Skip("the race detector and the library's own checks allocate")
	}
	node := vmmctest.Nodes(t, 1)[0]
	c, s, ctx := newChan(t, node.Open(t)), dial(t, node.Open(t)), within(t)
	v := newItem(1, 0)
	if n := testing.AllocsPerRun(200, func() {
		err := s.Send(ctx, v)
		_, ok, err2 := c.Recv(ctx)
		if err := errors.Join(err, err2); !ok || err != nil {
			t.Fatalf("%t, %v", ok, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
}
