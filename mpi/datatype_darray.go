package mpi

import (
	"math"
	"slices"
)

// Order says which dimension of an array changes first in memory.
//
// Experimental: it may change in any release.
type Order int

// The orders.
//
// Experimental: they may change in any release.
const (
	OrderC       Order = iota // MPI_ORDER_C: the last one
	OrderFortran              // MPI_ORDER_FORTRAN: the first one
)

// Distribution says how a dimension of an array is distributed over the ranks of a dimension of a
// grid. The zero value is for a dimension of one rank, which has it whole (MPI_DISTRIBUTE_NONE).
//
// Experimental: it may change in any release.
type Distribution struct {
	kind  distribution
	block int
}

type distribution int

const (
	whole distribution = iota
	inBlocks
	cyclic
)

// DistributeBlock gives each rank one block of n places, or of as few as are enough if n is 0
// (MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_DFLT_DARG).
//
// Experimental: it may change in any release.
func DistributeBlock(n int) Distribution { return Distribution{inBlocks, n} }

// DistributeCyclic deals blocks of n places to the ranks in turn, of one place if n is 0
// (MPI_DISTRIBUTE_CYCLIC).
//
// Experimental: it may change in any release.
func DistributeCyclic(n int) Distribution { return Distribution{cyclic, n} }

// parts lists where the blocks of a rank begin and end, of a dimension with size places and ranks ranks.
func (d Distribution) parts(call string, dim, size, ranks, rank int) (parts [][2]int, err error) {
	block := d.block
	switch {
	case block < 0:
		return nil, fail(call, "dargs", ErrArg, "dimension %d has blocks of %d places", dim, block)
	case d.kind == whole && ranks != 1:
		return nil, fail(call, "psizes", ErrArg, "dimension %d is not distributed, and has %d ranks, want 1", dim, ranks)
	case d.kind == whole:
		block = size
	case d.kind == inBlocks && block == 0:
		block = (size-1)/ranks + 1
	case d.kind == inBlocks && block < (size-1)/ranks+1:
		return nil, fail(call, "dargs", ErrArg, "dimension %d has %d places: %d blocks of %d are fewer", dim, size, ranks, block)
	case block == 0:
		block = 1
	}
	// Differences are safe where products and sums might overflow.
	if rank > (size-1)/block {
		return nil, nil
	}
	if d.kind == cyclic && ((size-1)/block-rank)/ranks >= maxRuns {
		return nil, fail(call, "dargs", ErrArg, "dimension %d has more than %d blocks at a rank", dim, maxRuns)
	}
	for from := rank * block; ; from += ranks * block {
		parts = append(parts, [2]int{from, from + min(block, size-from)})
		if d.kind != cyclic || (size-1-from)/block < ranks {
			return parts, nil
		}
	}
}

// SubarrayIn is Subarray in either order (MPI_Type_create_subarray, chapter Datatypes).
//
// Experimental: it may change in any release.
func (d Datatype) SubarrayIn(order Order, sizes, part, starts []int) (Datatype, error) {
	switch order {
	case OrderC:
		return d.Subarray(sizes, part, starts)
	case OrderFortran:
		return d.Subarray(reversed(sizes), reversed(part), reversed(starts))
	}
	return Datatype{}, badOrder("MPI_Type_create_subarray", order)
}

func badOrder(call string, order Order) error {
	return fail(call, "order", ErrArg, "it is %d, want OrderC or OrderFortran", order)
}

func reversed(list []int) []int {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

// Darray is what one rank has of an array of items that is distributed over a grid of ranks
// (MPI_Type_create_darray, chapter Datatypes). Each dimension of the array has a size, a distribution
// and a number of ranks. Ranks are numbered as those of [Comm.Cart], whatever the order of the array.
// A rank may have nothing.
//
// [ErrArg]: the slices have different lengths, the rank is not in the grid, or a distribution does not fit.
//
// Experimental: it may change in any release.
func (d Datatype) Darray(rank int, order Order, sizes []int, distributions []Distribution, grid []int) (Datatype, error) {
	const call = "MPI_Type_create_darray"
	n := len(sizes)
	if n == 0 || len(distributions) != n || len(grid) != n {
		return Datatype{}, fail(call, "ndims", ErrArg, "there are %d sizes, %d distributions and %d dimensions of the grid",
			n, len(distributions), len(grid))
	}
	coords := make([]int, n)
	rest := rank
	for i, ranks := range slices.Backward(grid) {
		if ranks < 1 || sizes[i] < 1 || !near(sizes[i]) {
			return Datatype{}, fail(call, "sizes", ErrArg, "dimension %d has %d places and %d ranks, want 1 to %d, and 1 or more",
				i, sizes[i], ranks, math.MaxInt32)
		}
		coords[i], rest = rest%ranks, rest/ranks
	}
	if rank < 0 || rest != 0 {
		return Datatype{}, fail(call, "rank", ErrArg, "it is %d, and the grid is %v", rank, grid)
	}
	dims := ranksTo(n) // the first one to change comes last
	switch order {
	case OrderC:
	case OrderFortran:
		slices.Reverse(dims)
	default:
		return Datatype{}, badOrder(call, order)
	}
	out, stride := d, d.ub-d.lb
	for _, i := range slices.Backward(dims) {
		parts, err := distributions[i].parts(call, i, sizes[i], grid[i], coords[i])
		if err != nil {
			return Datatype{}, err
		}
		blocks, pieces := make([]block, 0, len(parts)), 0
		for _, p := range parts {
			if len(out.runs) != 1 || out.size != stride { // otherwise the places of a part are one piece
				pieces += len(out.runs) * (p[1] - p[0])
			}
			if pieces > maxRuns {
				return Datatype{}, fail(call, "sizes", ErrArg, "the type has more than %d pieces", maxRuns)
			}
			at, ok := product(p[0], stride)
			if !ok {
				return Datatype{}, fail(call, "sizes", ErrArg, "the array is longer than %d bytes", math.MaxInt32)
			}
			one, err := out.hvector(call, p[1]-p[0], 1, stride)
			if err != nil {
				return Datatype{}, err
			}
			blocks = append(blocks, block{one, at, 1})
		}
		var fits bool
		if stride, fits = product(sizes[i], stride); !fits {
			return Datatype{}, fail(call, "sizes", ErrArg, "the array is longer than %d bytes", math.MaxInt32)
		}
		if out, err = join(call, blocks); err != nil {
			return Datatype{}, err
		}
	}
	return out.Resized(0, stride)
}
