//go:build linux

package mpiabi

import "testing"

func TestCommunicators(t *testing.T) {
	rs := job(t, 3)
	each(rs, func(i int, r *rank) {
		dup := place(r.cMemory, Handle(0))
		part := place(r.cMemory, Handle(0))
		out := place(r.cMemory, int32(0), int32(0))
		r.must("MPI_Comm_dup", uint64(commWorld), dup)
		d := *at[Handle](dup)
		r.must("MPI_Barrier", uint64(d))
		color := i % 2
		if i == 1 {
			color = undefined
		}
		r.must("MPI_Comm_split", uint64(d), neg(color), neg(-i), part)
		p := *at[Handle](part)
		if i == 1 {
			if p != commNull {
				t.Errorf("MPI_UNDEFINED gives communicator %#x, want MPI_COMM_NULL", p)
			}
		} else {
			r.must("MPI_Comm_rank", uint64(p), out)
			r.must("MPI_Comm_size", uint64(p), out+4)
			if v := slice[int32](out, 2); v[0] != int32(1-i/2) || v[1] != 2 {
				t.Errorf("rank %d is rank %d of %d of the part, want %d of 2", i, v[0], v[1], 1-i/2)
			}
			r.must("MPI_Comm_free", part)
			if *at[Handle](part) != commNull {
				t.Error("a freed handle is not MPI_COMM_NULL")
			}
		}
		r.must("MPI_Comm_free", dup)
		r.self.handler.Store(uint64(errorsReturn))
		if code := r.call("MPI_Barrier", uint64(d)); code != errComm {
			t.Errorf("MPI_Barrier of a freed communicator: code %d, want %d", code, errComm)
		}
	})
}
