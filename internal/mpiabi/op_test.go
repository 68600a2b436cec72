//go:build linux

package mpiabi

import (
	"slices"
	"testing"
)

// localOp applies an operation to values in C memory, and returns the result.
func localOp[T any](r *rank, op Handle, datatype uint64, in, inout []T, n uint64) []T {
	r.t.Helper()
	a, b := place(r.cMemory, in...), place(r.cMemory, inout...)
	r.must("MPI_Reduce_local", a, b, n, datatype, h(op))
	return slice[T](b, len(inout))
}

func checkOp[T comparable](r *rank, op Handle, datatype uint64, in, inout, want []T) {
	r.t.Helper()
	if got := localOp(r, op, datatype, in, inout, uint64(len(in))); !slices.Equal(got, want) {
		r.t.Errorf("%s of %s: %v and %v are %v, want %v", opNames[op], named[Handle(datatype)].name, in, inout, got, want)
	}
}

func TestNamedOperations(t *testing.T) {
	r := job(t, 1)[0]
	a, b := []int32{6, -3, 0}, []int32{3, 5, 0}
	for op, want := range map[Handle][]int32{
		opSum: {9, 2, 0}, opProd: {18, -15, 0}, opMin: {3, -3, 0}, opMax: {6, 5, 0},
		opBAnd: {2, 5, 0}, opBOr: {7, -3, 0}, opBXor: {5, -8, 0},
		opLAnd: {1, 1, 0}, opLOr: {1, 1, 0}, opLXor: {0, 0, 0},
	} {
		checkOp(r, op, intType, a, b, want)
	}
	checkOp(r, opMax, 0x241, []uint8{200}, []uint8{100}, []uint8{200})
	checkOp(r, opMax, 0x240, []int8{-56}, []int8{100}, []int8{100})
	checkOp(r, opSum, 0x20f, []uint64{1 << 63}, []uint64{1}, []uint64{1<<63 + 1})
	checkOp(r, opSum, doubleType, []float64{1.5}, []float64{2.25}, []float64{3.75})
	checkOp(r, opProd, 0x212, []complex64{1 + 2i}, []complex64{3 + 4i}, []complex64{-5 + 10i})
	checkOp(r, opProd, 0x216, []complex128{1 + 2i}, []complex128{3 + 4i}, []complex128{-5 + 10i})
	checkOp(r, opLAnd, 0x238, []uint8{2, 0}, []uint8{1, 1}, []uint8{1, 0})
	checkOp(r, opBXor, 0x247, []uint8{0xf0}, []uint8{0xff}, []uint8{0x0f})

	type doubleInt struct {
		V float64
		I int32
		_ int32
	}
	checkOp(r, opMinLoc, 0x229, []doubleInt{{1, 7, 0}, {4, 7, 0}, {2, 7, 0}}, []doubleInt{{3, 2, 0}, {3, 2, 0}, {2, 2, 0}},
		[]doubleInt{{1, 7, 0}, {3, 2, 0}, {2, 2, 0}})
	checkOp(r, opMaxLoc, 0x229, []doubleInt{{1, 1, 0}, {4, 1, 0}, {2, 1, 0}}, []doubleInt{{3, 2, 0}, {3, 2, 0}, {2, 2, 0}},
		[]doubleInt{{3, 2, 0}, {4, 1, 0}, {2, 1, 0}})
	type shortInt struct {
		V int16
		I int32
	}
	checkOp(r, opMinLoc, 0x22c, []shortInt{{-1, 3}}, []shortInt{{1, 2}}, []shortInt{{-1, 3}})
	type longInt struct {
		V int64
		I int32
		_ int32
	}
	checkOp(r, opMaxLoc, 0x22a, []longInt{{1 << 40, 3, 0}}, []longInt{{1, 2, 0}}, []longInt{{1 << 40, 3, 0}})
	type floatInt struct {
		V float32
		I int32
	}
	checkOp(r, opMaxLoc, 0x228, []floatInt{{1, 3}}, []floatInt{{1, 2}}, []floatInt{{1, 2}})
	checkOp(r, opMinLoc, 0x22b, [][2]int32{{1, 3}}, [][2]int32{{-1, 5}}, [][2]int32{{-1, 5}})
	checkOp(r, opMinLoc, 0x231, [][2]float64{{1, 3}}, [][2]float64{{-1, 5}}, [][2]float64{{-1, 5}})

	flag := ints(r, 9, 9)
	r.must("MPI_Op_commutative", h(opSum), flag)
	r.must("MPI_Op_commutative", h(opReplace), flag+4)
	if v := slice[int32](flag, 2); v[0] != 1 || v[1] != 0 {
		t.Errorf("commutative: MPI_SUM %d, MPI_REPLACE %d, want 1 and 0", v[0], v[1])
	}
}

// Each integer, floating and logical datatype has its operations, and others do not.
func TestOperationsDefined(t *testing.T) {
	ops := func(list ...Handle) []Handle { return list }
	bits, truths := ops(opBAnd, opBOr, opBXor), ops(opLAnd, opLOr, opLXor)
	numbers := ops(opSum, opProd, opMin, opMax)
	all := slices.Concat(numbers, bits, truths)
	for h, want := range map[Handle][]Handle{
		0x201: all, 0x208: all, 0x209: all, 0x20d: all, 0x241: all, 0x2d9: all,
		0x210: numbers, 0x214: numbers, 0x21a: numbers, 0x247: bits, 0x218: truths, 0x238: truths,
		0x216: numbers[:2], 0x229: {opMinLoc, opMaxLoc}, 0x207: nil, 0x23c: nil,
	} {
		for op, name := range opNames {
			f := named[h].reduce
			if got := f != nil && f(op) != nil; got != slices.Contains(want, op) {
				t.Errorf("%s of %s: defined %v, want %v", name, named[h].name, got, !got)
			}
		}
	}
}

// userJob is a job whose ranks have functions of the program: 1 takes in - inout of two ints, 2 is the
// sum of ints, with MPI_Count.
func userJob(t *testing.T, size int) []*rank {
	t.Helper()
	rs := job(t, size)
	for _, r := range rs {
		r.config.Callback = func(function uint64, args ...uint64) uint64 {
			if len(args) != 4 {
				t.Errorf("an operation is called with %d arguments, want 4", len(args))
				return 0
			}
			switch function {
			case 1: // affine maps x -> a*x+b, which are composed: no order but theirs is right
				n := int(*at[int32](args[2]))
				in, inout := slice[int32](args[0], 2*n), slice[int32](args[1], 2*n)
				for i := 0; i < 2*n; i += 2 {
					inout[i], inout[i+1] = in[i]*inout[i], in[i]*inout[i+1]+in[i+1]
				}
			case 2:
				in, inout := slice[int32](args[0], int(*at[int64](args[2]))), slice[int32](args[1], int(*at[int64](args[2])))
				for i, v := range in {
					inout[i] += v
				}
			case 3: // a column of two ints, 3 apart, whose first one begins 4 bytes behind the item
				if *at[int32](args[2]) != 1 {
					t.Errorf("the operation gets %d items, want 1", *at[int32](args[2]))
				}
				for _, off := range []uint64{4, 16} {
					*at[int32](args[1] + off) += *at[int32](args[0] + off)
				}
			default:
				t.Errorf("function %d is called", function)
			}
			return 0
		}
	}
	return rs
}

func newOp(r *rank, call string, function, commutes uint64) uint64 {
	r.t.Helper()
	out := place(r.cMemory, Handle(0))
	r.must(call, function, commutes, out)
	return uint64(*at[Handle](out))
}

// The order of ranks is kept, in short and in long messages, which package mpi would cut.
func TestUserOperations(t *testing.T) {
	rs := userJob(t, 5)
	const n = 4005 // Half of it is no whole number.
	each(rs, func(i int, r *rank) {
		pair := newType(r, "MPI_Type_contiguous", 2, intType)
		affine := newOp(r, "MPI_Op_create", 1, 0)
		// Map k of rank i is x -> 2x+i for even k, and x -> x-i otherwise.
		mapOf := func(rank, k int) [2]int32 {
			if k%2 == 0 {
				return [2]int32{2, int32(rank)}
			}
			return [2]int32{1, int32(-rank)}
		}
		composed := func(from, to, k int) [2]int32 {
			acc := mapOf(from, k)
			for rank := from + 1; rank < to; rank++ {
				m := mapOf(rank, k)
				acc = [2]int32{acc[0] * m[0], acc[0]*m[1] + acc[1]}
			}
			return acc
		}
		mine := make([][2]int32, n)
		for k := range mine {
			mine[k] = mapOf(i, k)
		}
		check := func(name string, got [][2]int32, from, to, first int) {
			for k, v := range got {
				if want := composed(from, to, first+k); v != want {
					t.Errorf("rank %d, %s: item %d is %v, want %v", i, name, k, v, want)
					return
				}
			}
		}
		in, out := place(r.cMemory, mine...), place(r.cMemory, make([][2]int32, n)...)
		for _, k := range []int{3, n} {
			r.must("MPI_Allreduce", in, out, uint64(k), pair, affine, h(commWorld))
			check("MPI_Allreduce", slice[[2]int32](out, k), 0, 5, 0)
			r.must("MPI_Reduce", in, out, uint64(k), pair, affine, 3, h(commWorld))
			if i == 3 {
				check("MPI_Reduce", slice[[2]int32](out, k), 0, 5, 0)
			}
			r.must("MPI_Scan", in, out, uint64(k), pair, affine, h(commWorld))
			check("MPI_Scan", slice[[2]int32](out, k), 0, i+1, 0)
			r.must("MPI_Exscan", in, out, uint64(k), pair, affine, h(commWorld))
			if i > 0 {
				check("MPI_Exscan", slice[[2]int32](out, k), 0, i, 0)
			}
		}
		r.must("MPI_Reduce_scatter_block", in, out, n/5, pair, affine, h(commWorld))
		check("MPI_Reduce_scatter_block", slice[[2]int32](out, n/5), 0, 5, i*n/5)
		r.must("MPI_Reduce_scatter", in, out, ints(r, 2, 0, 5, 1, 3), pair, affine, h(commWorld))
		check("MPI_Reduce_scatter", slice[[2]int32](out, []int{2, 0, 5, 1, 3}[i]), 0, 5, []int{0, 2, 2, 7, 8}[i])

		sum := newOp(r, "MPI_Op_create_c", 2, 1)
		v := ints(r, int32(i), 10)
		r.must("MPI_Allreduce_c", inPlace, v, 2, intType, sum, h(commWorld))
		if got := slice[int32](v, 2); got[0] != 10 || got[1] != 50 {
			t.Errorf("the sum is %v, want 10 and 50", got)
		}
		column := newType(r, "MPI_Type_create_hindexed", 2, ints(r, 1, 1), wides(r, 4, 16), intType)
		columns := newOp(r, "MPI_Op_create", 3, 1)
		v = ints(r, 9, int32(i), 9, 9, 1, 9)
		r.must("MPI_Allreduce", inPlace, v, 1, column, columns, h(commWorld))
		if got := slice[int32](v, 6); !slices.Equal(got, []int32{9, 10, 9, 9, 5, 9}) {
			t.Errorf("the sum of columns is %v", got)
		}
		flag, op := ints(r, 9), place(r.cMemory, Handle(affine))
		r.must("MPI_Op_commutative", affine, flag)
		r.must("MPI_Op_free", op)
		if *at[int32](flag) != 0 || *at[Handle](op) != opNull {
			t.Errorf("commutative %d, freed handle %#x, want 0 and MPI_OP_NULL", *at[int32](flag), *at[Handle](op))
		}
	})
}

// Reductions by named operations, also long ones and those of pairs, and with MPI_IN_PLACE.
func TestReductions(t *testing.T) {
	rs := job(t, 3)
	const n = 5000
	each(rs, func(i int, r *rank) {
		values := make([]float64, n)
		for k := range values {
			values[k] = float64(k * (i + 1))
		}
		in, out := place(r.cMemory, values...), place(r.cMemory, values...)
		check := func(name string, addr uint64, n, first, factor int) {
			for k, v := range slice[float64](addr, n) {
				if want := float64((first + k) * factor); v != want {
					t.Errorf("rank %d, %s: value %d is %v, want %v", i, name, k, v, want)
					return
				}
			}
		}
		r.must("MPI_Allreduce", in, out, n, doubleType, h(opSum), h(commWorld))
		check("MPI_Allreduce", out, n, 0, 6)
		r.must("MPI_Scan", in, out, n, doubleType, h(opSum), h(commWorld))
		check("MPI_Scan", out, n, 0, []int{1, 3, 6}[i])
		copy(slice[float64](out, n), values)
		r.must("MPI_Exscan", inPlace, out, n, doubleType, h(opSum), h(commWorld))
		check("MPI_Exscan", out, n, 0, []int{1, 1, 3}[i]) // Rank 0 keeps its own.
		copy(slice[float64](out, n), values)
		send := uint64(inPlace)
		if i != 1 {
			send = in
		}
		r.must("MPI_Reduce", send, out, n, doubleType, h(opSum), 1, h(commWorld))
		if check("MPI_Reduce", out, n, 0, []int{1, 6, 3}[i]); i != 1 {
			r.must("MPI_Reduce", in, 0, 1, doubleType, h(opMax), 1, h(commWorld))
		} else {
			r.must("MPI_Reduce", in, out, 1, doubleType, h(opMax), 1, h(commWorld))
		}
		copy(slice[float64](out, n), values)
		r.must("MPI_Reduce_scatter_block", inPlace, out, 1000, doubleType, h(opSum), h(commWorld))
		check("MPI_Reduce_scatter_block", out, 1000, i*1000, 6)
		copy(slice[float64](out, n), values)
		r.must("MPI_Reduce_scatter", inPlace, out, ints(r, 1, 2, 3), doubleType, h(opSum), h(commWorld))
		check("MPI_Reduce_scatter", out, i+1, []int{0, 1, 3}[i], 6)

		type doubleInt struct {
			V float64
			I int32
			_ int32
		}
		pairs := make([]doubleInt, 2000)
		for k := range pairs {
			pairs[k] = doubleInt{V: float64((k + i) % 3), I: int32(i)}
		}
		p := place(r.cMemory, pairs...)
		r.must("MPI_Allreduce", inPlace, p, uint64(len(pairs)), 0x229, h(opMaxLoc), h(commWorld))
		for k, v := range slice[doubleInt](p, len(pairs)) {
			if want := int32((2 - k%3 + 3) % 3); v.V != 2 || v.I != want {
				t.Errorf("MPI_MAXLOC: pair %d is %v, want 2 of rank %d", k, v, want)
				return
			}
		}
	})
}

func TestBcast(t *testing.T) {
	rs := job(t, 3)
	each(rs, func(i int, r *rank) {
		column := newType(r, "MPI_Type_vector", 2, 1, 2, intType)
		v := ints(r, 9, 9, 9)
		if i == 2 {
			v = ints(r, 1, 2, 3)
		}
		r.must("MPI_Bcast", v, 1, column, 2, h(commWorld))
		want := []int32{1, 9, 3}
		if i == 2 {
			want[1] = 2
		}
		if got := slice[int32](v, 3); !slices.Equal(got, want) {
			t.Errorf("rank %d has %v, want %v", i, got, want)
		}
		// What is sent as a column may come as ints.
		if i == 0 {
			r.must("MPI_Bcast", v, 1, column, 0, h(commWorld))
			return
		}
		r.must("MPI_Bcast", v, 2, intType, 0, h(commWorld))
		if got := slice[int32](v, 2); got[0] != 1 || got[1] != 3 {
			t.Errorf("rank %d has %v, want 1 and 3", i, got)
		}
	})
}

func init() {
	wrongCalls = append(wrongCalls, func(t *testing.T, r *rank) []wrongCall {
		page, out := forbidden(t), place(r.cMemory, int64(0))
		buf, minus, one := ints(r, 1, 2, 3, 4), ints(r, -1), ints(r, 1)
		self, world, null, sum := h(commSelf), h(commWorld), h(commNull), h(opSum)
		pair := newType(r, "MPI_Type_contiguous", 2, intType)
		user := newOp(r, "MPI_Op_create", 1, 1)
		return []wrongCall{
			{"MPI_Op_create", Args{0, 1, out}, errArg},
			{"MPI_Op_create", Args{1, 1, 0}, errArg},
			{"MPI_Op_create_c", Args{1, 1, page}, errBuffer},
			{"MPI_Op_free", Args{0}, errArg},
			{"MPI_Op_free", Args{place(r.cMemory, opSum)}, errOp},
			{"MPI_Op_free", Args{place(r.cMemory, opNull)}, errOp},
			{"MPI_Op_free", Args{place(r.cMemory, Handle(pair))}, errOp},
			{"MPI_Op_commutative", Args{h(opNull), out}, errOp},
			{"MPI_Op_commutative", Args{sum, 0}, errArg},
			{"MPI_Reduce_local", Args{buf, buf + 8, 1, intType, h(opNull)}, errOp},
			{"MPI_Reduce_local", Args{buf, buf + 8, 1, intType, pair}, errOp},
			{"MPI_Reduce_local", Args{buf, buf + 8, 1, pair, sum}, errOp},
			{"MPI_Reduce_local", Args{buf, buf + 8, 1, intType, h(opMinLoc)}, errOp},
			{"MPI_Reduce_local", Args{buf, buf + 8, 1, intType, h(opReplace)}, errOp},
			{"MPI_Reduce_local", Args{buf, buf + 8, 1, intType, user}, errOther}, // Nothing runs functions.
			{"MPI_Reduce_local", Args{0, buf, 1, intType, sum}, errBuffer},
			{"MPI_Reduce_local", Args{buf, page, 1, intType, sum}, errBuffer},
			{"MPI_Reduce_local", Args{buf, buf + 8, neg(-1), intType, sum}, errCount},
			{"MPI_Reduce_local", Args{buf, buf + 8, 1, h(datatypeNull), sum}, errType},
			{"MPI_Bcast", Args{0, 1, intType, 0, self}, errBuffer},
			{"MPI_Bcast", Args{buf, neg(-1), intType, 0, self}, errCount},
			{"MPI_Bcast", Args{buf, 1, h(datatypeNull), 0, world}, errType},
			{"MPI_Bcast", Args{buf, 1, intType, 1, world}, errRoot},
			{"MPI_Bcast", Args{buf, 1, intType, 0, null}, errComm},
			{"MPI_Reduce", Args{buf, out, 1, intType, sum, 1, world}, errRoot},
			{"MPI_Reduce", Args{buf, 0, 1, intType, sum, 0, world}, errBuffer},
			{"MPI_Reduce", Args{0, out, 1, intType, sum, 0, world}, errBuffer},
			{"MPI_Reduce", Args{inPlace, out, 1, intType, sum, 1, world}, errBuffer},
			{"MPI_Reduce", Args{buf, out, 1, intType, h(opNull), 0, world}, errOp},
			{"MPI_Reduce", Args{buf, out, 1, intType, sum, 0, null}, errComm},
			{"MPI_Allreduce", Args{buf, inPlace, 1, intType, sum, world}, errBuffer},
			{"MPI_Allreduce", Args{buf, page, 1, intType, sum, world}, errBuffer},
			{"MPI_Allreduce", Args{buf, out, 1, 0x23c, sum, world}, errOp},
			{"MPI_Scan", Args{buf, out, neg(-1), intType, sum, world}, errCount},
			{"MPI_Scan", Args{buf, out, 1, intType, sum, null}, errComm},
			{"MPI_Exscan", Args{buf, 0, 1, intType, sum, world}, errBuffer},
			{"MPI_Reduce_scatter_block", Args{buf, out, neg(-1), intType, sum, world}, errCount},
			{"MPI_Reduce_scatter_block", Args{buf, 0, 1, intType, sum, world}, errBuffer},
			{"MPI_Reduce_scatter_block", Args{buf, out, 1, intType, sum, null}, errComm},
			{"MPI_Reduce_scatter", Args{buf, out, 0, intType, sum, world}, errArg},
			{"MPI_Reduce_scatter", Args{buf, out, minus, intType, sum, world}, errCount},
			{"MPI_Reduce_scatter", Args{buf, out, one, intType, h(opMaxLoc), world}, errOp},
		}
	})
}
