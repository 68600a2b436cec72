//go:build linux

package mpiabi

import (
	"slices"
	"testing"
)

// filled are n ints of a value in C memory.
func filled(r *rank, n int, v int32) uint64 { return place(r.cMemory, slices.Repeat([]int32{v}, n)...) }

// wide is a datatype of an int and a gap of one.
func wide(r *rank) uint64 { return newType(r, "MPI_Type_create_resized", intType, 0, 8) }

func expect(r *rank, what string, addr uint64, want ...int32) {
	r.t.Helper()
	if got := slice[int32](addr, len(want)); !slices.Equal(got, want) {
		r.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// Collectives of equal parts: contiguous ones, ones with gaps, and MPI_IN_PLACE.
func TestEqualParts(t *testing.T) {
	rs := job(t, 3)
	each(rs, func(i int, r *rank) {
		world, me := h(commWorld), int32(i)
		gap := wide(r)

		mine, all := ints(r, 10+me, 20+me), filled(r, 6, 9)
		r.must("MPI_Gather", mine, 2, intType, all, 2, intType, 1, world)
		if i == 1 {
			expect(r, "MPI_Gather", all, 10, 20, 11, 21, 12, 22)
		} else {
			expect(r, "MPI_Gather elsewhere", all, 9, 9, 9, 9, 9, 9)
		}
		if i == 1 {
			all = ints(r, 9, 8, 11, 8, 9, 8)
			r.must("MPI_Gather", inPlace, 0, 0, all, 1, gap, 1, world)
			expect(r, "MPI_Gather in place with gaps", all, 10, 8, 11, 8, 12, 8)
		} else {
			r.must("MPI_Gather", mine, 1, intType, 0, 0, 0, 1, world)
		}

		source, part := ints(r, 1, 2, 3, 4, 5, 6), filled(r, 2, 9)
		r.must("MPI_Scatter", source, 2, intType, part, 2, intType, 0, world)
		expect(r, "MPI_Scatter", part, 2*me+1, 2*me+2)
		part = filled(r, 4, 9)
		switch i {
		case 2:
			r.must("MPI_Scatter", source, 1, gap, inPlace, 0, 0, 2, world)
			expect(r, "MPI_Scatter in place", source, 1, 2, 3, 4, 5, 6)
		default:
			r.must("MPI_Scatter", 0, 0, 0, part, 1, intType, 2, world)
			expect(r, "MPI_Scatter of gaps", part, 2*me+1, 9)
		}

		all = filled(r, 6, 9)
		r.must("MPI_Allgather", mine, 2, intType, all, 2, intType, world)
		expect(r, "MPI_Allgather", all, 10, 20, 11, 21, 12, 22)
		all = filled(r, 6, 9)
		slice[int32](all, 6)[2*i] = 5 * me
		r.must("MPI_Allgather", inPlace, 0, 0, all, 1, gap, world)
		expect(r, "MPI_Allgather in place with gaps", all, 0, 9, 5, 9, 10, 9)

		from, to := ints(r, 10*me, 10*me+1, 10*me+2), filled(r, 6, 9)
		r.must("MPI_Alltoall", from, 1, intType, to, 1, gap, world)
		expect(r, "MPI_Alltoall to gaps", to, me, 9, 10+me, 9, 20+me, 9)
		r.must("MPI_Alltoall", inPlace, 0, 0, from, 1, intType, world)
		expect(r, "MPI_Alltoall in place", from, me, 10+me, 20+me)
	})
}

// Collectives of parts of any lengths, at any places.
func TestParts(t *testing.T) {
	rs := job(t, 3)
	each(rs, func(i int, r *rank) {
		world, me := h(commWorld), int32(i)
		gap := wide(r)
		n := uint64(i) // Rank i has i items.
		mine := ints(r, 10*me, 10*me+1)
		counts, displs := ints(r, 0, 1, 2), ints(r, 77, 3, 0)

		all := filled(r, 4, 9)
		r.must("MPI_Gatherv", mine, n, intType, all, counts, displs, intType, 0, world)
		if i == 0 {
			expect(r, "MPI_Gatherv", all, 20, 21, 9, 10)
		}
		all = filled(r, 8, 9)
		if i == 2 {
			slice[int32](all, 8)[0], slice[int32](all, 8)[2] = 20, 21
			r.must("MPI_Gatherv", inPlace, 0, 0, all, counts, displs, gap, 2, world)
			expect(r, "MPI_Gatherv in place with gaps", all, 20, 9, 21, 9, 9, 9, 10, 9)
		} else {
			r.must("MPI_Gatherv", mine, n, intType, 0, 0, 0, 0, 2, world)
		}

		source, part := ints(r, 1, 2, 3, 4), filled(r, 2, 9)
		r.must("MPI_Scatterv", source, counts, displs, intType, part, n, intType, 1, world)
		expect(r, "MPI_Scatterv", part, []int32{9, 4, 1}[i], []int32{9, 9, 2}[i])
		if i == 2 {
			r.must("MPI_Scatterv", filled(r, 8, 6), counts, displs, gap, inPlace, 0, 0, 2, world)
		} else {
			r.must("MPI_Scatterv", 0, 0, 0, 0, part, n, intType, 2, world)
		}
		expect(r, "MPI_Scatterv of gaps", part, []int32{9, 6, 1}[i], []int32{9, 9, 2}[i])

		all = filled(r, 4, 9)
		r.must("MPI_Allgatherv", mine, n, intType, all, counts, displs, intType, world)
		expect(r, "MPI_Allgatherv", all, 20, 21, 9, 10)
		all = filled(r, 8, 9)
		copy(slice[int32](all+[]uint64{0, 24, 0}[i], 3), [][]int32{{}, {10}, {20, 9, 21}}[i])
		r.must("MPI_Allgatherv", inPlace, 0, 0, all, counts, displs, gap, world)
		expect(r, "MPI_Allgatherv in place with gaps", all, 20, 9, 21, 9, 9, 9, 10, 9)

		// Rank i sends rank k as many ints as k, and so receives i of each.
		from, to := ints(r, me, me+10, me+20), filled(r, 6, 9)
		same, there := ints(r, me, me, me), ints(r, 0, me, 2*me)
		r.must("MPI_Alltoallv", from, counts, ints(r, 0, 0, 1), intType, to, same, there, intType, world)
		switch i {
		case 0:
			expect(r, "MPI_Alltoallv", to, 9, 9, 9, 9, 9, 9)
		case 1:
			expect(r, "MPI_Alltoallv", to, 0, 1, 2, 9, 9, 9)
		case 2:
			expect(r, "MPI_Alltoallv", to, 10, 20, 11, 21, 12, 22)
		}
		own := ints(r, me, 10+me, 20+me)
		ones, order := ints(r, 1, 1, 1), ints(r, 2, 1, 0)
		r.must("MPI_Alltoallv", inPlace, 0, 0, 0, own, ones, order, intType, world)
		// Rank i sends rank k what is at 2-k, and stores what comes from k there: k's value for i is 10*(2-i)+k.
		expect(r, "MPI_Alltoallv in place", own, 10*(2-me)+2, 10*(2-me)+1, 10*(2-me))
	})
}

// Each rank's part has its own datatype.
func TestAlltoallw(t *testing.T) {
	rs := job(t, 2)
	each(rs, func(i int, r *rank) {
		gap := wide(r)
		from, to := ints(r, 1, 2, 3, 4, 5, 6), filled(r, 6, 9)
		ones := ints(r, 1, 2)
		types := place(r.cMemory, Handle(doubleType), Handle(gap))
		into := place(r.cMemory, Handle(intType), Handle(intType))
		if i == 0 { // a double to itself, and two ints with gaps to the other
			r.must("MPI_Alltoallw", from, ones, ints(r, 0, 8), types, to, ints(r, 2, 1), ints(r, 8, 0), into, h(commWorld))
			expect(r, "MPI_Alltoallw at rank 0", to, 7, 9, 1, 2, 9, 9)
			return
		}
		v := ints(r, 7, 8)
		r.must("MPI_Alltoallw", v, ints(r, 1, 0), ints(r, 0, 0), place(r.cMemory, Handle(intType), datatypeNull),
			to, ints(r, 2, 0), ints(r, 4, 0), place(r.cMemory, Handle(gap), datatypeNull), h(commWorld))
		expect(r, "MPI_Alltoallw at rank 1", to, 9, 3, 9, 5, 9, 9)
	})
}

func init() {
	wrongCalls = append(wrongCalls, func(t *testing.T, r *rank) []wrongCall {
		page, buf, out := forbidden(t), ints(r, 1, 2, 3, 4), ints(r, 0, 0, 0, 0)
		one, zero, minus := ints(r, 1), ints(r, 0), ints(r, -1)
		world, null, none := h(commWorld), h(commNull), h(datatypeNull)
		types, bad := place(r.cMemory, Handle(intType)), place(r.cMemory, datatypeNull)
		raw := place(r.cMemory, Handle(0))
		r.must("MPI_Type_contiguous", 2, intType, raw)
		fresh := uint64(*at[Handle](raw)) // not committed
		return []wrongCall{
			{"MPI_Gather", Args{buf, 1, intType, out, 1, intType, 0, null}, errComm},
			{"MPI_Gather", Args{buf, 1, intType, out, 1, intType, 1, world}, errRoot},
			{"MPI_Gather", Args{buf, 1, intType, out, neg(-1), intType, 0, world}, errCount},
			{"MPI_Gather", Args{buf, 1, intType, out, 2, intType, 0, world}, errCount},
			{"MPI_Gather", Args{buf, 1, intType, 0, 1, intType, 0, world}, errBuffer},
			{"MPI_Gather", Args{0, 1, intType, out, 1, intType, 0, world}, errBuffer},
			{"MPI_Gather", Args{inPlace, 1, intType, out, 1, intType, 1, world}, errBuffer},
			{"MPI_Gather_c", Args{buf, 1, intType, out, 1 << 62, intType, 0, world}, errCount},
			{"MPI_Gatherv", Args{buf, 1, intType, out, one, zero, intType, 0, null}, errComm},
			{"MPI_Gatherv", Args{buf, 1, intType, out, 0, zero, intType, 0, world}, errArg},
			{"MPI_Gatherv", Args{buf, 1, intType, out, one, 0, intType, 0, world}, errArg},
			{"MPI_Gatherv", Args{buf, 1, intType, out, minus, zero, intType, 0, world}, errCount},
			{"MPI_Gatherv", Args{buf, 1, intType, 0, one, zero, intType, 0, world}, errBuffer},
			{"MPI_Gatherv", Args{buf, 1, intType, inPlace, one, zero, intType, 0, world}, errBuffer},
			{"MPI_Gatherv", Args{buf, 1, intType, out, one, zero, none, 0, world}, errType},
			{"MPI_Gatherv", Args{buf, 1, intType, out, one, zero, intType, 5, world}, errRoot},
			{"MPI_Scatter", Args{buf, 1, intType, out, 1, intType, 0, null}, errComm},
			{"MPI_Scatter", Args{buf, 1, intType, out, 1, intType, neg(-1), world}, errRoot},
			{"MPI_Scatter", Args{buf, 1, none, out, 1, intType, 0, world}, errType},
			{"MPI_Scatter", Args{buf, 1, intType, 0, 1, intType, 0, world}, errBuffer},
			{"MPI_Scatter", Args{inPlace, 1, intType, out, 1, intType, 0, world}, errBuffer},
			{"MPI_Scatterv", Args{buf, one, zero, intType, out, 1, intType, 0, null}, errComm},
			{"MPI_Scatterv", Args{buf, one, page, intType, out, 1, intType, 0, world}, errBuffer},
			{"MPI_Scatterv", Args{buf, one, zero, intType, out, 2, intType, 0, world}, errCount},
			{"MPI_Scatterv", Args{buf, one, zero, intType, out, 1, intType, 2, world}, errRoot},
			{"MPI_Allgather", Args{buf, 1, intType, out, 1, intType, null}, errComm},
			{"MPI_Allgather", Args{buf, 1, intType, out, 1, fresh, world}, errType},
			{"MPI_Allgather", Args{buf, 1, intType, inPlace, 1, intType, world}, errBuffer},
			{"MPI_Allgather", Args{buf, 2, intType, out, 1, intType, world}, errCount},
			{"MPI_Allgatherv", Args{buf, 1, intType, out, one, zero, intType, null}, errComm},
			{"MPI_Allgatherv", Args{buf, 1, intType, out, page, zero, intType, world}, errBuffer},
			{"MPI_Allgatherv", Args{buf, 1, intType, page, one, zero, intType, world}, errBuffer},
			{"MPI_Alltoall", Args{buf, 1, intType, out, 1, intType, null}, errComm},
			{"MPI_Alltoall", Args{buf, neg(-1), intType, out, 1, intType, world}, errCount},
			{"MPI_Alltoall", Args{buf, 1, intType, out, 2, intType, world}, errCount},
			{"MPI_Alltoall", Args{buf, 1, intType, inPlace, 1, intType, world}, errBuffer},
			{"MPI_Alltoallv", Args{buf, one, zero, intType, out, one, zero, intType, null}, errComm},
			{"MPI_Alltoallv", Args{buf, minus, zero, intType, out, one, zero, intType, world}, errCount},
			{"MPI_Alltoallv", Args{buf, one, zero, intType, out, one, 0, intType, world}, errArg},
			{"MPI_Alltoallv", Args{0, one, zero, intType, out, one, zero, intType, world}, errBuffer},
			{"MPI_Alltoallw", Args{buf, one, zero, types, out, one, zero, types, null}, errComm},
			{"MPI_Alltoallw", Args{buf, one, zero, bad, out, one, zero, types, world}, errType},
			{"MPI_Alltoallw", Args{buf, one, zero, types, out, one, zero, 0, world}, errArg},
			{"MPI_Alltoallw", Args{buf, one, zero, types, out, one, zero, page, world}, errBuffer},
		}
	})
}
