//go:build linux

package mpiabi

import "testing"

func init() {
	wrongCalls = append(wrongCalls, func(t *testing.T, r *rank) []wrongCall {
		out, page, none := place(r.cMemory, uint64(0), 0, 0), forbidden(t), uint64(infoNull)
		win := r.made("MPI_Win_allocate_shared", 8, 1, none, world, out)
		t.Cleanup(func() { r.freeHandle("MPI_Win_free", win) })
		r.must("MPI_Win_set_errhandler", win, uint64(errorsReturn))
		return []wrongCall{
			{"MPI_Win_allocate_shared", Args{neg(-1), 1, none, world, out, out + 8}, errSize},
			{"MPI_Win_allocate_shared", Args{8, 0, none, world, out, out + 8}, errDisp},
			{"MPI_Win_allocate_shared_c", Args{8, neg(-1), none, world, out, out + 8}, errDisp},
			{"MPI_Win_allocate_shared", Args{8, 1, 0, world, out, out + 8}, errInfo},
			{"MPI_Win_allocate_shared", Args{8, 1, none, uint64(commNull), out, out + 8}, errComm},
			{"MPI_Win_allocate_shared", Args{8, 1, none, world, 0, out + 8}, errArg},
			{"MPI_Win_allocate_shared", Args{8, 1, none, world, page, out + 8}, errBuffer},
			{"MPI_Win_allocate_shared", Args{8, 1, none, world, out, 0}, errArg},
			{"MPI_Win_shared_query", Args{uint64(winNull), 0, out, out + 8, out + 16}, errWin},
			{"MPI_Win_shared_query", Args{win, 1, out, out + 8, out + 16}, errRank},
			{"MPI_Win_shared_query", Args{win, neg(-1), out, out + 8, out + 16}, errRank},
			{"MPI_Win_shared_query", Args{win, 0, 0, out + 8, out + 16}, errArg},
			{"MPI_Win_shared_query_c", Args{win, 0, out, 0, out + 16}, errArg},
			{"MPI_Win_shared_query", Args{win, 0, out, out + 8, 0}, errArg},
			{"MPI_Win_shared_query", Args{win, 0, out, out + 8, page}, errBuffer},
		}
	})
}

// Each rank stores in the memory of the next one by its address, and the parts follow one another.
func TestWindowShared(t *testing.T) {
	rs := job(t, 3)
	each(rs, func(i int, r *rank) {
		none := uint64(infoNull)
		base, size, unit := place(r.cMemory, uint64(0)), place(r.cMemory, int64(0)), place(r.cMemory, int32(0), 0)
		// Rank 0 has no memory, and the others 8 and 16 bytes.
		win := r.made("MPI_Win_allocate_shared", uint64(8*i), 4, none, world, base)
		query := func(rank uint64) uint64 {
			t.Helper()
			at1 := place(r.cMemory, uint64(0))
			r.must("MPI_Win_shared_query", win, rank, size, unit, at1)
			return *at[uint64](at1)
		}
		if own := query(uint64(i)); own != *at[uint64](base) || *at[int64](size) != int64(8*i) || *at[int32](unit) != 4 {
			t.Errorf("own memory: %d bytes at %#x, unit %d, want %d at %#x, unit 4", *at[int64](size), own, *at[int32](unit), 8*i, *at[uint64](base))
		}
		one, two := query(1), query(2)
		if query(neg(procNull)) != one || two != one+8 || query(0) != 0 {
			t.Errorf("rank 1 is at %#x, rank 2 at %#x: want the second behind the first", one, two)
		}
		r.must("MPI_Win_fence", 0, win)
		*at[int32](one + 4*uint64(i)) = int32(100 + i) // The third one is rank 2's.
		r.must("MPI_Win_fence", 0, win)
		r.same("what the ranks have stored", slice[int32](one, 3), 100, 101, 102)
		r.must("MPI_Win_fence", 0, win)
		value := place(r.cMemory, int32(7))
		if i == 0 {
			r.must("MPI_Put", value, 1, typeInt, 2, 3, 1, typeInt, win)
		}
		r.must("MPI_Win_fence", 0, win)
		r.same("MPI_Put", slice[int32](two, 4)[3:], 7)
		flag := place(r.cMemory, int32(0))
		r.must("MPI_Win_get_attr", win, keyWinCreateFlavor, base, flag)
		if got := *at[int32](*at[uint64](base)); got != flavorShared {
			t.Errorf("the flavor is %d, want MPI_WIN_FLAVOR_SHARED", got)
		}
		r.freeHandle("MPI_Win_free", win)
		// Another window has only this rank's memory.
		win = r.made("MPI_Win_allocate", 8, 1, none, world, base)
		if query(uint64(i)) != *at[uint64](base) || *at[int64](size) != 8 || query(uint64((i+1)%3)) != 0 || *at[int64](size) != 0 {
			t.Error("MPI_Win_shared_query of a window that is not shared tells of others' memory")
		}
		r.freeHandle("MPI_Win_free", win)
	})
}
