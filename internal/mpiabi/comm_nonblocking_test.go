//go:build linux

package mpiabi

import "testing"

func init() {
	wrongCalls = append(wrongCalls, func(t *testing.T, r *rank) []wrongCall {
		out, null, none := place(r.cMemory, Handle(0), Handle(0)), uint64(commNull), uint64(infoNull)
		return []wrongCall{
			{"MPI_Comm_idup", Args{null, out, out + 8}, errComm},
			{"MPI_Comm_idup", Args{world, 0, out}, errArg},
			{"MPI_Comm_idup", Args{world, out, 0}, errArg},
			{"MPI_Comm_idup", Args{world, forbidden(t), out}, errBuffer},
			{"MPI_Comm_idup_with_info", Args{null, none, out, out + 8}, errComm},
			{"MPI_Comm_idup_with_info", Args{world, 0, out, out + 8}, errInfo},
			{"MPI_Comm_idup_with_info", Args{world, none, out, 0}, errArg},
		}
	})
}

// A communicator that is made while messages and collectives go on has the attributes and the topology of its
// original.
func TestCommIdup(t *testing.T) {
	rs := job(t, 2)
	each(rs, func(i int, r *rank) {
		me, other := int32(i), uint64(1-i)
		key := place(r.cMemory, int32(0))
		r.must("MPI_Comm_create_keyval", dupFunction, nullFunction, key, 0)
		ring := r.made("MPI_Cart_create", world, 1, place(r.cMemory, int32(2)), place(r.cMemory, int32(1)), 0)
		r.must("MPI_Comm_set_attr", ring, uint64(*at[int32](key)), 77)
		made, reqs := place(r.cMemory, Handle(0), Handle(0)), place(r.cMemory, Handle(0), Handle(0))
		got := place(r.cMemory, int32(0), 0)
		// Rank 1 begins only when rank 0 has begun, and has sent.
		if i == 1 {
			r.must("MPI_Recv", got, 1, typeInt, other, 1, ring, 0)
		}
		r.must("MPI_Comm_idup", ring, made, reqs)
		r.must("MPI_Comm_idup_with_info", ring, uint64(infoNull), made+8, reqs+8)
		if i == 0 {
			r.must("MPI_Send", got, 1, typeInt, other, 1, ring)
		}
		r.must("MPI_Barrier", ring)
		r.must("MPI_Waitall", 2, reqs, 0)
		r.freeHandle("MPI_Comm_free", ring)
		value, flag := place(r.cMemory, uint64(0)), place(r.cMemory, int32(0))
		for k := range uint64(2) {
			c := uint64(*at[Handle](made + 8*k))
			r.must("MPI_Comm_get_attr", c, uint64(*at[int32](key)), value, flag)
			if *at[int32](flag) != 1 || *at[uint64](value) != 77 {
				t.Errorf("the attribute is %d, with flag %d, want 77 and 1", *at[uint64](value), *at[int32](flag))
			}
			src := place(r.cMemory, 10*me+int32(k))
			r.must("MPI_Neighbor_allgather", src, 1, typeInt, got, 1, typeInt, c)
			r.same("a neighbour of the new communicator", slice[int32](got, 2), 10*(1-me)+int32(k), 10*(1-me)+int32(k))
			r.must("MPI_Allreduce", src, got, 1, typeInt, uint64(opSum), c)
			r.same("a sum in the new communicator", slice[int32](got, 1), 10+2*int32(k))
			r.freeHandle("MPI_Comm_free", c)
		}
	})
}
