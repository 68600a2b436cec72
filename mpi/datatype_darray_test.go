package mpi_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc/mpi"
)

// All ranks' parts of a distributed array together are the array, each part is what the definition of the
// distributions says, and two items of it lie one array apart.
func TestDarrayModel(t *testing.T) {
	item, err := mpi.TypeOf[int32]()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 3).Draw(rt, "dimensions")
		order := mpi.Order(rapid.IntRange(0, 1).Draw(rt, "order"))
		sizes, grid, dist := make([]int, n), make([]int, n), make([]mpi.Distribution, n)
		owner := make([]func(at int) int, n) // the coordinate of a place's rank
		total, ranks := 1, 1
		for i := range n {
			size, p := rapid.IntRange(1, 9).Draw(rt, "size"), rapid.IntRange(1, 4).Draw(rt, "ranks")
			switch rapid.IntRange(0, 4).Draw(rt, "distribution") {
			case 0:
				p = 1
				owner[i] = func(int) int { return 0 }
			case 1:
				block := (size + p - 1) / p
				dist[i], owner[i] = mpi.DistributeBlock(0), func(at int) int { return at / block }
			case 2:
				block := rapid.IntRange((size+p-1)/p, 12).Draw(rt, "block")
				dist[i], owner[i] = mpi.DistributeBlock(block), func(at int) int { return at / block }
			case 3:
				dist[i], owner[i] = mpi.DistributeCyclic(0), func(at int) int { return at % p }
			case 4:
				block := rapid.IntRange(1, 12).Draw(rt, "block")
				dist[i], owner[i] = mpi.DistributeCyclic(block), func(at int) int { return at / block % p }
			}
			sizes[i], grid[i] = size, p
			total, ranks = total*size, ranks*p
		}
		array := make([]int32, 2*total)
		for i := range array {
			array[i] = int32(i)
		}
		want := make([][]int32, ranks)
		for at := range total {
			rest, coords := at, make([]int, n)
			for k := range n {
				dim := k // the first to change
				if order == mpi.OrderC {
					dim = n - 1 - k
				}
				coords[dim], rest = rest%sizes[dim], rest/sizes[dim]
			}
			rank := 0
			for i := range n {
				rank = rank*grid[i] + owner[i](coords[i])
			}
			want[rank] = append(want[rank], int32(at))
		}
		for rank := range ranks {
			d, err := item.Darray(rank, order, sizes, dist, grid)
			if err != nil {
				rt.Fatal(err)
			}
			if d.Size() != 4*len(want[rank]) {
				rt.Fatalf("rank %d has %d bytes, want %d places", rank, d.Size(), len(want[rank]))
			}
			b, err := mpi.Pack(nil, array, 2, d)
			if err != nil {
				rt.Fatal(err)
			}
			got := make([]int32, len(b)/4)
			if _, err := mpi.Unpack(b, got, len(got), item); err != nil {
				rt.Fatal(err)
			}
			both := slices.Clone(want[rank])
			for _, at := range want[rank] {
				both = append(both, at+int32(total))
			}
			if !slices.Equal(got, both) {
				rt.Fatalf("rank %d has %v, want %v", rank, got, both)
			}
		}
	})
}

// A part in the order of Fortran is that of the reversed dimensions in the order of C.
func TestSubarrayFortran(t *testing.T) {
	item, err := mpi.TypeOf[byte]()
	if err != nil {
		t.Fatal(err)
	}
	// Of 4 rows and 3 columns, which lie one after another, rows 1 and 2 of columns 1 and 2.
	d, err := item.SubarrayIn(mpi.OrderFortran, []int{4, 3}, []int{2, 2}, []int{1, 1})
	if err != nil {
		t.Fatal(err)
	}
	array := make([]byte, 12)
	for i := range array {
		array[i] = byte(i)
	}
	if b, err := mpi.Pack(nil, array, 1, d); err != nil || !slices.Equal(b, []byte{5, 6, 9, 10}) {
		t.Errorf("%v, %v", b, err)
	}
	c, err := item.SubarrayIn(mpi.OrderC, []int{4, 3}, []int{2, 2}, []int{1, 1})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := mpi.Pack(nil, array, 1, c); err != nil || !slices.Equal(b, []byte{4, 5, 7, 8}) {
		t.Errorf("in the order of C: %v, %v", b, err)
	}
}

func TestDarrayArguments(t *testing.T) {
	item, err := mpi.TypeOf[byte]()
	if err != nil {
		t.Fatal(err)
	}
	var none mpi.Distribution
	block, cyclic := mpi.DistributeBlock, mpi.DistributeCyclic
	type dist = []mpi.Distribution
	for what, c := range map[string]struct {
		rank  int
		order mpi.Order
		sizes []int
		dist  dist
		grid  []int
	}{
		"no dimensions":           {0, mpi.OrderC, nil, nil, nil},
		"too few distributions":   {0, mpi.OrderC, []int{2, 2}, dist{none}, []int{1, 1}},
		"too few of the grid":     {0, mpi.OrderC, []int{2}, dist{none}, nil},
		"a rank beyond the grid":  {2, mpi.OrderC, []int{4}, dist{block(0)}, []int{2}},
		"a negative rank":         {-1, mpi.OrderC, []int{4}, dist{block(0)}, []int{2}},
		"no place":                {0, mpi.OrderC, []int{0}, dist{block(0)}, []int{2}},
		"no rank":                 {0, mpi.OrderC, []int{4}, dist{block(0)}, []int{0}},
		"whole, for two":          {0, mpi.OrderC, []int{4}, dist{none}, []int{2}},
		"blocks that are short":   {0, mpi.OrderC, []int{5}, dist{block(2)}, []int{2}},
		"a negative block":        {0, mpi.OrderC, []int{5}, dist{cyclic(-1)}, []int{2}},
		"more blocks than pieces": {0, mpi.OrderC, []int{math.MaxInt32}, dist{cyclic(0)}, []int{1}},
		"more places than bytes":  {0, mpi.OrderC, []int{math.MaxInt32, math.MaxInt32}, dist{cyclic(0), cyclic(0)}, []int{1, 1}},
		"an order that is none":   {0, 2, []int{5}, dist{block(0)}, []int{2}},
		"an array without bounds": {1, mpi.OrderC, []int{math.MaxInt, 2}, dist{block(0), block(0)}, []int{2, 1}},
		"blocks without bounds":   {0, mpi.OrderC, []int{math.MaxInt}, dist{cyclic(math.MaxInt)}, []int{math.MaxInt}},
	} {
		if _, err := item.Darray(c.rank, c.order, c.sizes, c.dist, c.grid); !errors.Is(err, mpi.ErrArg) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := item.SubarrayIn(7, []int{1}, []int{1}, []int{0}); !errors.Is(err, mpi.ErrArg) {
		t.Errorf("a subarray in no order: %v", err)
	}
}
