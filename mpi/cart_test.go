package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc/mpi"
)

// spread is the least difference between the largest and the smallest of k factors of n.
func spread(n, k, smallest, largest int) int {
	if k == 0 {
		if n == 1 {
			return largest - smallest
		}
		return math.MaxInt
	}
	least := math.MaxInt
	for d := 1; d <= n; d++ {
		if n%d == 0 {
			least = min(least, spread(n/d, k-1, min(smallest, d), max(largest, d)))
		}
	}
	return least
}

// Dimensions against all ways to factor a number.
func TestDimsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		given := rapid.SliceOfN(rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3}), 1, 5).Draw(t, "dims")
		rest := rapid.IntRange(1, 400).Draw(t, "rest")
		n, free := rest, 0
		for _, d := range given {
			if d == 0 {
				free++
			} else {
				n *= d
			}
		}
		before := slices.Clone(given)
		dims, err := mpi.Dims(n, given)
		if !slices.Equal(before, given) {
			t.Fatalf("the argument has changed from %v to %v", before, given)
		}
		if free == 0 && rest != 1 {
			if !errors.Is(err, mpi.ErrDims) {
				t.Fatalf("%d ranks on %v: %v, want %v", n, given, err, mpi.ErrDims)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		var chosen []int
		product := 1
		for i, d := range dims {
			product *= d
			if given[i] == 0 {
				chosen = append(chosen, d)
			} else if d != given[i] {
				t.Fatalf("%v became %v", given, dims)
			}
		}
		if product != n {
			t.Fatalf("%d ranks on %v: %v", n, given, dims)
		}
		if len(chosen) == 0 {
			return
		}
		for i := 1; i < len(chosen); i++ {
			if chosen[i] > chosen[i-1] {
				t.Fatalf("%v increase", chosen)
			}
		}
		if got, want := chosen[0]-chosen[len(chosen)-1], spread(rest, free, math.MaxInt, 0); got != want {
			t.Fatalf("%d as %v: they differ by %d, want %d", rest, chosen, got, want)
		}
	})
}

// What the standard gives as examples, and numbers that take long if each way is tried.
func TestDims(t *testing.T) {
	for _, x := range []struct {
		n          int
		dims, want []int
	}{
		{6, []int{0, 0}, []int{3, 2}},
		{7, []int{0, 0}, []int{7, 1}},
		{6, []int{0, 3, 0}, []int{2, 3, 1}},
		{1, nil, nil},
		{1 << 30, []int{0, 0, 0}, []int{1 << 10, 1 << 10, 1 << 10}},
		{math.MaxInt32, []int{0, 0}, []int{math.MaxInt32, 1}},
		{2 * 2 * 2 * 3 * 3 * 5 * 7 * 11 * 13, make([]int, 12), []int{13, 11, 7, 5, 3, 3, 2, 2, 2, 1, 1, 1}},
	} {
		got, err := mpi.Dims(x.n, x.dims)
		if err != nil || !slices.Equal(got, x.want) {
			t.Errorf("%d ranks on %v: %v, %v, want %v", x.n, x.dims, got, err, x.want)
		}
	}
	_, odd := mpi.Dims(7, []int{2, 0})
	_, negative := mpi.Dims(4, []int{-2, 0})
	_, none := mpi.Dims(0, []int{0})
	checkError(t, "MPI_Dims_create", "dims", mpi.ErrDims, odd)
	checkError(t, "MPI_Dims_create", "dims", mpi.ErrDims, negative)
	checkError(t, "MPI_Dims_create", "nnodes", mpi.ErrArg, none)
}

// grids are dimensions for each number of ranks from 1 to 8.
var grids = [][]int{{}, {1}, {2}, {1, 3}, {2, 2}, {5}, {3, 2}, {1, 7, 1}, {2, 2, 2}, {4, 2}}

// place is where a rank lies, by counting.
func place(dims []int, rank int) []int {
	at := make([]int, len(dims))
	for range rank {
		for i := len(at) - 1; i >= 0; i-- {
			if at[i]++; at[i] < dims[i] {
				break
			}
			at[i] = 0
		}
	}
	return at
}

// rankAt is the rank at a place, by looking at all.
func rankAt(dims []int, periodic []bool, at []int) int {
	at = slices.Clone(at)
	for i := range at {
		for ; periodic[i] && at[i] < 0; at[i] += dims[i] {
		}
		for ; periodic[i] && at[i] >= dims[i]; at[i] -= dims[i] {
		}
	}
	for rank := range 8 {
		if slices.Equal(place(dims, rank), at) {
			return rank
		}
	}
	return mpi.ProcNull
}

// periods are which dimensions are rings, as the bits of a number.
func periods(dims []int, bits int) []bool {
	p := make([]bool, len(dims))
	for i := range p {
		p[i] = bits>>i&1 == 1
	}
	return p
}

// Grids of 1 to 8 ranks, with all choices of rings.
func TestCart(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			world := job(t, w, 8)
			for _, dims := range grids {
				for bits := range 1 << len(dims) {
					each(t, world, func(ctx context.Context, c *mpi.Comm) error {
						if err := cart(ctx, c, dims, periods(dims, bits)); err != nil {
							return fmt.Errorf("grid %v, rings %b: %w", dims, bits, err)
						}
						return nil
					})
				}
			}
		})
	}
}

func cart(ctx context.Context, c *mpi.Comm, dims []int, periodic []bool) error {
	first, err := c.Cart(ctx, dims, periodic, true)
	if err != nil {
		return err
	}
	size := 1
	for _, d := range dims {
		size *= d
	}
	if (first == nil) != (c.Rank() >= size) {
		return fmt.Errorf("a grid of %d at rank %d: %w", size, c.Rank(), errWrong)
	}
	if first == nil {
		return nil
	}
	grid, err := first.Dup(ctx)
	if err != nil {
		return err
	}
	if grid.Size() != size || !slices.Equal(grid.Dims(), dims) || !slices.Equal(grid.Periodic(), periodic) {
		return fmt.Errorf("%d ranks on %v, %v: %w", grid.Size(), grid.Dims(), grid.Periodic(), errWrong)
	}
	for rank := range size {
		at, err := grid.Coords(rank)
		if err != nil {
			return err
		}
		if err := differs("coordinates", at, place(dims, rank)); err != nil {
			return err
		}
		if back, err := grid.RankOf(at); back != rank || err != nil {
			return fmt.Errorf("rank at %v is %d: %w", at, back, errors.Join(err, errWrong))
		}
	}
	// A shift is what a message goes: it arrives from the source.
	for dim := range dims {
		for _, by := range []int{-3, -1, 0, 1, 2, 8} {
			source, dest, err := grid.Shift(dim, by)
			if err != nil {
				return err
			}
			at := place(dims, grid.Rank())
			at[dim] += by
			wantDest := rankAt(dims, periodic, at)
			at[dim] -= 2 * by
			if wantSource := rankAt(dims, periodic, at); source != wantSource || dest != wantDest {
				return fmt.Errorf("shift by %d in %d: from %d to %d, want from %d to %d", by, dim, source, dest, wantSource, wantDest)
			}
			got := []int{mpi.ProcNull}
			if _, err := mpi.Sendrecv(ctx, grid.Comm, []int{grid.Rank()}, dest, 1, got, source, 1); err != nil {
				return err
			}
			if err := differs("shifted", got, []int{source}); err != nil {
				return err
			}
		}
	}
	return subs(ctx, grid, dims, periodic)
}

// subs makes all parts of a grid.
func subs(ctx context.Context, grid *mpi.Cart, dims []int, periodic []bool) error {
	for bits := range 1 << len(dims) {
		keep := periods(dims, bits)
		part, err := grid.Sub(ctx, keep)
		if err != nil {
			return err
		}
		var want []int // ranks of the grid
		var wantDims []int
		var wantPeriodic []bool
		mine := place(dims, grid.Rank())
		for i, k := range keep {
			if k {
				wantDims, wantPeriodic = append(wantDims, dims[i]), append(wantPeriodic, periodic[i])
			}
		}
		for rank := range grid.Size() {
			same := true
			for i, x := range place(dims, rank) {
				same = same && (keep[i] || x == mine[i])
			}
			if same {
				want = append(want, rank)
			}
		}
		got := make([]int, part.Size())
		if err := mpi.Allgather(ctx, part.Comm, []int{grid.Rank()}, got); err != nil {
			return err
		}
		if err := differs("ranks of a part", got, want); err != nil {
			return err
		}
		if !slices.Equal(part.Dims(), wantDims) || !slices.Equal(part.Periodic(), wantPeriodic) {
			return fmt.Errorf("a part of %v, %v, want %v, %v: %w", part.Dims(), part.Periodic(), wantDims, wantPeriodic, errWrong)
		}
	}
	return nil
}

// Places, ranks and shifts against arithmetic on the whole numbers, on a grid of one rank's view.
func TestCartModel(t *testing.T) {
	world := job(t, ways[0], 8)
	for _, dims := range [][]int{{8}, {4, 2}, {2, 2, 2}, {2, 1, 3}} {
		for bits := range 1 << len(dims) {
			periodic := periods(dims, bits)
			carts := make([]*mpi.Cart, len(world))
			each(t, world, func(ctx context.Context, c *mpi.Comm) (err error) {
				carts[c.Rank()], err = c.Cart(ctx, dims, periodic, false)
				return err
			})
			rapid.Check(t, func(t *rapid.T) {
				size := carts[0].Size()
				grid := carts[rapid.IntRange(0, size-1).Draw(t, "rank")]
				at := make([]int, len(dims))
				inside := true
				for i := range at {
					at[i] = rapid.IntRange(-20, 20).Draw(t, "coordinate")
					inside = inside && (periodic[i] || at[i] >= 0 && at[i] < dims[i])
				}
				rank, err := grid.RankOf(at)
				switch {
				case !inside:
					if !errors.Is(err, mpi.ErrArg) {
						t.Fatalf("rank at %v of %v: %v, want %v", at, dims, err, mpi.ErrArg)
					}
				case err != nil || rank != rankAt(dims, periodic, at):
					t.Fatalf("rank at %v of %v: %d, %v, want %d", at, dims, rank, err, rankAt(dims, periodic, at))
				}
				dim := rapid.IntRange(0, len(dims)-1).Draw(t, "dimension")
				by := rapid.IntRange(-20, 20).Draw(t, "places")
				source, dest, err := grid.Shift(dim, by)
				if err != nil {
					t.Fatal(err)
				}
				from, to := place(dims, grid.Rank()), place(dims, grid.Rank())
				from[dim] -= by
				to[dim] += by
				if source != rankAt(dims, periodic, from) || dest != rankAt(dims, periodic, to) {
					t.Fatalf("shift by %d in %d of %v: from %d to %d", by, dim, dims, source, dest)
				}
			})
		}
	}
}

func TestCartArguments(t *testing.T) {
	world := job(t, ways[0], 1)[0]
	ctx := within(t)
	grid, err := world.Cart(ctx, []int{1, 1}, []bool{true, false}, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, by := range []int{math.MinInt, math.MaxInt} {
		for dim, want := range []int{0, mpi.ProcNull} {
			if source, dest, err := grid.Shift(dim, by); source != want || dest != want || err != nil {
				t.Errorf("shift by %d: from %d to %d, %v, want %d", by, source, dest, err, want)
			}
		}
	}
	_, large := world.Cart(ctx, []int{math.MaxInt, math.MaxInt}, []bool{false, false}, false)
	_, zero := world.Cart(ctx, []int{0}, []bool{false}, false)
	_, short := world.Cart(ctx, []int{1}, nil, false)
	_, coords := grid.Coords(1)
	_, few := grid.RankOf([]int{0})
	_, beside := grid.RankOf([]int{0, 1})
	_, _, dim := grid.Shift(2, 1)
	_, sub := grid.Sub(ctx, []bool{true})
	checkError(t, "MPI_Cart_create", "dims", mpi.ErrDims, large)
	checkError(t, "MPI_Cart_create", "dims", mpi.ErrDims, zero)
	checkError(t, "MPI_Cart_create", "periods", mpi.ErrArg, short)
	checkError(t, "MPI_Cart_coords", "rank", mpi.ErrRank, coords)
	checkError(t, "MPI_Cart_rank", "coords", mpi.ErrArg, few)
	checkError(t, "MPI_Cart_rank", "coords", mpi.ErrArg, beside)
	checkError(t, "MPI_Cart_shift", "direction", mpi.ErrDims, dim)
	checkError(t, "MPI_Cart_sub", "remain_dims", mpi.ErrArg, sub)
	if mpi.ErrDims.Error() != "MPI_ERR_DIMS" || mpi.ErrTopology.Error() != "MPI_ERR_TOPOLOGY" {
		t.Errorf("the classes are called %v and %v", mpi.ErrDims, mpi.ErrTopology)
	}
}
