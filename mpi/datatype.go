package mpi

import (
	"cmp"
	"math"
	"slices"
)

// Datatype says where the bytes of one item lie in a buffer (derived datatype, chapter Datatypes).
// It does not change: constructors make new ones of it. The zero Datatype has no bytes.
//
// Experimental: it may change in any release.
type Datatype struct {
	runs   []run // in the order of the typemap; neighbours are joined
	size   int
	lb, ub int
}

// run is bytes that follow one another.
type run struct{ at, n int }

// maxRuns bounds how many pieces a datatype has, and so what a constructor may take.
const maxRuns = 1 << 24

// TypeOf is the datatype of one value of type T, which has no pointers (the named datatypes,
// chapter Datatypes).
//
// Experimental: it may change in any release.
func TypeOf[T any]() (Datatype, error) {
	n, err := sizeOf[T]("MPI_Type_match_size")
	if err != nil {
		return Datatype{}, err
	}
	return Datatype{[]run{{0, n}}, n, 0, n}, nil
}

// Size is how many bytes an item has (MPI_Type_size, chapter Datatypes).
//
// Experimental: it may change in any release.
func (d Datatype) Size() int { return d.size }

// Extent is where an item begins and how far the next one is from it (MPI_Type_get_extent, chapter
// Datatypes).
//
// Experimental: it may change in any release.
func (d Datatype) Extent() (lb, extent int) { return d.lb, d.ub - d.lb }

// block is a number of items of a datatype from a byte on.
type block struct {
	d     Datatype
	at, n int
}

// join makes a datatype of blocks, in their order.
func join(call string, blocks []block) (Datatype, error) {
	var out Datatype
	first := true
	for i, b := range blocks {
		if b.n < 0 {
			return Datatype{}, fail(call, "blocklength", ErrArg, "block %d has %d items, want 0 or more", i, b.n)
		}
		if b.n == 0 {
			continue
		}
		extent := b.d.ub - b.d.lb
		last, ok := product(b.n-1, extent)
		lo, hi := min(b.at+b.d.lb, b.at+last+b.d.lb), max(b.at+b.d.ub, b.at+last+b.d.ub)
		size, fits := product(b.n, b.d.size)
		if !ok || !fits || !near(b.at) || !near(lo) || !near(hi) || out.size > math.MaxInt32-size {
			return Datatype{}, fail(call, "count", ErrArg, "block %d takes the type beyond %d bytes", i, math.MaxInt32)
		}
		if first || lo < out.lb {
			out.lb = lo
		}
		if first || hi > out.ub {
			out.ub = hi
		}
		first = false
		out.size += size
		if len(b.d.runs) == 1 && extent == b.d.size && size > 0 { // all items are one run
			out.add(run{b.at + b.d.runs[0].at, size})
			continue
		}
		if len(b.d.runs) > 0 && b.n > (maxRuns-len(out.runs))/len(b.d.runs) {
			return Datatype{}, fail(call, "count", ErrArg, "the type has more than %d pieces", maxRuns)
		}
		for k := range b.n {
			for _, r := range b.d.runs {
				out.add(run{b.at + k*extent + r.at, r.n})
			}
		}
	}
	return out, nil
}

func (d *Datatype) add(r run) {
	if n := len(d.runs); n > 0 && d.runs[n-1].at+d.runs[n-1].n == r.at {
		d.runs[n-1].n += r.n
		return
	}
	d.runs = append(d.runs, r)
}

func near(at int) bool { return at >= math.MinInt32 && at <= math.MaxInt32 }

// product is a*b, and whether it lies within 32 bits. a is not negative.
func product(a, b int) (int, bool) {
	if !near(a) || !near(b) {
		return 0, false
	}
	return a * b, near(a * b)
}

// Contiguous is n items one after another (MPI_Type_contiguous, chapter Datatypes).
//
// Experimental: it may change in any release.
func (d Datatype) Contiguous(n int) (Datatype, error) {
	return join("MPI_Type_contiguous", []block{{d, 0, n}})
}

// Vector is count blocks of length items, whose beginnings are stride items apart (MPI_Type_vector,
// chapter Datatypes).
//
// Experimental: it may change in any release.
func (d Datatype) Vector(count, length, stride int) (Datatype, error) {
	const call = "MPI_Type_vector"
	bytes, ok := product(d.ub-d.lb, stride)
	if !ok {
		return Datatype{}, fail(call, "stride", ErrArg, "it is %d, which is beyond %d bytes", stride, math.MaxInt32)
	}
	return d.hvector(call, count, length, bytes)
}

// Hvector is Vector with a stride in bytes (MPI_Type_create_hvector, chapter Datatypes).
//
// Experimental: it may change in any release.
func (d Datatype) Hvector(count, length, stride int) (Datatype, error) {
	return d.hvector("MPI_Type_create_hvector", count, length, stride)
}

func (d Datatype) hvector(call string, count, length, stride int) (Datatype, error) {
	if count < 0 || count > maxRuns {
		return Datatype{}, fail(call, "count", ErrArg, "it is %d, want 0 to %d", count, maxRuns)
	}
	if last, ok := product(max(count-1, 0), stride); !ok {
		return Datatype{}, fail(call, "stride", ErrArg, "block %d lies %d bytes away", count-1, last)
	}
	blocks := make([]block, count)
	for i := range blocks {
		blocks[i] = block{d, i * stride, length}
	}
	return join(call, blocks)
}

// Indexed is blocks of items of any lengths at any displacements, in items (MPI_Type_indexed,
// chapter Datatypes).
//
// Experimental: it may change in any release.
func (d Datatype) Indexed(lengths, displs []int) (Datatype, error) {
	const call = "MPI_Type_indexed"
	at := make([]int, len(displs))
	for i, x := range displs {
		var ok bool
		if at[i], ok = product(d.ub-d.lb, x); !ok {
			return Datatype{}, fail(call, "displacements", ErrArg, "number %d is %d, which is beyond %d bytes", i, x, math.MaxInt32)
		}
	}
	return StructOf(lengths, at, slices.Repeat([]Datatype{d}, len(lengths))) // checks the lengths
}

// StructOf is blocks of items of different types at displacements in bytes (MPI_Type_create_struct,
// chapter Datatypes). [ErrArg]: the slices have different lengths.
//
// Experimental: it may change in any release.
func StructOf(lengths, displs []int, types []Datatype) (Datatype, error) {
	const call = "MPI_Type_create_struct"
	if len(lengths) != len(displs) || len(lengths) != len(types) {
		return Datatype{}, fail(call, "count", ErrArg, "there are %d block lengths, %d displacements and %d types",
			len(lengths), len(displs), len(types))
	}
	blocks := make([]block, len(lengths))
	for i := range blocks {
		blocks[i] = block{types[i], displs[i], lengths[i]}
	}
	return join(call, blocks)
}

// Resized is the same bytes with other bounds, which say how far items of an array are apart
// (MPI_Type_create_resized, chapter Datatypes).
//
// Experimental: it may change in any release.
func (d Datatype) Resized(lb, extent int) (Datatype, error) {
	if !near(lb) || !near(extent) || !near(lb+extent) {
		return Datatype{}, fail("MPI_Type_create_resized", "extent", ErrArg, "bounds of %d and %d are beyond %d bytes",
			lb, lb+extent, math.MaxInt32)
	}
	d.lb, d.ub = lb, lb+extent
	return d, nil
}

// Subarray is a part of an array of items, whose last dimension changes first
// (MPI_Type_create_subarray with MPI_ORDER_C, chapter Datatypes). [ErrArg]: the part is not within
// the array.
//
// Experimental: it may change in any release.
func (d Datatype) Subarray(sizes, part, starts []int) (Datatype, error) {
	const call = "MPI_Type_create_subarray"
	if len(sizes) == 0 || len(part) != len(sizes) || len(starts) != len(sizes) {
		return Datatype{}, fail(call, "ndims", ErrArg, "there are %d sizes, %d of the part and %d starts",
			len(sizes), len(part), len(starts))
	}
	stride, at := d.ub-d.lb, 0
	out := d
	for i, size := range slices.Backward(sizes) {
		if size < 1 || part[i] < 1 || starts[i] < 0 || part[i] > size || starts[i] > size-part[i] {
			return Datatype{}, fail(call, "sizes", ErrArg, "dimension %d has %d places, and the part %d from %d on",
				i, size, part[i], starts[i])
		}
		var err error
		if out, err = out.hvector(call, part[i], 1, stride); err != nil {
			return Datatype{}, err
		}
		from, ok := product(starts[i], stride)
		whole, fits := product(size, stride)
		if !ok || !fits || !near(at+from) {
			return Datatype{}, fail(call, "sizes", ErrArg, "the array is longer than %d bytes", math.MaxInt32)
		}
		at, stride = at+from, whole
	}
	out, err := join(call, []block{{out, at, 1}})
	if err != nil {
		return Datatype{}, err
	}
	return out.Resized(0, stride)
}

// within checks that n items lie in a buffer.
func (d Datatype) within(call string, buf, n int) error {
	if n < 0 {
		return fail(call, "count", ErrCount, "it is %d, want 0 or more", n)
	}
	if n == 0 || len(d.runs) == 0 {
		return nil
	}
	last, ok := product(n-1, d.ub-d.lb)
	lo := slices.MinFunc(d.runs, func(a, b run) int { return cmp.Compare(a.at, b.at) }).at
	end := slices.MaxFunc(d.runs, func(a, b run) int { return cmp.Compare(a.at+a.n, b.at+b.n) })
	hi := end.at + end.n
	if !ok || min(lo, lo+last) < 0 || max(hi, hi+last) > buf {
		return fail(call, "buf", ErrBuffer, "%d items are bytes %d to %d, and the buffer has %d",
			n, min(lo, lo+last), max(hi, hi+last), buf)
	}
	return nil
}

// Pack appends the bytes of n items in a buffer of values to b (MPI_Pack, chapter Datatypes). The
// bytes are in the order of the datatype.
//
// Errors: [ErrBuffer] if an item is not within the buffer; [ErrCount]; [ErrType].
//
// Experimental: it may change in any release.
func Pack[T any](b []byte, buf []T, n int, d Datatype) ([]byte, error) {
	const call = "MPI_Pack"
	mem, err := bytesOf(call, buf)
	if err != nil {
		return b, err
	}
	if err := d.within(call, len(mem), n); err != nil {
		return b, err
	}
	for i := range n {
		at := i * (d.ub - d.lb)
		for _, r := range d.runs {
			b = append(b, mem[at+r.at:][:r.n]...)
		}
	}
	return b, nil
}

// Unpack stores the bytes of n items, which Pack has packed, in a buffer of values, and returns
// those behind them (MPI_Unpack, chapter Datatypes). Errors as Pack; [ErrTruncate] if b is too
// short. Then nothing is stored.
//
// Experimental: it may change in any release.
func Unpack[T any](b []byte, buf []T, n int, d Datatype) ([]byte, error) {
	const call = "MPI_Unpack"
	mem, err := bytesOf(call, buf)
	if err != nil {
		return b, err
	}
	if err := d.within(call, len(mem), n); err != nil {
		return b, err
	}
	if want, ok := product(n, d.size); !ok || want > len(b) {
		return b, fail(call, "inbuf", ErrTruncate, "%d items of %d bytes, and there are %d bytes", n, d.size, len(b))
	}
	for i := range n {
		at := i * (d.ub - d.lb)
		for _, r := range d.runs {
			b = b[copy(mem[at+r.at:][:r.n], b):]
		}
	}
	return b, nil
}
