package mpiabi

// Chapter "Datatypes": parts of arrays.

// The orders and distributions of arrays.
const (
	orderC              = 12
	orderFortran        = 15
	distributeNone      = 16
	distributeBlock     = 17
	distributeCyclic    = 18
	distributeByDefault = 19
)

func init() {
	construct("MPI_Type_create_subarray", 5, subarray)
	construct("MPI_Type_create_darray", 8, darray)
}

// dims is the number of dimensions of an array.
func (a *arguments) dims(i int) (int, error) {
	const most = 64
	n := a.Int(i)
	if n < 1 || n > most {
		return 0, fail(a.name(i), errArg, "it is %d, want 1 to %d", n, most)
	}
	return n, nil
}

// order lists n dimensions of an array. The one that changes last in memory is first.
func (a *arguments) order(i, n int) ([]int, error) {
	v := a.Int(i)
	if v != orderC && v != orderFortran {
		return nil, fail(a.name(i), errArg, "it is %d, want MPI_ORDER_C or MPI_ORDER_FORTRAN", v)
	}
	dims := make([]int, n)
	for k := range dims {
		dims[k] = k
		if v == orderFortran {
			dims[k] = n - 1 - k
		}
	}
	return dims, nil
}

// places are those from from on, and before to, of a dimension.
type places struct{ from, to int }

// array is a part of an array of items: of each dimension some places.
func (a *arguments) array(t *datatype, dims, sizes []int, parts [][]places) (*datatype, error) {
	for k := len(dims) - 1; k >= 0; k-- {
		i := dims[k]
		stride := t.extent
		whole, ok := times(sizes[i], stride)
		if !ok {
			return nil, fail(a.name(1), errArg, "an array of %v items is beyond the addresses of a program", sizes)
		}
		blocks := make([]block, len(parts[i]))
		for j, p := range parts[i] {
			blocks[j] = block{t, p.from * stride, p.to - p.from}
		}
		made, err := a.join(1, blocks)
		if err != nil {
			return nil, err
		}
		made.align = t.align
		if err := made.resize(0, whole); err != nil {
			return nil, err
		}
		t = made
	}
	return t, nil
}

func subarray(a *arguments, t *datatype, m *contents) (*datatype, error) {
	m.combiner = combinerSubarray
	n, err := a.dims(0)
	if err != nil {
		return nil, err
	}
	m.ints = append(m.ints, n)
	lists := make([][]int, 3)
	for i := range lists {
		if lists[i], err = a.ints(1+i, n); err != nil {
			return nil, err
		}
		m.count(lists[i]...)
	}
	dims, err := a.order(4, n)
	if err != nil {
		return nil, err
	}
	m.ints = append(m.ints, a.Int(4))
	parts := make([][]places, n)
	for i, size := range lists[0] {
		part, start := lists[1][i], lists[2][i]
		switch {
		case size < 1 || far(size):
			return nil, fail(a.name(1), errArg, "dimension %d has %d places, want 1 or more", i, size)
		case part < 1 || part > size:
			return nil, fail(a.name(2), errArg, "the part has %d places of dimension %d, want 1 to %d", part, i, size)
		case start < 0 || start > size-part:
			return nil, fail(a.name(3), errArg, "the part begins at %d in dimension %d, want 0 to %d", start, i, size-part)
		}
		parts[i] = []places{{start, start + part}}
	}
	return a.array(t, dims, lists[0], parts)
}

func darray(a *arguments, t *datatype, m *contents) (*datatype, error) {
	m.combiner = combinerDarray
	size, rank := a.Int(0), a.Int(1)
	n, err := a.dims(2)
	if err != nil {
		return nil, err
	}
	m.ints = append(m.ints, size, rank, n)
	lists := make([][]int, 4)
	for i := range lists {
		if lists[i], err = a.ints(3+i, n); err != nil {
			return nil, err
		}
		if i == 0 {
			m.count(lists[i]...)
		} else {
			m.ints = append(m.ints, lists[i]...)
		}
	}
	dims, err := a.order(7, n)
	if err != nil {
		return nil, err
	}
	m.ints = append(m.ints, a.Int(7))
	sizes, kinds, blocks, grid := lists[0], lists[1], lists[2], lists[3]
	if rank < 0 || rank >= size {
		return nil, fail(a.name(1), errArg, "it is %d, and there are %d ranks", rank, size)
	}
	ranks := 1
	for i, v := range grid {
		if v < 1 || v > size/ranks {
			return nil, fail(a.name(6), errArg, "dimension %d has %d ranks, and there are %d in all", i, v, size)
		}
		ranks *= v
	}
	if ranks != size {
		return nil, fail(a.name(6), errArg, "the grid has %d ranks, and there are %d", ranks, size)
	}
	parts := make([][]places, n)
	for i := n - 1; i >= 0; i-- { // The last coordinate changes first, whatever the order of the array.
		if sizes[i] < 1 || far(sizes[i]) {
			return nil, fail(a.name(3), errArg, "dimension %d has %d places, want 1 or more", i, sizes[i])
		}
		if parts[i], err = a.distribute(i, sizes[i], kinds[i], blocks[i], grid[i], rank%grid[i]); err != nil {
			return nil, err
		}
		rank /= grid[i]
	}
	return a.array(t, dims, sizes, parts)
}

// distribute lists the places of a dimension that one of its ranks has.
func (a *arguments) distribute(dim, size, kind, block, ranks, rank int) ([]places, error) {
	least := (size-1)/ranks + 1 // as long as blocks of all ranks are at least
	given := block != distributeByDefault
	if given && block < 1 && kind != distributeNone {
		return nil, fail(a.name(5), errArg, "dimension %d has blocks of %d places, want 1 or more, or MPI_DISTRIBUTE_DFLT_DARG", dim, block)
	}
	switch kind {
	case distributeNone:
		if ranks != 1 {
			return nil, fail(a.name(6), errArg, "dimension %d is not distributed, and has %d ranks, want 1", dim, ranks)
		}
		block = size
	case distributeBlock:
		if !given {
			block = least
		} else if block < least {
			return nil, fail(a.name(5), errArg, "dimension %d has %d places: %d blocks of %d are fewer", dim, size, ranks, block)
		}
	case distributeCyclic:
		if !given {
			block = 1
		}
	default:
		return nil, fail(a.name(4), errArg, "dimension %d has %d, want MPI_DISTRIBUTE_NONE, BLOCK or CYCLIC", dim, kind)
	}
	all := (size-1)/block + 1 // of all ranks
	if (all-1)/ranks >= maxBlocks {
		return nil, fail(a.name(5), errArg, "dimension %d has more than %d blocks at a rank", dim, maxBlocks)
	}
	var out []places
	for k := rank; k < all; k += ranks {
		out = append(out, places{k * block, min((k+1)*block, size)})
	}
	return out, nil
}
