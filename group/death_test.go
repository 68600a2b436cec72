package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/view"
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
	// A member that ends in order after some barriers, but does not leave. Its last word has arrived.
	vmmctest.Role("ends", func(ctx context.Context, p *vmmc.Process, args ...string) error {
		g, err := joinAs(ctx, p, args[0], args[1], args[2])
		for range 3 {
			if err == nil {
				err = g.Barrier(ctx)
			}
		}
		return errors.Join(err, p.Fence(ctx))
	})
	// A process outside of the group that prints when the buffer 1 is exported, and runs on.
	vmmctest.Role("exports", func(_ context.Context, p *vmmc.Process, _ ...string) error {
		mem, err := p.Alloc(64)
		if err == nil {
			_, err = p.Export(1, mem.Bytes(), vmmc.Unmapped())
		}
		if err != nil {
			return err
		}
		fmt.Println("exported")
		select {}
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
	sizes := []int{2, 3, 8}
	for k, n := range sizes {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			nodes := vmmctest.Nodes(t, 1)
			for i, at := range []string{"fence", "send", "await", "end", "shared", "left"} {
				times := []int{2, 3, 4}
				if at == "left" {
					times = []int{1}
				}
				for _, nth := range times {
					if testutil.LeavesOut(i+nth, k, len(sizes)) {
						continue
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

// A member that dies after it has joined, and before or in its first collective.
func TestKilledEarly(t *testing.T) {
	nodes := vmmctest.Nodes(t, 1)
	for _, at := range []string{"joined", "linked", "fence", "send", "await"} {
		ctx := within(t)
		gs, child := withChild(t, nodes, 4, "stops", at, "1")
		result := make(chan []error)
		go func() { result <- all(gs, func(g *Group) error { return collectives(ctx, g) }) }()
		if child.Line() != "stopped" {
			t.Fatal("it does not stop")
		}
		awaitLinked(ctx, t, gs, 3)
		child.Kill()
		for rank, err := range <-result {
			if err := without(err, 3); err != nil {
				t.Errorf("%s: member %d: %v", at, rank, err)
			}
		}
		for _, g := range gs {
			reportsGone(ctx, t, g, 3)
		}
		leave(t, gs)
	}
}

// Nothing tells of a member that dies before it joins where no name was kept for it: the others
// wait within their contexts, and so does Leave.
func TestKilledBeforeItJoins(t *testing.T) {
	gs, child := withChild(t, vmmctest.Nodes(t, 1), 4, "stops", "join", "1")
	if child.Line() != "stopped" {
		t.Fatal("it does not stop")
	}
	child.Kill()
	for _, call := range []func(ctx context.Context, g *Group) error{collectives, func(ctx context.Context, g *Group) error { return g.Leave(ctx) }} {
		soon, stop := context.WithTimeout(within(t), 50*time.Millisecond)
		for rank, err := range all(gs, func(g *Group) error { return call(soon, g) }) {
			if !errors.Is(err, vmmc.ErrTimeout) {
				t.Errorf("member %d: %v", rank, err)
			}
		}
		stop()
	}
}

// A member that ends before it joins, where its name was kept for it.
func TestEndsBeforeItJoins(t *testing.T) {
	nodes := vmmctest.Nodes(t, 1)
	gs := joined(t, nodes, newGroup(nodes, 3), 3, 1)
	for _, g := range gs {
		find := g.importName
		g.importName = func(ctx context.Context, name string, opts ...vmmc.FindOption) (*vmmc.Import, error) {
			if strings.HasSuffix(name, ".2") {
				return nil, fail("import", vmmc.ErrNoSuchProcess, "the process that the name was kept for has ended")
			}
			return find(ctx, name, opts...)
		}
	}
	each(t, gs, func(ctx context.Context, g *Group) error {
		if _, err := g.Member(ctx, 2); without(err, 2) != nil {
			return fmt.Errorf("it is found: %w", err)
		}
		return errors.Join(without(g.Barrier(ctx), 2), without(g.Barrier(ctx), 2))
	})
	for _, g := range gs {
		reportsGone(within(t), t, g, 2)
	}
	leave(t, gs)
}

// A member that knows a failure before its first collective passes it on over the links that it
// makes then, though its collectives fail.
func TestFailureBeforeTheLinks(t *testing.T) {
	nodes := vmmctest.Nodes(t, 1)
	gs := joined(t, nodes, newGroup(nodes, 3), 3, 1)
	gs[1].fail(2, 1) // as a partner's word says
	if err := without(gs[1].Barrier(within(t)), 2); err != nil {
		t.Fatal(err)
	}
	if err := without(gs[0].Barrier(within(t)), 2); err != nil { // which waits for member 2
		t.Fatal(err)
	}
}

// A member that is still making the link with one that has sent its words and died gives that up when
// another member says so.
func TestFailureWhileLinking(t *testing.T) {
	nodes := vmmctest.Nodes(t, 1)
	gs := joined(t, nodes, newGroup(nodes, 3), 3, 0)
	find := gs[1].importName
	gs[1].importName = func(ctx context.Context, name string, opts ...vmmc.FindOption) (*vmmc.Import, error) {
		if strings.HasSuffix(name, ".2") {
			<-ctx.Done() // as if it came too late to find the name
			return nil, ctx.Err()
		}
		return find(ctx, name, opts...)
	}
	ctx := within(t)
	dead := make(chan struct{})
	go func() {
		defer close(dead)
		_ = gs[2].Barrier(ctx)
	}()
	result := make(chan []error, 1)
	go func() { result <- all(gs[:2], func(g *Group) error { return g.Barrier(ctx) }) }()
	awaits(ctx, t, "the word of member 2", func() bool { return gs[0].slots[0].Load() == 1 })
	awaitLinked(ctx, t, gs[:1], 2)
	if err := gs[2].p.Close(); err != nil {
		t.Fatal(err)
	}
	for rank, err := range <-result {
		if err := without(err, 2); err != nil {
			t.Errorf("member %d: %v", rank, err)
		}
	}
	<-dead
	for _, g := range gs[:2] {
		reportsGone(ctx, t, g, 2)
	}
}

// A member that ends in order fails no barrier that it has entered, and is gone for the next one,
// also where notifications are blocked meanwhile.
func TestEnds(t *testing.T) {
	for _, nodes := range [][]*vmmctest.Node{vmmctest.Nodes(t, 1), vmmctest.Nodes(t, 2)} {
		for i := range 4 {
			ctx := within(t)
			gs, child := withChild(t, nodes, 4, "ends")
			each(t, gs, func(ctx context.Context, g *Group) error {
				if i%2 == 1 {
					g.p.BlockNotifications()
					defer func() { _, _ = g.p.UnblockNotifications() }()
				}
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
			counts := []int{5}
			if len(nodes) == 2 {
				counts = []int{2, 3}
			}
			gs := joined(t, nodes, newGroup(nodes, counts...), 5, 0)
			each(t, gs, func(ctx context.Context, g *Group) error {
				for i := range 3 {
					if err := g.Barrier(ctx); err != nil {
						return fmt.Errorf("barrier %d: %w", i, err)
					}
				}
				_ = g.p.Fence(ctx) // of those that have not closed
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
	each(t, gs[:2], func(ctx context.Context, g *Group) error { return without(g.Barrier(ctx), 2) })
	each(t, gs[3:], func(ctx context.Context, g *Group) error { return without(g.Barrier(ctx), 2) })
	leave(t, gs)
}

// A member that leaves before its first collective, when its partner waits for it, and before that
// has linked with it.
func TestLeavesFirst(t *testing.T) {
	for _, linked := range []bool{true, false} {
		ctx := within(t)
		gs := local(t, 2)
		result := make(chan error, 1)
		if linked {
			go func() { result <- gs[0].Barrier(ctx) }()
			awaitLinked(ctx, t, gs[:1], 1)
		}
		if err := gs[1].Leave(ctx); err != nil {
			t.Fatal(err)
		}
		if !linked {
			result <- gs[0].Barrier(ctx)
		}
		if err := without(<-result, 1); err != nil {
			t.Errorf("linked: %t: %v", linked, err)
		}
		leave(t, gs)
	}
}

// A member that leaves because another one is gone is not reported in its place.
func TestLeavesAfterAFailure(t *testing.T) {
	for _, linked := range []bool{true, false} {
		t.Run(fmt.Sprint("linked ", linked), func(t *testing.T) { leavesAfterAFailure(t, linked) })
	}
}

func leavesAfterAFailure(t *testing.T, linked bool) {
	ctx := within(t)
	nodes := vmmctest.Nodes(t, 1)
	gs := joined(t, nodes, newGroup(nodes, 3), 3, 1)
	found := make(chan struct{})
	find := gs[0].importName
	gs[0].importName = func(
		ctx context.Context, name string, opts ...vmmc.FindOption,
	) (*vmmc.Import, error) {
		if strings.HasSuffix(name, ".2") {
			<-found // it hears of member 2 by member 1 alone
		}
		return find(ctx, name, opts...)
	}
	if linked {
		gs[0].startLinks()
		awaitLinked(ctx, t, gs[:1], 1)
	}
	gs[1].fail(2, 1) // as a partner's word says
	if err := without(gs[1].Barrier(ctx), 2); err != nil {
		t.Fatal(err)
	}
	if err := gs[1].Leave(ctx); err != nil {
		t.Fatal(err)
	}
	gs[0].startLinks()
	awaits(ctx, t, "a failure", func() bool {
		gs[0].mu.Lock()
		defer gs[0].mu.Unlock()
		return gs[0].failed != nil
	})
	if err := without(gs[0].Barrier(ctx), 2); err != nil {
		t.Error(err)
	}
	close(found)
	for _, g := range gs {
		reportsGone(ctx, t, g, 2)
	}
	leave(t, gs)
}

// Members that never call a collective.
func TestAllLeaveFirst(t *testing.T) {
	ctx := within(t)
	gs := local(t, 5)
	for _, g := range gs { // one after the other
		if err := g.Leave(ctx); err != nil {
			t.Fatalf("member %d: %v", g.Rank(), err)
		}
	}
	leave(t, local(t, 5)) // and at the same time
}

// A member leaves in the middle of a collective that was interrupted, and gives back what that had.
func TestLeavesInterrupted(t *testing.T) {
	ctx := within(t)
	gs := local(t, 2)
	soon, stop := context.WithTimeout(ctx, time.Millisecond)
	defer stop()
	if _, err := Share[int32](soon, gs[0], 1); !errors.Is(err, vmmc.ErrTimeout) {
		t.Fatal(err)
	}
	if err := gs[0].Leave(ctx); err != nil {
		t.Fatal(err)
	}
	again, err := view.Export[int32](gs[0].p, firstShare, 1)
	if err != nil {
		t.Errorf("its export is left: %v", err)
	} else if err := again.Close(); err != nil {
		t.Error(err)
	}
	_, err = Share[int32](ctx, gs[1], 1) // which member 0 may have entered
	if err == nil {
		err = gs[1].Barrier(ctx)
	}
	if err := without(err, 0); err != nil {
		t.Error(err)
	}
	leave(t, gs)
}

// When Leave has begun to tell the partners, no collective follows.
func TestLeaving(t *testing.T) {
	ctx := within(t)
	gs := local(t, 2)
	barriers(t, gs, 1)
	atStep(t, func(g *Group, name string) {
		if name == "left" && !g.leaving {
			t.Error("a member has sent its words and does not know that it leaves")
		}
	})
	gs[0].leaving = true
	if err := gs[0].Barrier(ctx); !errors.Is(err, vmmc.ErrClosed) {
		t.Errorf("a barrier of one that leaves: %v", err)
	}
	leave(t, gs)
}

// Two members die at once. The collectives of all others end, and Gone gives both.
func TestTwoDeaths(t *testing.T) {
	ctx := within(t)
	gs := local(t, 8)
	barriers(t, gs, 1)
	var left []*Group
	for _, g := range gs {
		if g.Rank() != 3 && g.Rank() != 5 {
			left = append(left, g)
		}
	}
	var dead sync.WaitGroup
	for _, g := range []*Group{gs[3], gs[5]} {
		dead.Go(func() { _ = g.p.Close() })
	}
	each(t, left, func(ctx context.Context, g *Group) error {
		err := g.Barrier(ctx)
		if without(err, 3) != nil && without(err, 5) != nil {
			return fmt.Errorf("without 3 and 5: %w", err)
		}
		return nil
	})
	dead.Wait()
	for _, g := range left {
		var ranks []int
		for range 2 {
			select {
			case r := <-g.Gone():
				ranks = append(ranks, r)
			case <-ctx.Done():
				t.Fatalf("member %d knows %v as dead", g.Rank(), ranks)
			}
		}
		if slices.Sort(ranks); !slices.Equal(ranks, []int{3, 5}) {
			t.Errorf("member %d knows %v as dead", g.Rank(), ranks)
		}
	}
	leave(t, left)
}

// A failure that is known ends a barrier in its fence, which waits for a stopped process.
func TestFailureInAFence(t *testing.T) {
	ctx := within(t)
	nodes := vmmctest.Nodes(t, 1)
	gs := joined(t, nodes, newGroup(nodes, 2), 2, 0)
	barriers(t, gs, 1)
	child := vmmctest.Child(t, nodes[0], "exports")
	if child.Line() != "exported" {
		t.Fatal("it does not export")
	}
	im, err := gs[0].p.Import(ctx, child.ID().Node, child.ID().PID, 1)
	if err != nil {
		t.Fatal(err)
	}
	child.Stop()
	if err := im.Send(ctx, make([]byte, 64), 0); err != nil {
		t.Fatal(err)
	}
	fences := make(chan struct{}, 1)
	atStep(t, func(g *Group, name string) {
		if g == gs[0] && name == "fence" {
			fences <- struct{}{}
		}
	})
	result := make(chan error, 1)
	go func() { result <- gs[0].Barrier(ctx) }()
	<-fences
	if err := gs[1].p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := without(<-result, 1); err != nil {
		t.Error(err)
	}
	child.Kill()
}

// A partner that takes no failure does not hold up the collective that fails.
func TestFailureNotTaken(t *testing.T) {
	ctx := within(t)
	gs := local(t, 3)
	barriers(t, gs, 1)
	open := make(chan struct{})
	atStep(t, func(_ *Group, name string) {
		if name == "failure" {
			<-open
		}
	})
	defer close(open)
	if err := gs[2].p.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		each(t, gs[:2], func(_ context.Context, g *Group) error {
			return without(g.Barrier(context.WithoutCancel(ctx)), 2)
		})
	}
	for _, g := range gs[:2] {
		g.mu.Lock()
		for _, pt := range g.all {
			if pt.flooding == nil {
				t.Errorf("member %d sends no failure to member %d", g.Rank(), pt.rank)
			}
		}
		g.mu.Unlock()
	}
}

// Sequences that wrap, and failure words that do.
func TestSequenceWraps(t *testing.T) {
	for _, start := range []uint32{1<<19 - 3, 1<<32 - 3} {
		for ends := range 5 {
			ctx := within(t)
			gs := local(t, 3)
			for _, g := range gs {
				g.seq = start
				for _, w := range g.slots {
					w.Store(start)
				}
			}
			exchanges(t, gs, ends)
			barriers(t, gs, 2)
			if err := gs[2].p.Close(); err != nil {
				t.Fatal(err)
			}
			each(t, gs[:2], func(ctx context.Context, g *Group) error {
				return errors.Join(without(g.Barrier(ctx), 2), without(g.Barrier(ctx), 2))
			})
			for _, g := range gs[:2] {
				reportsGone(ctx, t, g, 2)
			}
			leave(t, gs[:2])
		}
	}
}

// Nodes that lose each other: the members of both fail.
func TestCut(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	gs := joined(t, nodes, newGroup(nodes, 2, 2), 4, 0, vmmc.WithResume(0))
	barriers(t, gs, 2)
	nodes[0].Cut()
	each(t, gs, func(ctx context.Context, g *Group) error {
		if err := g.Barrier(ctx); !errors.As(err, new(MemberGoneError)) {
			return fmt.Errorf("over a cut: %w", err)
		}
		return nil
	})
}

// Words that no member writes do no harm. A member may say of another one that it is dead.
func TestHostileWords(t *testing.T) {
	ctx := within(t)
	gs := local(t, 3)
	barriers(t, gs, 1)
	im := gs[0].importOf(partnerOf(t, gs[0], 1))
	write := func(words ...uint32) {
		t.Helper()
		for _, w := range words {
			for edge := range 2 * maxRounds {
				if err := errors.Join(im.SendNotify(ctx, wordBytes(w), noticeAt(edge)), im.Send(ctx, wordBytes(w), failureAt(edge))); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := gs[0].p.Fence(ctx); err != nil {
			t.Fatal(err)
		}
	}
	write(1<<19-1, 4<<19, 1<<32-1, 0) // ranks -1, 3 and 8190
	barriers(t, gs, 3)
	exchanges(t, gs, 3)
	if n := len(gs[1].Gone()); n != 0 {
		t.Errorf("%d are dead", n)
	}
	write(3 << 19) // of member 2
	each(t, gs, func(ctx context.Context, g *Group) error { return without(g.Barrier(ctx), 2) })
	if err := im.SendNotify(ctx, wordBytes(3), noticeAt(0)); err != nil {
		t.Fatal(err)
	}
	reportsGone(ctx, t, gs[1], 2)
}

// The end of a member that has stored a sequence that lies far ahead is noticed.
func TestHostileSlot(t *testing.T) {
	ctx := within(t)
	gs := local(t, 2)
	barriers(t, gs, 1)
	im := gs[0].importOf(partnerOf(t, gs[0], 1))
	if err := im.Send(ctx, wordBytes(1<<30), slotAt(0)); err != nil {
		t.Fatal(err)
	}
	if err := gs[0].p.Close(); err != nil {
		t.Fatal(err)
	}
	reportsGone(ctx, t, gs[1], 0)
	err := gs[1].Barrier(ctx)
	for range 2 {
		if err == nil {
			err = gs[1].Barrier(ctx)
		}
	}
	if err := without(err, 0); err != nil {
		t.Error(err)
	}
}

// OnGone gives each death once, also an earlier one, and none after stop. A member that resigns is one,
// and its own process goes on.
func TestResigns(t *testing.T) {
	gs := local(t, 9)
	ctx := within(t)
	each(t, gs, func(ctx context.Context, g *Group) error { return g.Barrier(ctx) })
	told := make(chan int, 100)
	for _, g := range gs[1:] {
		g.OnGone(func(rank int) { told <- rank })
	}
	stop := gs[1].OnGone(func(int) { t.Error("it was stopped") })
	stop()
	if err := gs[0].Resign(ctx); err != nil {
		t.Fatal(err)
	}
	for range gs[1:] {
		select {
		case rank := <-told:
			if rank != 0 {
				t.Errorf("rank %d is gone, want 0", rank)
			}
		case <-ctx.Done():
			t.Fatal("not all are told")
		}
	}
	late := make(chan int, 1)
	gs[8].OnGone(func(rank int) { late <- rank })
	select {
	case rank := <-late:
		if rank != 0 {
			t.Errorf("rank %d was gone, want 0", rank)
		}
	case <-ctx.Done():
		t.Error("an earlier death is not told")
	}
	if err := gs[0].Leave(ctx); err != nil {
		t.Error(err)
	}
	if len(told) > 0 {
		t.Errorf("a death is told again: %d", <-told)
	}
}
