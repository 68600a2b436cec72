package mpi

import (
	"context"
	"math"
	"slices"
)

// Dims returns the dimensions of a grid of n ranks (MPI_Dims_create, chapter Process Topologies).
// What is 0 in dims is chosen, and the rest stays. Chosen dimensions do not increase. The
// difference between the largest and the smallest of them is the least that there is, and among
// equals the largest is least.
//
// Errors: [ErrArg] if n is not from 1 to 2^31-1; [ErrDims] if a dimension is negative, or n is no
// multiple of those that stay, or is not their product where none is chosen.
//
// Experimental: it may change in any release.
func Dims(n int, dims []int) ([]int, error) {
	const call = "MPI_Dims_create"
	if n < 1 || n > math.MaxInt32 {
		return nil, fail(call, "nnodes", ErrArg, "it is %d, want 1 to %d", n, math.MaxInt32)
	}
	rest, free := n, 0
	for i, d := range dims {
		switch {
		case d < 0:
			return nil, fail(call, "dims", ErrDims, "dimension %d is %d, want 0 for one to choose, or more", i, d)
		case d == 0:
			free++
		case rest%d != 0:
			return nil, fail(call, "dims", ErrDims, "%d ranks are no multiple of the dimensions up to number %d", n, i)
		default:
			rest /= d
		}
	}
	if free == 0 && rest != 1 {
		return nil, fail(call, "dims", ErrDims, "%d ranks are not the product of the dimensions, and none is 0", n)
	}
	b := balance{least: math.MaxInt}
	for d := 1; d*d <= rest; d++ {
		if rest%d == 0 {
			b.divisors = append(b.divisors, d)
			if d*d != rest {
				b.divisors = append(b.divisors, rest/d)
			}
		}
	}
	slices.Sort(b.divisors)
	b.search(rest, make([]int, 0, free), free)
	out := slices.Clone(dims)
	for i, d := range out {
		if d == 0 {
			out[i], b.best = b.best[0], b.best[1:]
		}
	}
	return out, nil
}

// balance searches for the factors that differ least.
type balance struct {
	divisors []int // of what is divided, upwards
	least    int   // difference between the largest and the smallest factor
	best     []int
}

// search tries all ways to write rest as k more factors that do not increase.
func (b *balance) search(rest int, chosen []int, k int) {
	if k == 0 {
		if len(chosen) == 0 {
			return
		}
		if d := chosen[0] - chosen[len(chosen)-1]; rest == 1 && d < b.least {
			b.least, b.best = d, slices.Clone(chosen)
		}
		return
	}
	for _, d := range b.divisors {
		largest := d
		if len(chosen) > 0 {
			largest = chosen[0]
			if d > chosen[len(chosen)-1] {
				return
			}
		}
		// d is the largest of the k, and the smallest is not above it.
		if rest%d != 0 || power(d, k) < rest || largest-d >= b.least {
			continue
		}
		// None of the k may be below this one if they are to differ less than the best ones.
		if s := largest - b.least + 1; s > 0 && power(s, k) > rest {
			if len(chosen) == 0 {
				return // a larger one differs more
			}
			continue
		}
		b.search(rest/d, append(chosen, d), k-1)
	}
}

// power is d^k, or a number above all int32 if it is above them.
func power(d, k int) int {
	p := 1
	for ; k > 0 && p <= math.MaxInt32 && d > 1; k-- {
		p *= d
	}
	return p
}

// Cart is a communicator whose ranks lie on a grid (Cartesian topology, chapter Process
// Topologies). Ranks are numbered by rows: the last coordinate changes first.
//
// Experimental: it may change in any release.
type Cart struct {
	*Comm
	grid
}

// grid is a Cartesian topology.
type grid struct {
	dims     []int
	periodic []bool
}

// Cart makes a communicator of the first ranks, on a grid of these dimensions (MPI_Cart_create). It
// is a collective. A dimension that is periodic is a ring. A rank beyond the grid gets nil.
//
// The ranks keep their order also if reorder is true: "vmmc run" numbers the ranks of a node one
// after the other, so rows of the grid lie on one node already.
//
// Errors: [ErrDims] if a dimension is not positive, or the grid has more places than there are
// ranks; [ErrArg] if periodic is not as long as dims.
//
// Experimental: it may change in any release.
func (c *Comm) Cart(ctx context.Context, dims []int, periodic []bool, reorder bool) (_ *Cart, err error) {
	defer func() { err = c.raise(err) }()
	const call = "MPI_Cart_create"
	_ = reorder
	if len(periodic) != len(dims) {
		return nil, fail(call, "periods", ErrArg, "it has %d values for %d dimensions", len(periodic), len(dims))
	}
	places := 1
	for i, d := range dims {
		if d < 1 {
			return nil, fail(call, "dims", ErrDims, "dimension %d is %d, want 1 or more", i, d)
		}
		if d > len(c.ranks)/places {
			return nil, fail(call, "dims", ErrDims, "the grid %v has more places than the %d ranks of %s",
				dims, len(c.ranks), c.Name())
		}
		places *= d
	}
	part, err := c.sub(ctx, call, ranksTo(places), "cart")
	if part == nil {
		return nil, err
	}
	return &Cart{part, grid{slices.Clone(dims), slices.Clone(periodic)}}, nil
}

// Dup makes a communicator of the same ranks on the same grid (MPI_Comm_dup). It is a collective.
//
// Experimental: it may change in any release.
func (t *Cart) Dup(ctx context.Context) (*Cart, error) {
	c, err := t.Comm.Dup(ctx)
	if err != nil {
		return nil, err
	}
	return &Cart{c, t.grid}, nil
}

// Dims returns the dimensions (MPI_Cartdim_get, MPI_Cart_get).
//
// Experimental: it may change in any release.
func (t *Cart) Dims() []int { return slices.Clone(t.dims) }

// Periodic reports for each dimension whether it is a ring (MPI_Cart_get).
//
// Experimental: it may change in any release.
func (t *Cart) Periodic() []bool { return slices.Clone(t.periodic) }

// Coords returns where a rank lies (MPI_Cart_coords).
//
// Experimental: it may change in any release.
func (t *Cart) Coords(rank int) ([]int, error) {
	if rank < 0 || rank >= len(t.ranks) {
		return nil, t.badRank("MPI_Cart_coords", "rank", rank)
	}
	return t.coords(rank), nil
}

func (g *grid) coords(rank int) []int {
	at := make([]int, len(g.dims))
	for i := len(at) - 1; i >= 0; i-- {
		at[i] = rank % g.dims[i]
		rank /= g.dims[i]
	}
	return at
}

// RankOf returns the rank at a place (MPI_Cart_rank). Coordinates of periodic dimensions may be
// any: they go round the ring. [ErrArg]: there are too few or too many, or one lies beside the
// grid.
//
// Experimental: it may change in any release.
func (t *Cart) RankOf(coords []int) (int, error) {
	const call = "MPI_Cart_rank"
	if len(coords) != len(t.dims) {
		return Undefined, fail(call, "coords", ErrArg, "there are %d, and the grid has %d dimensions",
			len(coords), len(t.dims))
	}
	for i, x := range coords {
		if !t.periodic[i] && (x < 0 || x >= t.dims[i]) {
			return Undefined, fail(call, "coords", ErrArg, "coordinate %d is %d, want 0 to %d: that dimension is no ring",
				i, x, t.dims[i]-1)
		}
	}
	return t.rankOf(coords), nil
}

func (g *grid) rankOf(coords []int) int {
	rank := 0
	for i, x := range coords {
		rank = rank*g.dims[i] + (x%g.dims[i]+g.dims[i])%g.dims[i]
	}
	return rank
}

// Shift returns the rank that a message comes from and the one that it goes to if all ranks send by
// as many places along a dimension (MPI_Cart_shift). A rank beside the grid is ProcNull. [ErrDims]:
// there is no such dimension.
//
// Experimental: it may change in any release.
func (t *Cart) Shift(dim, places int) (source, dest int, err error) {
	if dim < 0 || dim >= len(t.dims) {
		return ProcNull, ProcNull, fail("MPI_Cart_shift", "direction", ErrDims,
			"it is %d, and the grid has %d dimensions from 0 on", dim, len(t.dims))
	}
	source, dest = t.shift(t.rank, dim, places)
	return source, dest, nil
}

func (g *grid) shift(rank, dim, places int) (source, dest int) {
	n := g.dims[dim]
	if g.periodic[dim] {
		places %= n
	} else {
		places = min(max(places, -n), n) // beside the grid all the same
	}
	at := g.coords(rank)
	x := at[dim]
	place := func(x int) int {
		if !g.periodic[dim] && (x < 0 || x >= n) {
			return ProcNull
		}
		at[dim] = x
		return g.rankOf(at)
	}
	return place(x - places), place(x + places)
}

// Sub makes a communicator of the ranks that differ only in the dimensions to keep, on a grid of
// these (MPI_Cart_sub). It is a collective: all ranks give the same. [ErrArg]: keep is not as long
// as there are dimensions.
//
// Experimental: it may change in any release.
func (t *Cart) Sub(ctx context.Context, keep []bool) (*Cart, error) {
	const call = "MPI_Cart_sub"
	if len(keep) != len(t.dims) {
		return nil, fail(call, "remain_dims", ErrArg, "it has %d values for %d dimensions", len(keep), len(t.dims))
	}
	var g grid
	at := t.coords(t.rank)
	for i, k := range keep {
		if k {
			g.dims, g.periodic = append(g.dims, t.dims[i]), append(g.periodic, t.periodic[i])
		}
	}
	size := 1
	for _, d := range g.dims {
		size *= d
	}
	members := make([]int, size)
	for rank := range members {
		part := g.coords(rank)
		for i, k := range keep {
			if k {
				at[i], part = part[0], part[1:]
			}
		}
		members[rank] = t.rankOf(at)
	}
	c, err := t.sub(ctx, call, members, "sub")
	if err != nil {
		return nil, err
	}
	return &Cart{c, g}, nil
}
