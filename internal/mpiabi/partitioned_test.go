//go:build linux

package mpiabi

import "testing"

func init() {
	wrongCalls = append(wrongCalls, func(_ *testing.T, r *rank) []wrongCall {
		mem, out, none := place(r.cMemory, make([]int32, 8)...), place(r.cMemory, Handle(0)), uint64(infoNull)
		backward := r.made("MPI_Type_create_resized", typeInt, 0, neg(-4))
		r.must("MPI_Type_commit", place(r.cMemory, Handle(backward)))
		send := r.made("MPI_Psend_init", mem, 2, 1, typeInt, neg(procNull), 3, world, none)
		recv := r.made("MPI_Precv_init", mem, 2, 1, typeInt, neg(procNull), 3, world, none)
		rows := []wrongCall{
			{"MPI_Precv_init", Args{mem, 2, 1, typeInt, neg(-1), 3, world, none, out}, errRank},
			{"MPI_Precv_init", Args{mem, 2, 1, typeInt, 0, neg(-2), world, none, out}, errTag},
			{"MPI_Pready", Args{0, uint64(requestNull)}, errRequest},
			{"MPI_Pready", Args{0, recv}, errRequest},
			{"MPI_Pready", Args{0, send}, errRequest}, // It is not started.
			{"MPI_Pready", Args{2, send}, errArg},
			{"MPI_Pready", Args{neg(-1), send}, errArg},
			{"MPI_Pready_range", Args{1, 0, send}, errArg},
			{"MPI_Pready_range", Args{neg(-1), 0, send}, errArg},
			{"MPI_Pready_range", Args{0, 2, recv}, errRequest},
			{"MPI_Pready_list", Args{neg(-1), mem, send}, errCount},
			{"MPI_Pready_list", Args{1, 0, send}, errArg},
			{"MPI_Pready_list", Args{1, mem, world}, errRequest},
			{"MPI_Parrived", Args{send, 0, out}, errRequest},
			{"MPI_Parrived", Args{uint64(requestNull), 0, out}, errRequest},
			{"MPI_Parrived", Args{recv, 2, out}, errArg},
			{"MPI_Parrived", Args{recv, 0, 0}, errArg},
		}
		for _, name := range []string{"MPI_Psend_init", "MPI_Precv_init"} {
			rows = append(rows, []wrongCall{
				{name, Args{0, 2, 1, typeInt, 0, 3, world, none, out}, errBuffer},
				{name, Args{mem, 0, 1, typeInt, 0, 3, world, none, out}, errArg},
				{name, Args{mem, 2, neg(-1), typeInt, 0, 3, world, none, out}, errCount},
				{name + "_c", Args{mem, 2, 1 << 60, typeInt, 0, 3, world, none, out}, errCount},
				{name, Args{mem, 2, 1, 0, 0, 3, world, none, out}, errType},
				{name, Args{mem, 2, 1, backward, 0, 3, world, none, out}, errType},
				{name, Args{mem, 2, 1, typeInt, 1, 3, world, none, out}, errRank},
				{name, Args{mem, 2, 1, typeInt, 0, neg(-7), world, none, out}, errTag},
				{name, Args{mem, 2, 1, typeInt, 0, 3, uint64(commNull), none, out}, errComm},
				{name, Args{mem, 2, 1, typeInt, 0, 3, world, 0, out}, errInfo},
				{name, Args{mem, 2, 1, typeInt, 0, 3, world, none, 0}, errArg},
			}...)
		}
		return rows
	})
}

// Partitions arrive in the order in which they are ready, and the receiver may have other ones.
func TestPartitioned(t *testing.T) {
	rs := job(t, 2)
	each(rs, func(i int, r *rank) {
		none, flag := uint64(infoNull), place(r.cMemory, int32(0))
		pair := r.made("MPI_Type_create_resized", typeInt, 0, 8) // with a gap
		r.must("MPI_Type_commit", place(r.cMemory, Handle(pair)))
		ints, wide := place(r.cMemory, make([]int32, 6)...), place(r.cMemory, make([]int32, 12)...)
		reqs, st := place(r.cMemory, Handle(0), Handle(0)), place(r.cMemory, make([]int32, 16)...)
		req := func(k uint64) uint64 { return uint64(*at[Handle](reqs + 8*k)) }
		// Two channels with one tag are matched in their order: three partitions of two ints become two of three,
		// and six items with gaps six ints.
		if i == 0 {
			r.must("MPI_Psend_init", ints, 3, 2, typeInt, 1, 5, world, none, reqs)
			r.must("MPI_Psend_init_c", wide, 6, 1, pair, 1, 5, world, none, reqs+8)
		} else {
			r.must("MPI_Precv_init_c", ints, 2, 3, typeInt, 0, 5, world, none, reqs)
			r.must("MPI_Precv_init", wide, 6, 1, pair, 0, 5, world, none, reqs+8)
		}
		for round := range int32(3) {
			if i == 0 {
				for k := range int32(6) {
					slice[int32](ints, 6)[k] = 100*round + k
					slice[int32](wide, 12)[2*k] = 100*round + 50 + k
				}
				r.must("MPI_Startall", 2, reqs)
				r.must("MPI_Pready", 1, req(0))
				if code := r.call("MPI_Pready", 1, req(0)); code != errArg {
					t.Errorf("a partition that is ready already: code %d, want %d", code, errArg)
				}
				r.must("MPI_Pready", 0, req(0))
				r.must("MPI_Send", ints, 0, typeInt, 1, 9, world) // The first half has gone.
				r.must("MPI_Test", reqs, flag, 0)
				r.same("MPI_Test while a partition is not ready", slice[int32](flag, 1), 0)
				r.must("MPI_Recv", ints, 0, typeInt, 1, 9, world, 0)
				r.must("MPI_Pready_list", 2, place(r.cMemory, int32(5), 0), req(1))
				r.must("MPI_Pready_range", 1, 4, req(1))
				r.must("MPI_Pready_range", 2, 2, req(0))
				if code := r.call("MPI_Pready", 2, req(0)); code != errRequest {
					t.Errorf("a partition when all are ready: code %d, want %d", code, errRequest)
				}
				r.must("MPI_Waitall", 2, reqs, 0)
				continue
			}
			for k := range slice[int32](wide, 12) {
				slice[int32](wide, 12)[k] = -1
			}
			r.must("MPI_Startall", 2, reqs)
			r.must("MPI_Recv", ints, 0, typeInt, 0, 9, world, 0)
			for *at[int32](flag) = 0; *at[int32](flag) == 0; {
				r.must("MPI_Parrived", req(0), 0, flag)
			}
			r.same("the first partition", slice[int32](ints, 3), 100*round, 100*round+1, 100*round+2)
			r.must("MPI_Parrived", req(0), 1, flag)
			r.same("MPI_Parrived of a half", slice[int32](flag, 1), 0)
			r.must("MPI_Send", ints, 0, typeInt, 0, 9, world)
			r.must("MPI_Waitall", 2, reqs, st)
			if s := slice[int32](st, 16); s[statusSource] != 0 || s[statusTag] != 5 || s[statusBytesLow] != 24 {
				t.Errorf("the status is %v, want source 0, tag 5 and 24 bytes", s[:8])
			}
			r.must("MPI_Parrived", req(0), 1, flag)
			r.same("MPI_Parrived of what is over", slice[int32](flag, 1), 1)
			for k := range int32(6) {
				r.same("an item", slice[int32](ints, 6)[k:k+1], 100*round+k)
				r.same("an item with a gap", slice[int32](wide, 12)[2*k:2*k+2], 100*round+50+k, -1)
			}
		}
		r.freeHandle("MPI_Request_free", req(0))
		r.freeHandle("MPI_Request_free", req(1))
		// Sides of different lengths are an error of the receiver.
		if i == 0 {
			r.must("MPI_Psend_init", ints, 1, 2, typeInt, 1, 6, world, none, reqs)
			r.must("MPI_Start", reqs)
			r.must("MPI_Pready", 0, req(0))
			r.must("MPI_Wait", reqs, 0)
		} else {
			r.must("MPI_Precv_init", ints, 1, 3, typeInt, 0, 6, world, none, reqs)
			r.must("MPI_Start", reqs)
			if code := r.call("MPI_Wait", reqs, 0); code != errTruncate {
				t.Errorf("a receive that is longer: code %d, want %d", code, errTruncate)
			}
		}
		// MPI_PROC_NULL.
		r.must("MPI_Precv_init", ints, 1, 3, typeInt, neg(procNull), 6, world, none, reqs)
		r.must("MPI_Start", reqs)
		r.must("MPI_Wait", reqs, st)
		r.same("the source", slice[int32](st, 1), procNull)
	})
}
