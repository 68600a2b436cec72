//go:build linux

package mpiabi

import (
	"slices"
	"strings"
	"testing"
)

func init() {
	wrongCalls = append(wrongCalls, func(t *testing.T, r *rank) []wrongCall {
		mem, one := place(r.cMemory, make([]int32, 8)...), place(r.cMemory, int32(1), 1)
		displs, types := place(r.cMemory, make([]int64, 2)...), place(r.cMemory, Handle(0x209), Handle(0x209))
		negative, none := place(r.cMemory, int32(-1), -1), place(r.cMemory, datatypeNull, datatypeNull)
		world := uint64(commWorld)
		ring := r.made("MPI_Cart_create", world, 1, one, one, 0)
		var rows []wrongCall
		for _, name := range []string{"MPI_Neighbor_allgather", "MPI_Neighbor_alltoall"} {
			rows = append(rows, []wrongCall{
				{name, Args{mem, 1, 0x209, mem + 8, 1, 0x209, uint64(commNull)}, errComm},
				{name, Args{mem, 1, 0x209, mem + 8, 1, 0x209, world}, errTopology},
				{name, Args{0, 1, 0x209, mem + 8, 1, 0x209, ring}, errBuffer},
				{name, Args{inPlace, 1, 0x209, mem + 8, 1, 0x209, ring}, errBuffer},
				{name, Args{mem, neg(-1), 0x209, mem + 8, 1, 0x209, ring}, errCount},
				{name, Args{mem, 1, 0, mem + 8, 1, 0x209, ring}, errType},
				{name, Args{mem, 1, 0x209, 0, 1, 0x209, ring}, errBuffer},
				{name, Args{mem, 1, 0x209, mem + 8, neg(-1), 0x209, ring}, errCount},
				{name, Args{mem, 1, 0x209, mem + 8, 1, 0, ring}, errType},
				{name, Args{mem, 2, 0x209, mem + 16, 1, 0x209, ring}, errTruncate},
			}...)
		}
		rows = append(rows, []wrongCall{
			{"MPI_Neighbor_allgatherv", Args{mem, 1, 0x209, mem + 8, one, displs, 0x209, world}, errTopology},
			{"MPI_Neighbor_allgatherv", Args{mem, 1, 0x209, mem + 8, negative, displs, 0x209, ring}, errCount},
			{"MPI_Neighbor_allgatherv", Args{mem, 1, 0x209, mem + 8, one, 0, 0x209, ring}, errArg},
			{"MPI_Neighbor_alltoallv", Args{mem, one, displs, 0x209, mem + 8, one, displs, 0x209, world}, errTopology},
			{"MPI_Neighbor_alltoallv", Args{mem, 0, displs, 0x209, mem + 8, one, displs, 0x209, ring}, errArg},
			{"MPI_Neighbor_alltoallv", Args{mem, one, displs, 0, mem + 8, one, displs, 0x209, ring}, errType},
			{"MPI_Neighbor_alltoallw", Args{mem, one, displs, types, mem + 8, one, displs, types, world}, errTopology},
			{"MPI_Neighbor_alltoallw", Args{mem, one, displs, none, mem + 8, one, displs, types, ring}, errType},
			{"MPI_Neighbor_alltoallw", Args{mem, one, displs, types, mem + 8, one, displs, 0, ring}, errArg},
		}...)
		// The other forms have one argument more, or two.
		out, none := place(r.cMemory, Handle(0)), uint64(infoNull)
		for _, row := range rows {
			if strings.Contains(row.call, "_all") && row.want != errTruncate {
				begins := strings.Replace(row.call, "MPI_N", "MPI_In", 1)
				rows = append(rows, wrongCall{begins, append(slices.Clone(row.args), out), row.want},
					wrongCall{row.call + "_init", append(slices.Clone(row.args), none, out), row.want})
			}
		}
		return append(rows, []wrongCall{
			{"MPI_Ineighbor_allgather", Args{mem, 1, 0x209, mem + 8, 1, 0x209, ring, 0}, errArg},
			{"MPI_Neighbor_allgather_init", Args{mem, 1, 0x209, mem + 8, 1, 0x209, ring, none, 0}, errArg},
			{"MPI_Neighbor_allgather_init", Args{mem, 1, 0x209, mem + 8, 1, 0x209, ring, 0, out}, errInfo},
		}...)
	})
}

func TestNeighbors(t *testing.T) {
	rs := job(t, 2)
	each(rs, func(i int, r *rank) {
		const intType = 0x209
		world, me, other := uint64(commWorld), int32(i), int32(1-i)
		// In a ring of two both neighbours are the other rank: what one sends down comes from above.
		ring := r.made("MPI_Cart_create", world, 1, place(r.cMemory, int32(2)), place(r.cMemory, int32(1)), 0)
		src, dst := place(r.cMemory, 10*me+1, 10*me+2), place(r.cMemory, make([]int32, 8)...)
		r.must("MPI_Neighbor_alltoall", src, 1, intType, dst, 1, intType, ring)
		r.same("MPI_Neighbor_alltoall", slice[int32](dst, 2), 10*other+2, 10*other+1)
		r.must("MPI_Neighbor_allgather_c", src, 1, intType, dst, 1, intType, ring)
		r.same("MPI_Neighbor_allgather", slice[int32](dst, 2), 10*other+1, 10*other+1)
		// On a line the outer neighbours are MPI_PROC_NULL, and their blocks stay.
		line := r.made("MPI_Cart_create", world, 1, place(r.cMemory, int32(2)), place(r.cMemory, int32(0)), 0)
		copy(slice[int32](dst, 8), []int32{-1, -1, -1, -1, -1, -1, -1, -1})
		counts := place(r.cMemory, int32(1), 1)
		r.must("MPI_Neighbor_allgatherv", src, 1, intType, dst, counts, place(r.cMemory, int32(3), 0), intType, line)
		want := []int32{-1, -1, -1, 1}
		if i == 0 {
			want = []int32{11, -1, -1, -1}
		}
		r.same("MPI_Neighbor_allgatherv", slice[int32](dst, 4), want...)
		// A graph with two edges to the other rank, and items with gaps.
		to := place(r.cMemory, other, other)
		graph := r.made("MPI_Dist_graph_create_adjacent", world, 2, to, unweighted, 2, to, unweighted, 0x130, 0)
		wideInt := r.made("MPI_Type_create_resized", intType, 0, 8)
		r.must("MPI_Type_commit", place(r.cMemory, Handle(wideInt)))
		copy(slice[int32](dst, 8), []int32{-1, -1, -1, -1, -1, -1, -1, -1})
		r.must("MPI_Neighbor_alltoallv", src, counts, place(r.cMemory, int32(1), 0), intType, dst, counts, place(r.cMemory, int32(0), 1), wideInt, graph)
		r.same("MPI_Neighbor_alltoallv", slice[int32](dst, 4), 10*other+2, -1, 10*other+1, -1)
		types := place(r.cMemory, Handle(intType), Handle(intType))
		r.must("MPI_Neighbor_alltoallw", src, counts, place(r.cMemory, int64(0), int64(4)), types,
			dst, counts, place(r.cMemory, int64(4), int64(12)), types, graph)
		r.same("MPI_Neighbor_alltoallw", slice[int32](dst, 4), 10*other+2, 10*other+1, 10*other+1, 10*other+2)
		path := r.made("MPI_Graph_create", world, 2, place(r.cMemory, int32(1), 2), place(r.cMemory, int32(1), 0), 0)
		r.must("MPI_Neighbor_allgather", src, 2, intType, dst, 2, intType, path)
		r.same("MPI_Neighbor_allgather of a graph", slice[int32](dst, 2), 10*other+1, 10*other+2)
	})
}

// Neighbourhood collectives that do not block may be under way together, and persistent ones start in any order.
func TestNeighborsBegun(t *testing.T) {
	rs := job(t, 2)
	each(rs, func(i int, r *rank) {
		me, other, none := int32(i), int32(1-i), uint64(infoNull)
		ring := r.made("MPI_Cart_create", world, 1, place(r.cMemory, int32(2)), place(r.cMemory, int32(1)), 0)
		src, dst := place(r.cMemory, 10*me+1, 10*me+2), place(r.cMemory, make([]int32, 12)...)
		reqs := place(r.cMemory, make([]Handle, 5)...)
		one, places := place(r.cMemory, int32(1), 1), place(r.cMemory, int32(0), 1)
		bytes, types := place(r.cMemory, int64(0), int64(4)), place(r.cMemory, Handle(typeInt), Handle(typeInt))
		r.must("MPI_Ineighbor_alltoall", src, 1, typeInt, dst, 1, typeInt, ring, reqs)
		r.must("MPI_Ineighbor_allgather", src, 1, typeInt, dst+8, 1, typeInt, ring, reqs+8)
		// A blocking one overtakes none of them.
		r.must("MPI_Neighbor_allgather", src+4, 1, typeInt, dst+16, 1, typeInt, ring)
		r.must("MPI_Ineighbor_allgatherv", src, 1, typeInt, dst+24, one, places, typeInt, ring, reqs+16)
		r.must("MPI_Ineighbor_alltoallv", src, one, places, typeInt, dst+32, one, places, typeInt, ring, reqs+24)
		r.must("MPI_Ineighbor_alltoallw", src, one, bytes, types, dst+40, one, bytes, types, ring, reqs+32)
		r.must("MPI_Waitall", 5, reqs, 0)
		a, b := 10*other+1, 10*other+2
		r.same("all at once", slice[int32](dst, 12), b, a, a, a, b, b, a, a, b, a, b, a)
		// Persistent ones, with items that have gaps.
		wide := r.made("MPI_Type_create_resized", typeInt, 0, 8)
		r.must("MPI_Type_commit", place(r.cMemory, Handle(wide)))
		r.must("MPI_Neighbor_alltoall_init", src, 1, typeInt, dst, 1, wide, ring, none, reqs)
		r.must("MPI_Neighbor_allgather_init", src, 1, typeInt, dst+16, 1, typeInt, ring, none, reqs+8)
		r.must("MPI_Neighbor_allgatherv_init", src, 1, typeInt, dst+24, one, places, typeInt, ring, none, reqs+16)
		r.must("MPI_Neighbor_alltoallv_init", src, one, places, typeInt, dst+32, one, places, typeInt, ring, none, reqs+24)
		r.must("MPI_Neighbor_alltoallw_init", src, one, bytes, types, dst+40, one, bytes, types, ring, none, reqs+32)
		for round := range int32(3) {
			for k := range slice[int32](dst, 12) {
				slice[int32](dst, 12)[k] = -1
			}
			*at[int32](src), *at[int32](src + 4) = 100*round+10*me+1, 100*round+10*me+2
			for k := range uint64(5) { // The ranks start them in different orders.
				if i == 1 {
					k = 4 - k
				}
				r.must("MPI_Start", reqs+8*k)
			}
			r.must("MPI_Waitall", 5, reqs, 0)
			a, b := 100*round+10*other+1, 100*round+10*other+2
			r.same("persistent ones", slice[int32](dst, 12), b, -1, a, -1, a, a, a, a, b, a, b, a)
		}
		for k := range uint64(5) {
			r.must("MPI_Request_free", reqs+8*k)
		}
	})
}
