//go:build linux

package mpiabi

import (
	"testing"
)

func init() {
	wrongCalls = append(wrongCalls, func(t *testing.T, r *rank) []wrongCall {
		world := uint64(commWorld)
		out := place(r.cMemory, Handle(0))
		bad := r.made("MPI_Info_create")
		r.must("MPI_Info_set", bad, r.text("cb_nodes"), r.text("many"))
		return []wrongCall{
			{"MPI_File_open", Args{world, r.text("x"), modeReadOnly, world, out}, errInfo},
			{"MPI_File_open", Args{world, r.text("x"), modeReadOnly, bad, out}, errInfoValue},
		}
	})
}

// Files tell which hints they use, and communicators that they use none.
func TestHints(t *testing.T) {
	r := job(t, 1)[0]
	in := r.made("MPI_Info_create")
	r.must("MPI_Info_set", in, r.text("cb_buffer_size"), r.text("12345"))
	name := r.text(t.TempDir() + "/a")
	f := r.made("MPI_File_open", uint64(commWorld), name, modeCreate|modeReadWrite, in)
	used := r.made("MPI_File_get_info", f)
	length, value, flag := place(r.cMemory, int32(8)), place(r.cMemory, make([]byte, 8)...), place(r.cMemory, int32(0))
	r.must("MPI_Info_get_string", used, r.text("cb_buffer_size"), length, value, flag)
	if got := string(slice[byte](value, 6)); got != "12345\x00" || *at[int32](flag) != 1 {
		t.Errorf("the file's buffer is %q, want 12345", got)
	}
	r.must("MPI_File_set_info", f, in)
	r.freeHandle("MPI_File_close", f)
	dup := r.made("MPI_Comm_dup_with_info", uint64(commWorld), in)
	r.must("MPI_Comm_set_info", dup, in)
	r.same("a communicator's hints", r.results(1, "MPI_Info_get_nkeys", r.made("MPI_Comm_get_info", dup)), 0)
}
