package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/view"
	"github.com/vmmc-go/vmmc/vmmctest"
)

var sizes = []int{1, 2, 3, 4, 5, 7, 8, 16, 33}

// No member passes a barrier that another one has not entered.
func TestBarrier(t *testing.T) {
	for _, n := range sizes {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			barriers(t, local(t, n), 2000/n)
		})
	}
}

func barriers(t *testing.T, gs []*Group, rounds int) {
	t.Helper()
	entered := make([]atomic.Int64, rounds)
	each(t, gs, func(ctx context.Context, g *Group) error {
		for i := range entered {
			entered[i].Add(1)
			if err := g.Barrier(ctx); err != nil {
				return err
			}
			if n := entered[i].Load(); n != int64(g.Size()) {
				return fmt.Errorf("barrier %d lets it through after %d members", i, n)
			}
		}
		return nil
	})
}

type pair struct{ Rank, Round uint32 }

// Each member gets the values of all, also where some are ahead of others.
func TestExchange(t *testing.T) {
	for _, n := range sizes {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			gs := local(t, n)
			exchanges(t, gs, 500/n)
			if t.Failed() {
				return
			}
			exchangeOf(t, gs, func(rank int) uint8 { return uint8(rank + 1) })
			exchangeOf(t, gs, func(rank int) [60]uint32 { return [60]uint32{uint32(rank), 59: uint32(rank)} })
			barriers(t, gs, 3)
		})
	}
}

func exchanges(t *testing.T, gs []*Group, rounds int) {
	t.Helper()
	each(t, gs, func(ctx context.Context, g *Group) error {
		for i := range rounds {
			vs, err := Exchange(ctx, g, pair{uint32(g.Rank()), uint32(i)})
			if err != nil {
				return err
			}
			for rank, v := range vs {
				if v != (pair{uint32(rank), uint32(i)}) || len(vs) != g.Size() {
					return fmt.Errorf("exchange %d: member %d of %d has %v", i, rank, len(vs), v)
				}
			}
		}
		return nil
	})
}

func exchangeOf[T comparable](t *testing.T, gs []*Group, value func(rank int) T) {
	t.Helper()
	each(t, gs, func(ctx context.Context, g *Group) error {
		vs, err := Exchange(ctx, g, value(g.Rank()))
		for rank, v := range vs {
			if v != value(rank) {
				return fmt.Errorf("member %d has %v", rank, v)
			}
		}
		return err
	})
}

// Members of two nodes: all of it over a stream, and what was sent before a barrier is in place.
func TestBetweenNodes(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	gs := joined(t, nodes, newGroup(nodes, 2, 3), 5, 0)
	for rank, want := range [][3]int{{0, 2, 0}, {1, 2, 0}, {0, 3, 1}, {1, 3, 1}, {2, 3, 1}} {
		g := gs[rank]
		if g.Rank() != rank || g.Size() != 5 || g.LocalRank() != want[0] || g.LocalSize() != want[1] || g.Node(rank) != nodes[want[2]].ID() {
			t.Errorf("member %d of %d: number %d of %d on node %v", g.Rank(), g.Size(), g.LocalRank(), g.LocalSize(), g.Node(rank))
		}
	}
	barriers(t, gs, 20)
	exchanges(t, gs, 20)
	shares(t, gs, 10)
	leave(t, gs)
}

// The ranks of a node need not follow each other.
func TestByNode(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	at := []*vmmctest.Node{nodes[0], nodes[1], nodes[0], nodes[1]}
	gs := joined(t, at, newGroup(at, 1, 1, 2, 1), 5, 0)
	for rank, want := range [][2]int{{0, 3}, {0, 2}, {1, 3}, {2, 3}, {1, 2}} {
		g := gs[rank]
		if g.Rank() != rank || g.LocalRank() != want[0] || g.LocalSize() != want[1] || g.Node(0) != nodes[0].ID() || g.Node(4) != nodes[1].ID() {
			t.Errorf("member %d: number %d of %d, and 0 and 4 on nodes %v and %v", g.Rank(), g.LocalRank(), g.LocalSize(), g.Node(0), g.Node(4))
		}
	}
	exchanges(t, gs, 3)
	leave(t, gs)
}

// Members of three nodes with unequal delays: some are ahead of others by as much as can be.
func TestDelays(t *testing.T) {
	nodes := vmmctest.Nodes(t, 3)
	gs := joined(t, nodes, newGroup(nodes, 2, 2, 1), 5, 0)
	nodes[0].Delay(time.Millisecond, nodes[1])
	nodes[1].Delay(4*time.Millisecond, nodes[2])
	each(t, gs, func(ctx context.Context, g *Group) error {
		for i := range uint32(40) {
			if i%4 == 3 {
				if err := g.Barrier(ctx); err != nil {
					return err
				}
			}
			vs, err := Exchange(ctx, g, pair{uint32(g.Rank()), i})
			if err != nil {
				return err
			}
			for rank, v := range vs {
				if v != (pair{uint32(rank), i}) {
					return fmt.Errorf("exchange %d: member %d has %v", i, rank, v)
				}
			}
		}
		return nil
	})
	leave(t, gs)
}

func TestShare(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			gs := local(t, n)
			shares(t, gs, 10)
			shares(t, gs, 2) // under another id
			leave(t, gs)
		})
	}
}

func leave(t *testing.T, gs []*Group) {
	t.Helper()
	each(t, gs, func(ctx context.Context, g *Group) error { return g.Leave(ctx) })
	for _, g := range gs {
		if n := len(g.Gone()); n != 0 {
			t.Errorf("member %d knows %d as dead", g.Rank(), n)
		}
	}
}

// shares lets each member write to one whose barrier word comes over others. What was sent before a
// barrier is in place after.
func shares(t *testing.T, gs []*Group, rounds int) {
	t.Helper()
	const size = 300
	each(t, gs, func(ctx context.Context, g *Group) error {
		s, err := Share[uint64](ctx, g, size)
		if err != nil {
			return err
		}
		next, err := s.Of(ctx, (g.Rank()+3)%g.Size())
		if err != nil {
			return err
		}
		if again, err := s.Of(ctx, (g.Rank()+3)%g.Size()); again != next || err != nil {
			return fmt.Errorf("it is imported again: %w", err)
		}
		if _, err := s.Of(ctx, g.Size()); !errors.Is(err, vmmc.ErrBadArg) {
			return fmt.Errorf("the part of member %d: %w", g.Size(), err)
		}
		for i := range rounds {
			v := uint64(i*g.Size() + g.Rank() + 1)
			if err := next.Put(ctx, 0, slices.Repeat([]uint64{v}, size)); err != nil {
				return err
			}
			if err := g.Barrier(ctx); err != nil {
				return err
			}
			want := uint64(i*g.Size() + (g.Rank()+3*g.Size()-3)%g.Size() + 1)
			for j, v := range s.Local() {
				if v != want {
					return fmt.Errorf("round %d: element %d is %d, want %d", i, j, v, want)
				}
			}
			if err := g.Barrier(ctx); err != nil {
				return err
			}
		}
		if err := s.Close(); err != nil {
			return err
		}
		_, err = s.Of(ctx, g.Rank())
		if !errors.Is(err, vmmc.ErrClosed) {
			return fmt.Errorf("of what is closed: %w", err)
		}
		return s.Close()
	})
}

func TestImportAll(t *testing.T) {
	ctx := within(t)
	gs := local(t, 4)
	each(t, gs, func(ctx context.Context, g *Group) error {
		mem, err := g.p.Alloc(64)
		if err != nil {
			return err
		}
		if _, err := g.p.Export(7, mem.Bytes()); err != nil {
			return err
		}
		ims, err := g.ImportAll(ctx, 7)
		if err != nil {
			return err
		}
		for rank, im := range ims {
			id, err := g.Member(ctx, rank)
			if rank == g.Rank() && im != nil || rank != g.Rank() && im.Exporter() != id || err != nil || id != gs[rank].p.ID() {
				return fmt.Errorf("member %d is %v: %w", rank, id, err)
			}
		}
		return g.Barrier(ctx)
	})
	// All or none: member 3 does not export this.
	for _, g := range gs[:3] {
		mem, err := g.p.Alloc(64)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.p.Export(8, mem.Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	soon, stop := context.WithTimeout(ctx, 10*time.Millisecond)
	defer stop()
	if ims, err := gs[0].ImportAll(soon, 8); ims != nil || !errors.Is(err, vmmc.ErrTimeout) {
		t.Errorf("%v, %v", ims, err)
	}
}

// A program that was started alone.
func TestAlone(t *testing.T) {
	ctx := within(t)
	p := vmmctest.Nodes(t, 1)[0].Open(t)
	g, err := Join(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	if g.Rank() != 0 || g.Size() != 1 || g.LocalRank() != 0 || g.LocalSize() != 1 || g.Node(0) != p.Node() {
		t.Errorf("member %d of %d", g.Rank(), g.Size())
	}
	if id, err := g.Member(ctx, 0); id != p.ID() || err != nil {
		t.Error(id, err)
	}
	if err := g.Barrier(ctx); err != nil {
		t.Error(err)
	}
	if vs, err := Exchange(ctx, g, int32(5)); err != nil || !slices.Equal(vs, []int32{5}) {
		t.Error(vs, err)
	}
	if ims, err := g.ImportAll(ctx, 1); err != nil || len(ims) != 1 || ims[0] != nil {
		t.Error(ims, err)
	}
	shares(t, []*Group{g}, 2)
	leave(t, []*Group{g})
	if err := g.Leave(ctx); err != nil {
		t.Error(err)
	}
	if err := g.Barrier(ctx); !errors.Is(err, vmmc.ErrClosed) {
		t.Error(err)
	}
}

func TestJoinRefuses(t *testing.T) {
	ctx := within(t)
	nodes := vmmctest.Nodes(t, 1)
	p := nodes[0].Open(t)
	two := newGroup(nodes, 2)
	for _, c := range []struct{ group, rank, size, says string }{
		{"", "0", "", "VMMC_GROUP"},
		{"", "", "2", "VMMC_GROUP"},
		{"1:x:n1", "0", "1", "VMMC_GROUP"},
		{two, "0", "", "VMMC_SIZE is"},
		{two, "0", "3", "VMMC_SIZE is"},
		{two, "0", "+2", "VMMC_SIZE is"},
		{two, "", "2", "VMMC_RANK is"},
		{two, "-1", "2", "VMMC_RANK is"},
		{two, "2", "2", "VMMC_RANK is"},
		{two, "01", "2", "VMMC_RANK is"},
		{two, "x", "2", "VMMC_RANK is"},
		{newGroup(nodes, 4097), "0", "4097", "at most 4096"},
		{strings.Replace(two, "n1", "n2", 1), "0", "2", `on node "n2"`},
	} {
		if _, err := joinAs(ctx, p, c.group, c.rank, c.size); !errors.Is(err, vmmc.ErrBadConfig) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := joinAs(nil, p, two, "0", "2"); !errors.Is(err, vmmc.ErrBadArg) { //nolint:staticcheck // the test's subject
		t.Error(err)
	}
	g, err := joinAs(ctx, p, two, "0", "2")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*vmmc.Process{p, nodes[0].Open(t)} {
		if _, err := joinAs(ctx, p, two, "0", "2"); !errors.Is(err, vmmc.ErrNameTaken) {
			t.Error(err)
		}
	}
	soon, stop := context.WithTimeout(ctx, 10*time.Millisecond)
	defer stop()
	if err := g.Leave(soon); !errors.Is(err, vmmc.ErrTimeout) { // member 1 never joins
		t.Error(err)
	}
	g.stop()
}

// A block of another group is no partner.
func TestForeignBlock(t *testing.T) {
	ctx := within(t)
	nodes := vmmctest.Nodes(t, 1)
	gs := joined(t, nodes, newGroup(nodes, 2), 2, 1)
	if _, err := nodes[0].Open(t).Publish(ctx, gs[0].group.MemberName(1), make([]byte, gs[0].blockSize()), vmmc.WithLabel(label(3, 1))); err != nil {
		t.Fatal(err)
	}
	_, err := gs[0].Member(ctx, 1)
	for _, err := range []error{err, gs[0].Barrier(ctx), gs[0].Barrier(ctx)} {
		if !errors.Is(err, vmmc.ErrProtocol) || !strings.Contains(err.Error(), "member 1 has another group") {
			t.Error(err)
		}
	}
	leave(t, gs)
}

func TestRefused(t *testing.T) {
	ctx := within(t)
	gs := local(t, 2)
	g := gs[0]
	for _, rank := range []int{-1, 2, 1 << 40} {
		if _, err := g.Member(ctx, rank); !errors.Is(err, vmmc.ErrBadArg) {
			t.Errorf("member %d: %v", rank, err)
		}
		if _, err := g.Import(ctx, rank, 1); !errors.Is(err, vmmc.ErrBadArg) {
			t.Errorf("member %d: %v", rank, err)
		}
		if g.Node(rank) != (vmmc.NodeID{}) {
			t.Errorf("member %d is on node %v", rank, g.Node(rank))
		}
	}
	if _, err := Exchange(ctx, g, "text"); !errors.As(err, new(*view.TypeError)) {
		t.Error(err)
	}
	if _, err := Exchange(ctx, g, struct {
		A uint8
		B uint32
	}{}); !errors.As(err, new(*view.TypeError)) {
		t.Error(err)
	}
	if _, err := Exchange(ctx, g, [61]uint32{}); !errors.Is(err, vmmc.ErrBadSize) {
		t.Error(err)
	}
	if _, err := Share[*int](ctx, g, 1); !errors.As(err, new(*view.TypeError)) {
		t.Error(err)
	}
	if _, err := Share[int32](ctx, g, 0); !errors.Is(err, vmmc.ErrBadSize) {
		t.Error(err)
	}
	var none context.Context
	_, exchanged := Exchange(none, g, int32(1))
	_, shared := Share[int32](none, g, 1)
	_, member := g.Member(none, 1)
	_, imports := g.ImportAll(none, 1)
	for i, err := range []error{g.Barrier(none), g.Leave(none), exchanged, shared, member, imports} {
		if !errors.Is(err, vmmc.ErrBadArg) {
			t.Errorf("call %d without a context: %v", i, err)
		}
	}
	barriers(t, gs, 1) // none of it was a collective
}

// Members that do not agree get an error, and go on.
func TestDisagreement(t *testing.T) {
	ctx := within(t)
	gs := local(t, 2)
	errs := all(gs, func(g *Group) (err error) {
		if g.Rank() == 0 {
			_, err = Exchange(ctx, g, int32(1))
		} else {
			_, err = Exchange(ctx, g, uint32(1))
		}
		return err
	})
	for rank, err := range errs {
		if !errors.Is(err, view.ErrLayout) || !strings.Contains(err.Error(), fmt.Sprintf("member %d", 1-rank)) {
			t.Error(err)
		}
	}
	errs = all(gs, func(g *Group) (err error) {
		if g.Rank() == 0 {
			_, err = Exchange(ctx, g, int32(1))
			return err
		}
		return g.Barrier(ctx)
	})
	if !errors.Is(errs[0], vmmc.ErrProtocol) || errs[1] != nil {
		t.Error(errs)
	}
	each(t, gs, func(ctx context.Context, g *Group) error {
		var err error
		if g.Rank() == 0 {
			var s *Shared[int32]
			if s, err = Share[int32](ctx, g, 1); err == nil {
				_, err = s.Of(ctx, 1)
			}
		} else {
			var s *Shared[uint32]
			if s, err = Share[uint32](ctx, g, 1); err == nil {
				_, err = s.Of(ctx, 0)
			}
		}
		if !errors.Is(err, view.ErrLayout) {
			return fmt.Errorf("it is %w", err)
		}
		return nil
	})
	exchanges(t, gs, 2)
}

// A collective whose context ends goes on with the next call of it.
func TestInterrupted(t *testing.T) {
	ctx := within(t)
	gs := local(t, 4)
	interrupted := func(call func(ctx context.Context, g *Group) error) {
		t.Helper()
		for range 3 {
			each(t, gs[:3], func(ctx context.Context, g *Group) error {
				soon, stop := context.WithTimeout(ctx, time.Millisecond)
				defer stop()
				if err := call(soon, g); !errors.Is(err, vmmc.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
					return fmt.Errorf("without member 3: %w", err)
				}
				return nil
			})
		}
		each(t, gs, func(ctx context.Context, g *Group) error { return call(ctx, g) })
	}
	// begins fails unless no collective of another kind begins, because one was interrupted.
	begins := func(kind string, g *Group) error {
		shared, exports := g.shares, g.sharing
		var errs [3]error
		if kind != "barrier" {
			errs[0] = g.Barrier(ctx)
		}
		if kind != "exchange" {
			_, errs[1] = Exchange(ctx, g, int32(1))
		}
		if kind != "share" {
			_, errs[2] = Share[int32](ctx, g, 1)
		}
		refused := 0
		for _, err := range errs {
			if errors.Is(err, vmmc.ErrInProgress) {
				refused++
			}
		}
		if refused != 2 || g.shares != shared || g.sharing != exports {
			return fmt.Errorf("another collective than the %s begins: %v", kind, errs)
		}
		return nil
	}
	for range 3 {
		interrupted(func(ctx context.Context, g *Group) error {
			err := g.Barrier(ctx)
			if err != nil {
				if err := begins("barrier", g); err != nil {
					return err
				}
			}
			return err
		})
		calls := [4]uint32{3: 1}
		interrupted(func(ctx context.Context, g *Group) error {
			calls[g.Rank()]++
			vs, err := Exchange(ctx, g, calls[g.Rank()])
			if err != nil {
				if err := begins("exchange", g); err != nil {
					return err
				}
			}
			if err == nil && !slices.Equal(vs, []uint32{1, 1, 1, 2}) {
				return fmt.Errorf("the values are %v", vs)
			}
			return err
		})
		interrupted(func(ctx context.Context, g *Group) error {
			s, err := Share[int32](ctx, g, 1)
			if err != nil {
				if err := begins("share", g); err != nil {
					return err
				}
				return err
			}
			if _, err := s.Of(ctx, 0); err != nil {
				return err
			}
			return errors.Join(g.Barrier(ctx), s.Close())
		})
	}
	cancelled, stop := context.WithCancel(ctx)
	stop()
	if err := gs[0].Barrier(cancelled); !errors.Is(err, vmmc.ErrCanceled) {
		t.Error(err)
	}
	each(t, gs, func(ctx context.Context, g *Group) error { return g.Barrier(ctx) })
}

// One collective at a time.
func TestInProgress(t *testing.T) {
	ctx := within(t)
	gs := local(t, 2)
	gs[0].busy.Lock() // as a collective does
	_, exchanged := Exchange(ctx, gs[0], int32(1))
	_, shared := Share[int32](ctx, gs[0], 1)
	for _, err := range []error{gs[0].Barrier(ctx), gs[0].Leave(ctx), exchanged, shared} {
		if !errors.Is(err, vmmc.ErrInProgress) {
			t.Error(err)
		}
	}
	gs[0].busy.Unlock()
	barriers(t, gs, 1)
}

// Failure words are read as they were written, near any sequence.
func TestFailureWord(t *testing.T) {
	for _, s := range []uint32{0, 1, 1<<19 - 1, 1 << 19, 1<<32 - 1} {
		for _, d := range []uint32{0, 1, 2, 1<<32 - 1, 1<<18 - 1} {
			for _, rank := range []int{0, 1, MaxSize - 1} {
				f := failure{rank, s + d}
				if got := failureOf(f.word(), s); got != f || f.word() == 0 {
					t.Errorf("%v near %d is %v", f, s, got)
				}
			}
		}
	}
}
