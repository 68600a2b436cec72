//go:build linux

package mpiabi

import "testing"

func TestGroups(t *testing.T) {
	rs := job(t, 3)
	each(rs, func(i int, r *rank) {
		size := func(h uint64) int32 {
			out := place(r.cMemory, int32(-9))
			r.must("MPI_Group_size", h, out)
			return *at[int32](out)
		}
		out := place(r.cMemory, Handle(0))
		get := func() uint64 { return uint64(*at[Handle](out)) }
		ranks := place(r.cMemory, int32(2), int32(0))
		r.must("MPI_Comm_group", uint64(commWorld), out)
		all := get()
		r.must("MPI_Group_incl", all, 2, ranks, out)
		ends := get()
		r.must("MPI_Group_excl", all, 2, ranks, out)
		middle := get()
		place := place(r.cMemory, int32(0))
		r.must("MPI_Group_rank", ends, place)
		if want := []int32{1, undefined, 0}[i]; *at[int32](place) != want {
			t.Errorf("rank %d has rank %d in the group of 2 and 0, want %d", i, *at[int32](place), want)
		}
		r.must("MPI_Group_union", ends, middle, out)
		union := get()
		r.must("MPI_Group_intersection", all, ends, out)
		both := get()
		r.must("MPI_Group_difference", all, ends, out)
		rest := get()
		for _, c := range []struct {
			name string
			h    uint64
			want int32
		}{{"all", all, 3}, {"ends", ends, 2}, {"middle", middle, 1}, {"union", union, 3}, {"both", both, 2}, {"rest", rest, 1}} {
			if got := size(c.h); got != c.want {
				t.Errorf("group %s has %d members, want %d", c.name, got, c.want)
			}
		}
		r.must("MPI_Group_difference", all, union, out)
		if get() != uint64(groupEmpty) {
			t.Errorf("a group without members is %#x, want MPI_GROUP_EMPTY", get())
		}
		r.must("MPI_Group_free", out)
		*at[Handle](out) = Handle(all)
		r.must("MPI_Group_free", out)
		if get() != uint64(groupNull) {
			t.Error("a freed handle is not MPI_GROUP_NULL")
		}
	})
}
