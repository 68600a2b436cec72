package group

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// collectives calls all collectives in turn until one fails.
func collectives(ctx context.Context, g *Group) error {
	for {
		if err := g.Barrier(ctx); err != nil {
			return err
		}
		if _, err := Exchange(ctx, g, int32(g.Rank())); err != nil {
			return err
		}
		s, err := Share[int32](ctx, g, 8)
		if err != nil {
			return err
		}
		if err := errors.Join(g.Barrier(ctx), s.Close()); err != nil {
			return err
		}
	}
}

func init() {
	// A member that stops at a step of the protocols, when it comes there for the n-th time, until it
	// is killed.
	vmmctest.Role("stops", func(ctx context.Context, p *vmmc.Process, args ...string) error {
		at, n := args[3], new(atomic.Int32)
		last, err := strconv.Atoi(args[4])
		if err != nil {
			return err
		}
		onStep.Store(new(func(_ *Group, name string) {
			if name == at && int(n.Add(1)) == last {
				fmt.Println("stopped")
				select {}
			}
		}))
		g, err := joinAs(ctx, p, args[0], args[1], args[2])
		if err != nil {
			return err
		}
		if at == "left" {
			return errors.Join(g.Barrier(ctx), g.Leave(ctx))
		}
		return collectives(ctx, g)
	})
	// A member that ends in order after some barriers, but does not leave.
	vmmctest.Role("ends", func(ctx context.Context, p *vmmc.Process, args ...string) error {
		g, err := joinAs(ctx, p, args[0], args[1], args[2])
		for range 3 {
			if err == nil {
				err = g.Barrier(ctx)
			}
		}
		return err
	})
}

// withChild are members of a group whose last member is a child.
func withChild(t *testing.T, nodes []*vmmctest.Node, n int, role string, args ...string) (gs []*Group, child *vmmctest.Proc) {
	t.Helper()
	counts := []int{n}
	if len(nodes) == 2 {
		counts = []int{n - 1, 1}
	}
	text, size := newGroup(nodes, counts...), strconv.Itoa(n)
	gs = joined(t, nodes, text, n, 1)
	return gs, vmmctest.Child(t, nodes[len(nodes)-1], role, append([]string{text, strconv.Itoa(n - 1), size}, args...)...)
}

// A member that is killed at any step ends the collectives of all others, and Gone gives it once.
func TestKilled(t *testing.T) {
	for _, n := range []int{2, 3, 8} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			nodes := vmmctest.Nodes(t, 1)
			for _, at := range []string{"fence", "send", "await", "end", "shared", "left"} {
				for nth := 2; nth <= 4; nth++ {
					if at == "left" {
						nth = 1
					}
					ctx := within(t)
					gs, child := withChild(t, nodes, n, "stops", at, strconv.Itoa(nth))
					result := make(chan []error)
					go func() { result <- all(gs, func(g *Group) error { return collectives(ctx, g) }) }()
					if child.Line() != "stopped" {
						t.Fatal("it does not stop")
					}
					child.Kill()
					for rank, err := range <-result {
						if err := without(err, n-1); err != nil {
							t.Errorf("%s %d: member %d: %v", at, nth, rank, err)
						}
					}
					for _, g := range gs {
						if at != "left" {
							reportsGone(ctx, t, g, n-1)
						}
						if err := without(g.Barrier(ctx), n-1); err != nil {
							t.Errorf("%s %d: member %d again: %v", at, nth, g.Rank(), err)
						}
					}
					leave(t, gs)
					if at == "left" {
						break
					}
				}
			}
		})
	}
}

// reportsGone fails if Gone of a member does not give the rank.
func reportsGone(ctx context.Context, t *testing.T, g *Group, rank int) {
	t.Helper()
	select {
	case r := <-g.Gone():
		if r != rank {
			t.Errorf("Gone of member %d gives %d, want %d", g.Rank(), r, rank)
		}
	case <-ctx.Done():
		t.Errorf("Gone of member %d gives nothing", g.Rank())
	}
}

// A member that dies before its partners have linked with it: they notice it, or wait within their
// contexts.
func TestKilledEarly(t *testing.T) {
	nodes := vmmctest.Nodes(t, 1)
	for _, at := range []string{"join", "joined", "linked", "fence", "send", "await"} {
		gs, child := withChild(t, nodes, 4, "stops", at, "1")
		soon, stop := context.WithTimeout(context.Background(), 200*time.Millisecond)
		result := make(chan []error)
		go func() { result <- all(gs, func(g *Group) error { return collectives(soon, g) }) }()
		if child.Line() != "stopped" {
			t.Fatal("it does not stop")
		}
		child.Kill()
		for rank, err := range <-result {
			if without(err, 3) != nil && !errors.Is(err, vmmc.ErrTimeout) {
				t.Errorf("%s: member %d: %v", at, rank, err)
			}
		}
		stop()
		for _, err := range all(gs, func(g *Group) error { return g.Leave(within(t)) }) {
			if err != nil {
				t.Error(err)
			}
		}
	}
}

// A member that ends in order fails no barrier that it has entered, and is gone for the next one.
func TestEnds(t *testing.T) {
	for _, nodes := range [][]*vmmctest.Node{vmmctest.Nodes(t, 1), vmmctest.Nodes(t, 2)} {
		for range 4 {
			ctx := within(t)
			gs, child := withChild(t, nodes, 4, "ends")
			each(t, gs, func(g *Group) error {
				for i := range 3 {
					if err := g.Barrier(ctx); err != nil {
						return fmt.Errorf("barrier %d: %w", i, err)
					}
				}
				return without(g.Barrier(ctx), 3)
			})
			if err := child.Wait(); err != nil {
				t.Error(err)
			}
			for _, g := range gs {
				reportsGone(ctx, t, g, 3)
			}
			leave(t, gs)
		}
	}
}

// Likewise for the ends of all processes at once, without children: what was said last arrives.
func TestCloses(t *testing.T) {
	for _, nodes := range [][]*vmmctest.Node{vmmctest.Nodes(t, 1), vmmctest.Nodes(t, 2)} {
		for range 4 {
			ctx := within(t)
			counts := []int{5}
			if len(nodes) == 2 {
				counts = []int{2, 3}
			}
			gs := joined(t, nodes, newGroup(nodes, counts...), 5, 0)
			each(t, gs, func(g *Group) error {
				for i := range 3 {
					if err := g.Barrier(ctx); err != nil {
						return fmt.Errorf("barrier %d: %w", i, err)
					}
				}
				return g.p.Close()
			})
		}
	}
}

// A member that leaves is no dead one, and the next collective fails.
func TestLeaves(t *testing.T) {
	ctx := within(t)
	gs := local(t, 5)
	barriers(t, gs, 1)
	if err := gs[2].Leave(ctx); err != nil {
		t.Fatal(err)
	}
	each(t, gs[:2], func(g *Group) error { return without(g.Barrier(ctx), 2) })
	each(t, gs[3:], func(g *Group) error { return without(g.Barrier(ctx), 2) })
	leave(t, gs)
}

// Nodes that lose each other: each side goes on without the other one's members.
func TestCut(t *testing.T) {
	ctx := within(t)
	nodes := vmmctest.Nodes(t, 2)
	gs := joined(t, nodes, newGroup(nodes, 2, 2), 4, 0, vmmc.WithResume(0))
	barriers(t, gs, 2)
	nodes[0].Cut()
	each(t, gs, func(g *Group) error {
		if err := g.Barrier(ctx); !errors.As(err, new(MemberGoneError)) {
			return fmt.Errorf("over a cut: %w", err)
		}
		return nil
	})
}

// Words that no member writes do no harm.
func TestHostileWords(t *testing.T) {
	ctx := within(t)
	gs := local(t, 2)
	barriers(t, gs, 1)
	im := gs[0].importOf(gs[0].all[0])
	for _, w := range []uint32{1, 3 << 19, 1<<32 - 1, 1 << 19} {
		for edge := range 2 * maxRounds {
			if err := errors.Join(im.SendNotify(ctx, wordBytes(w), noticeAt(edge)), im.Send(ctx, wordBytes(w), failureAt(edge))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := gs[0].p.Fence(ctx); err != nil {
		t.Fatal(err)
	}
	if err := without(gs[1].Barrier(ctx), 0); err != nil { // 1<<19 is a failure of member 0
		t.Error(err)
	}
	reportsGone(ctx, t, gs[1], 0)
}
