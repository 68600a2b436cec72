package mpi_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/group"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/mpi"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// ranksOf are the ranks of a group's members in the world.
func ranksOf(g, world mpi.Group) ([]int, error) {
	list := make([]int, g.Size())
	for i := range list {
		list[i] = i
	}
	return g.Translate(list, world)
}

// Group operations against lists of ranks, in which membership is looked up one by one.
func TestGroupModel(t *testing.T) {
	const n = 8
	world := job(t, ways[0], n)[3]
	all := world.Group()
	rapid.Check(t, func(t *rapid.T) {
		groups, lists := []mpi.Group{{}, all}, [][]int{{}, {0, 1, 2, 3, 4, 5, 6, 7}}
		pick := func(name string) (mpi.Group, []int) {
			i := rapid.IntRange(0, len(groups)-1).Draw(t, name)
			return groups[i], lists[i]
		}
		for range rapid.IntRange(1, 12).Draw(t, "operations") {
			g, a := pick("g")
			h, b := pick("h")
			var got mpi.Group
			var want []int
			var err error
			var class error // that is due
			chosen := rapid.SliceOfN(rapid.IntRange(-1, n), 0, 4).Draw(t, "ranks")
			invalid := func(list []int) error {
				for i, r := range list {
					if r < 0 || r >= len(a) || slices.Contains(list[:i], r) {
						return mpi.ErrRank
					}
				}
				return nil
			}
			include := func(list []int) {
				for _, r := range list {
					want = append(want, a[r])
				}
			}
			exclude := func(list []int) {
				for r, p := range a {
					if !slices.Contains(list, r) {
						want = append(want, p)
					}
				}
			}
			ranges := []mpi.Range{{
				First:  rapid.IntRange(-1, n).Draw(t, "first"),
				Last:   rapid.IntRange(-1, n).Draw(t, "last"),
				Stride: rapid.IntRange(-3, 3).Draw(t, "stride"),
			}}
			var steps []int
			first, last, stride := ranges[0].First, ranges[0].Last, ranges[0].Stride
			bad := stride == 0 || (last-first)*stride < 0
			if !bad {
				for k := range (last-first)/stride + 1 {
					steps = append(steps, first+k*stride)
				}
			}
			op := rapid.SampledFrom([]string{
				"incl", "excl", "range incl", "range excl", "union", "intersection", "difference",
			}).Draw(t, "operation")
			switch op {
			case "incl":
				got, err = g.Incl(chosen)
				if class = invalid(chosen); class == nil {
					include(chosen)
				}
			case "excl":
				got, err = g.Excl(chosen)
				if class = invalid(chosen); class == nil {
					exclude(chosen)
				}
			case "range incl", "range excl":
				f, model := g.RangeIncl, include
				if op == "range excl" {
					f, model = g.RangeExcl, exclude
				}
				got, err = f(ranges)
				if class = invalid(steps); bad {
					class = mpi.ErrArg
				}
				if class == nil {
					model(steps)
				}
			case "union":
				got, err = g.Union(h)
				want = slices.Clone(a)
				for _, p := range b {
					if !slices.Contains(a, p) {
						want = append(want, p)
					}
				}
			default:
				got = g.Difference(h)
				if op == "intersection" {
					got = g.Intersection(h)
				}
				for _, p := range a {
					if slices.Contains(b, p) == (op == "intersection") {
						want = append(want, p)
					}
				}
			}
			if class != nil {
				if !errors.Is(err, class) {
					t.Fatalf("%s: %v, want %v", op, err, class)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%s: %v", op, err)
			}
			if list, err := ranksOf(got, all); err != nil || !slices.Equal(list, want) {
				t.Fatalf("%s of %v, %v: %v, %v, want %v", op, a, b, list, err, want)
			}
			if rank := slices.Index(want, 3); got.Rank() != rank && (rank >= 0 || got.Rank() != mpi.Undefined) {
				t.Fatalf("%s: rank %d, want %d", op, got.Rank(), rank)
			}
			groups, lists = append(groups, got), append(lists, want)

			g, a = pick("compared")
			h, b = pick("compared with")
			x, y := slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
			result := mpi.Unequal
			if slices.Equal(a, b) {
				result = mpi.Ident
			} else if slices.Equal(x, y) {
				result = mpi.Similar
			}
			if c := g.Compare(h); c != result {
				t.Fatalf("compare %v with %v: %v, want %v", a, b, c, result)
			}
			list := rapid.SliceOfN(rapid.SampledFrom([]int{mpi.ProcNull, 0, 1, 2, 7, 8}), 0, 3).Draw(t, "translated")
			to, err := g.Translate(list, h)
			for i, r := range list {
				switch {
				case r == mpi.ProcNull:
					if err == nil && to[i] != mpi.ProcNull {
						t.Fatalf("ProcNull became %d", to[i])
					}
				case r >= len(a):
					if !errors.Is(err, mpi.ErrRank) {
						t.Fatalf("translate %v of %v: %v, want %v", list, a, err, mpi.ErrRank)
					}
				case err == nil:
					at := slices.Index(b, a[r])
					if at < 0 {
						at = mpi.Undefined
					}
					if to[i] != at {
						t.Fatalf("translate rank %d of %v to %v: %d, want %d", r, a, b, to[i], at)
					}
				}
			}
		}
	})
}

// Ranges end also where adding the stride once more would overflow.
func TestGroupRangeEnds(t *testing.T) {
	g := job(t, ways[0], 2)[0].Group()
	for _, r := range []mpi.Range{
		{First: 1, Last: 1, Stride: math.MaxInt},
		{First: 0, Last: math.MaxInt - 1, Stride: math.MaxInt},
		{First: 0, Last: math.MinInt + 1, Stride: math.MinInt},
	} {
		if got, err := g.RangeIncl([]mpi.Range{r}); err != nil || got.Size() != 1 {
			t.Errorf("%+v: %d ranks, %v, want the first rank alone", r, got.Size(), err)
		}
	}
	if _, err := g.RangeIncl([]mpi.Range{{First: 0, Last: math.MaxInt, Stride: 1}}); !errors.Is(err, mpi.ErrRank) {
		t.Errorf("a range far beyond the group: %v, want %v", err, mpi.ErrRank)
	}
}

func TestGroupArguments(t *testing.T) {
	world, other := job(t, ways[0], 2)[0], job(t, ways[0], 2)[0]
	ctx := within(t)
	g, h := world.Group(), other.Group()
	var none context.Context
	_, incl := g.Incl([]int{2})
	_, excl := g.Excl([]int{1, 1})
	_, rangeIncl := g.RangeIncl([]mpi.Range{{First: 0, Last: 1, Stride: 0}})
	_, rangeExcl := g.RangeExcl([]mpi.Range{{First: 0, Last: 2, Stride: 1}})
	_, union := g.Union(h)
	_, translate := g.Translate([]int{-1}, g)
	_, create := world.Create(ctx, h)
	_, createTag := world.CreateGroup(ctx, g, mpi.MaxTag)
	_, createCtx := world.CreateGroup(none, g, 0)
	_, createGroup := world.CreateGroup(ctx, h, 0)
	for _, x := range []struct {
		call, arg string
		class     mpi.Class
		err       error
	}{
		{"MPI_Group_incl", "ranks", mpi.ErrRank, incl},
		{"MPI_Group_excl", "ranks", mpi.ErrRank, excl},
		{"MPI_Group_range_incl", "ranges", mpi.ErrArg, rangeIncl},
		{"MPI_Group_range_excl", "ranges", mpi.ErrRank, rangeExcl},
		{"MPI_Group_union", "group2", mpi.ErrGroup, union},
		{"MPI_Group_translate_ranks", "ranks1", mpi.ErrRank, translate},
		{"MPI_Comm_create", "group", mpi.ErrGroup, create},
		{"MPI_Comm_create_group", "tag", mpi.ErrTag, createTag},
		{"MPI_Comm_create_group", "ctx", mpi.ErrArg, createCtx},
		{"MPI_Comm_create_group", "group", mpi.ErrGroup, createGroup},
	} {
		checkError(t, x.call, x.arg, x.class, x.err)
	}
	if mpi.ErrGroup.Error() != "MPI_ERR_GROUP" {
		t.Errorf("the class is called %v", mpi.ErrGroup)
	}
	if g.Compare(h) != mpi.Unequal || g.Intersection(h).Size() != 0 || g.Difference(h).Compare(g) != mpi.Ident {
		t.Error("groups of two jobs have members in common")
	}
}

// checkError checks that an error names call, argument and class.
func checkError(t *testing.T, call, arg string, class mpi.Class, err error) {
	t.Helper()
	var e *mpi.Error
	if !errors.As(err, &e) || e.Call != call || e.Arg != arg || !errors.Is(err, class) {
		t.Errorf("%v, want %s, argument %s, %v", err, call, arg, class)
	}
}

// Communicators of groups, for all numbers of ranks from 1 to 8: their order is that of the group,
// disjoint groups are made by one call, and members alone make one while others do not take part.
func TestCreate(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			world := job(t, w, 8)
			for n := 1; n <= 8; n++ {
				each(t, world, func(ctx context.Context, c *mpi.Comm) error { return create(ctx, c, n) })
			}
		})
	}
}

func create(ctx context.Context, c *mpi.Comm, n int) error {
	// The first n ranks are one group, downwards. The others are another one.
	g, err := c.Group().RangeIncl([]mpi.Range{{First: n - 1, Last: 0, Stride: -1}})
	if err != nil {
		return err
	}
	rest, err := c.Group().RangeExcl([]mpi.Range{{First: 0, Last: n - 1, Stride: 1}})
	if err != nil {
		return err
	}
	mine := g
	if g.Rank() == mpi.Undefined {
		mine = rest
	}
	part, err := c.Create(ctx, mine)
	if err != nil {
		return err
	}
	if err := isOf(ctx, part, mine, c.Group()); err != nil {
		return err
	}
	only, err := c.Create(ctx, g)
	if err != nil {
		return err
	}
	if (only == nil) != (g.Rank() == mpi.Undefined) {
		return fmt.Errorf("a communicator of %d ranks at rank %d: %w", n, c.Rank(), errWrong)
	}
	if g.Rank() == mpi.Undefined {
		if none, err := c.CreateGroup(ctx, g, 0); none != nil || err != nil {
			return fmt.Errorf("a communicator for no member: %w", errors.Join(err, errWrong))
		}
		return nil // the members make theirs alone
	}
	for tag := range 2 {
		first, err := c.CreateGroup(ctx, g, tag*mpi.MaxGroupTag)
		if err != nil {
			return err
		}
		if err := isOf(ctx, first, g, c.Group()); err != nil {
			return err
		}
	}
	return nil
}

// isOf checks that a communicator has a group's ranks, and that they talk.
func isOf(ctx context.Context, c *mpi.Comm, g, world mpi.Group) error {
	if c.Group().Compare(g) != mpi.Ident || c.Rank() != g.Rank() || c.Size() != g.Size() {
		return fmt.Errorf("rank %d of %d, want %d of %d: %w", c.Rank(), c.Size(), g.Rank(), g.Size(), errWrong)
	}
	got := make([]int64, c.Size())
	if err := mpi.Allgather(ctx, c, []int64{int64(world.Rank())}, got); err != nil {
		return err
	}
	ranks, err := ranksOf(g, world)
	if err != nil {
		return err
	}
	want := make([]int64, len(ranks))
	for i, r := range ranks {
		want[i] = int64(r)
	}
	return differs("ranks of the communicator", got, want)
}

// Goroutines of the same ranks make communicators of overlapping groups at the same time, while the
// communicator is in a collective.
func TestCreateGroupAtOnce(t *testing.T) {
	each(t, job(t, ways[0], 4), func(ctx context.Context, c *mpi.Comm) error {
		errs := make(chan error)
		const calls = 4
		for tag := range calls {
			go func() {
				g, err := c.Group().Excl([]int{tag})
				if err == nil && g.Rank() != mpi.Undefined {
					var part *mpi.Comm
					if part, err = c.CreateGroup(ctx, g, tag); err == nil {
						err = isOf(ctx, part, g, c.Group())
					}
				}
				errs <- err
			}()
		}
		all := []error{c.Barrier(ctx)}
		for range calls {
			all = append(all, <-errs)
		}
		return errors.Join(all...)
	})
}

// A rank is killed. The others make a communicator of themselves, and go on with it.
func TestCreateGroupAfterKill(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			const size = 4
			nodes := vmmctest.Nodes(t, w.nodes)
			id := make([]byte, 16)
			_, _ = rand.Read(id)
			text := "1:" + hex.EncodeToString(id) + ":n1*4"
			if w.nodes == 2 {
				text = "1:" + hex.EncodeToString(id) + ":n1*2,n2*2"
			}
			t.Setenv(nodeproto.GroupEnv, text)
			t.Setenv(nodeproto.SizeEnv, strconv.Itoa(size))
			cs, gs, ps := make([]*mpi.Comm, size-1), make([]*group.Group, size-1), make([]*vmmc.Process, size-1)
			for rank := range cs {
				t.Setenv(nodeproto.RankEnv, strconv.Itoa(rank))
				ps[rank] = nodes[rank*w.nodes/size].Open(t)
				var err error
				if gs[rank], err = group.Join(within(t), ps[rank]); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv(nodeproto.RankEnv, strconv.Itoa(size-1))
			child := vmmctest.Child(t, nodes[w.nodes-1], "rank", w.module)
			var wg sync.WaitGroup
			for rank, g := range gs {
				wg.Go(func() {
					var err error
					if cs[rank], err = mpi.Init(within(t), mpi.WithGroup(ps[rank], g), mpi.WithModule(w.module)); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if t.Failed() {
				t.FailNow()
			}
			each(t, cs, func(ctx context.Context, c *mpi.Comm) error { return c.Barrier(ctx) })
			child.Kill()
			each(t, cs, func(ctx context.Context, c *mpi.Comm) error {
				if _, err := mpi.Recv(ctx, c, []int{0}, size-1, 0); !errors.Is(err, mpi.ErrProcFailed) {
					return fmt.Errorf("a message of the killed rank: %w", err)
				}
				if _, err := c.CreateGroup(ctx, c.Group(), 0); !errors.Is(err, mpi.ErrProcFailed) {
					return fmt.Errorf("a communicator with the killed rank: %w", err)
				}
				g, err := c.Group().Excl([]int{size - 1})
				if err != nil {
					return err
				}
				alive, err := c.CreateGroup(ctx, g, 1)
				if err != nil {
					return err
				}
				return isOf(ctx, alive, g, c.Group())
			})
			each(t, cs, func(ctx context.Context, c *mpi.Comm) error {
				if err := c.Finalize(ctx); !errors.Is(err, mpi.ErrProcFailed) {
					t.Errorf("rank %d: Finalize: %v", c.Rank(), err)
				}
				return nil
			})
			for _, g := range gs {
				_ = g.Leave(within(t))
			}
		})
	}
}
