//go:build linux

package mpiabi

import (
	"testing"

	"github.com/vmmc-go/vmmc/mpi"
	"github.com/vmmc-go/vmmc/vmmctest"
)

func init() {
	wrongCalls = append(wrongCalls, func(t *testing.T, r *rank) []wrongCall {
		out, page, none := place(r.cMemory, Handle(0)), forbidden(t), uint64(infoNull)
		s := r.made("MPI_Session_init", none, uint64(errorsReturn))
		t.Cleanup(func() { r.freeHandle("MPI_Session_finalize", s) })
		text, zero, group := r.text(mpi.PsetWorld), place(r.cMemory, int32(0)), r.made("MPI_Comm_group", world)
		null, ret := uint64(sessionNull), uint64(errorsReturn)
		rows := []wrongCall{
			{"MPI_Session_init", Args{0, ret, out}, errInfo},
			{"MPI_Session_init", Args{none, 0, out}, errHandler},
			{"MPI_Session_init", Args{none, ret, 0}, errArg},
			{"MPI_Session_finalize", Args{0}, errArg},
			{"MPI_Session_finalize", Args{place(r.cMemory, sessionNull)}, errSession},
			{"MPI_Session_get_info", Args{null, out}, errSession},
			{"MPI_Session_get_info", Args{s, 0}, errArg},
			{"MPI_Session_get_num_psets", Args{world, none, out}, errSession},
			{"MPI_Session_get_num_psets", Args{s, 0, out}, errInfo},
			{"MPI_Session_get_num_psets", Args{s, none, page}, errBuffer},
			{"MPI_Session_get_nth_pset", Args{null, none, 0, zero, 0}, errSession},
			{"MPI_Session_get_nth_pset", Args{s, 0, 0, zero, 0}, errInfo},
			{"MPI_Session_get_nth_pset", Args{s, none, 2, zero, 0}, errArg},
			{"MPI_Session_get_nth_pset", Args{s, none, neg(-1), zero, 0}, errArg},
			{"MPI_Session_get_nth_pset", Args{s, none, 0, 0, 0}, errArg},
			{"MPI_Session_get_nth_pset", Args{s, none, 0, place(r.cMemory, int32(-1)), 0}, errArg},
			{"MPI_Session_get_nth_pset", Args{s, none, 0, place(r.cMemory, int32(9)), 0}, errArg},
			{"MPI_Session_get_pset_info", Args{null, text, out}, errSession},
			{"MPI_Session_get_pset_info", Args{s, r.text("mpi://OTHER"), out}, errArg},
			{"MPI_Session_get_pset_info", Args{s, text, 0}, errArg},
			{"MPI_Group_from_session_pset", Args{null, text, out}, errSession},
			{"MPI_Group_from_session_pset", Args{s, 0, out}, errArg},
			{"MPI_Group_from_session_pset", Args{s, r.text(""), out}, errArg},
			{"MPI_Session_set_errhandler", Args{null, ret}, errSession},
			{"MPI_Session_set_errhandler", Args{s, 0}, errHandler},
			{"MPI_Session_get_errhandler", Args{null, out}, errSession},
			{"MPI_Session_get_errhandler", Args{s, 0}, errArg},
			{"MPI_Session_call_errhandler", Args{null, 1}, errSession},
			{"MPI_Comm_create_from_group", Args{uint64(groupNull), text, none, ret, out}, errGroup},
			{"MPI_Comm_create_from_group", Args{group, 0, none, ret, out}, errArg},
			{"MPI_Comm_create_from_group", Args{group, text, 0, ret, out}, errInfo},
			{"MPI_Comm_create_from_group", Args{group, text, none, 0, out}, errHandler},
			{"MPI_Comm_create_from_group", Args{group, text, none, ret, 0}, errArg},
			{"MPI_Intercomm_create_from_groups", Args{group, 0, uint64(groupNull), 0, text, none, ret, out}, errGroup},
			{"MPI_Intercomm_create_from_groups", Args{group, 0, group, 0, text, none, ret, out}, errGroup},
			{"MPI_Intercomm_create_from_groups", Args{group, 1, group, 0, text, none, ret, out}, errRank},
			{"MPI_Intercomm_create_from_groups", Args{group, 0, group, 0, text, none, ret, 0}, errArg},
		}
		for typ, object := range map[string]uint64{"MPI_Comm": world, "MPI_Session": s} {
			class := map[string]int32{"MPI_Comm": errComm, "MPI_Session": errSession}[typ]
			rows = append(rows, []wrongCall{
				{typ + "_attach_buffer", Args{0, out, 8}, class},
				{typ + "_attach_buffer", Args{object, out, neg(-1)}, errCount},
				{typ + "_attach_buffer_c", Args{object, 0, 8}, errBuffer},
				{typ + "_attach_buffer", Args{object, inPlace, 8}, errBuffer},
				{typ + "_detach_buffer", Args{0, out, out}, class},
				{typ + "_detach_buffer", Args{object, 0, out}, errArg},
				{typ + "_detach_buffer", Args{object, out, 0}, errArg},
				{typ + "_detach_buffer_c", Args{object, out, place(r.cMemory, int64(0))}, errBuffer}, // None is attached.
				{typ + "_flush_buffer", Args{0}, class},
				{typ + "_iflush_buffer", Args{0, out}, class},
				{typ + "_iflush_buffer", Args{object, 0}, errArg},
			}...)
		}
		return rows
	})
}

// A program that has no MPI_Init makes communicators of what its session knows. Sessions may follow one another.
func TestSession(t *testing.T) {
	rs := ranksOn(t, vmmctest.Nodes(t, 1)[0], 3, func(r *rank) {
		if err := r.Exit(); err != nil {
			r.t.Error(err)
		}
	})
	each(rs, func(i int, r *rank) {
		none, ret := uint64(infoNull), uint64(errorsReturn)
		num, name, size := place(r.cMemory, int32(0)), place(r.cMemory, make([]byte, 64)...), place(r.cMemory, int32(0))
		r.self.handler.Store(uint64(errorsReturn))
		if code := r.call("MPI_Group_size", uint64(groupEmpty), num); code != errOther {
			t.Errorf("a call before a session: code %d, want %d", code, errOther)
		}
		for range 2 {
			s := r.made("MPI_Session_init", none, ret)
			if code := r.call("MPI_Barrier", world); code != errComm {
				t.Errorf("MPI_COMM_WORLD without MPI_Init: code %d, want %d", code, errComm)
			}
			r.must("MPI_Session_get_num_psets", s, none, num)
			r.same("MPI_Session_get_num_psets", slice[int32](num, 1), 2)
			*at[int32](size) = 0
			r.must("MPI_Session_get_nth_pset", s, none, 0, size, 0)
			r.same("the length of a name", slice[int32](size, 1), int32(len(mpi.PsetWorld)+1))
			r.must("MPI_Session_get_nth_pset", s, none, 0, size, name)
			if got := cStringAt(name, 64); got != mpi.PsetWorld {
				t.Errorf("the first set is %q, want %q", got, mpi.PsetWorld)
			}
			*at[int32](size) = 4
			r.must("MPI_Session_get_nth_pset", s, none, 1, size, name)
			if got := cStringAt(name, 64); got != "mpi" {
				t.Errorf("four bytes of a name are %q, want mpi", got)
			}
			in := r.made("MPI_Session_get_pset_info", s, r.text(mpi.PsetWorld))
			r.must("MPI_Info_get", in, r.text("mpi_size"), 8, name, num)
			if got := cStringAt(name, 64); got != "3" || *at[int32](num) != 1 {
				t.Errorf("mpi_size is %q, want 3", got)
			}
			in = r.made("MPI_Session_get_info", s)
			r.must("MPI_Info_get", in, r.text("thread_level"), 32, name, num)
			if got := cStringAt(name, 64); got != "MPI_THREAD_MULTIPLE" {
				t.Errorf("thread_level is %q, want MPI_THREAD_MULTIPLE", got)
			}
			g := r.made("MPI_Group_from_session_pset", s, r.text(mpi.PsetWorld))
			c := r.made("MPI_Comm_create_from_group", g, r.text("a library"), none, ret)
			mine, sum := place(r.cMemory, int32(i)), place(r.cMemory, int32(0))
			r.must("MPI_Allreduce", mine, sum, 1, typeInt, uint64(opSum), c)
			r.same("a sum", slice[int32](sum, 1), 3)
			// Rank 0, and the two others.
			local, remote, other := r.made("MPI_Group_incl", g, 1, place(r.cMemory, int32(0))), r.made("MPI_Group_excl", g, 1, place(r.cMemory, int32(0))), 2
			if i > 0 {
				local, remote, other = remote, local, 1
			}
			inter := r.made("MPI_Intercomm_create_from_groups", local, 0, remote, 0, r.text("two"), none, ret)
			r.exchange(inter, other)
			// The buffer of the session serves its communicators.
			const room = 2 * (4 + mpi.BsendOverhead)
			mem := place(r.cMemory, make([]byte, room)...)
			if code := r.call("MPI_Bsend", mine, 1, typeInt, uint64((i+1)%3), 2, c); code != errBuffer {
				t.Errorf("MPI_Bsend without a buffer: code %d, want %d", code, errBuffer)
			}
			r.must("MPI_Session_attach_buffer", s, mem, room)
			r.must("MPI_Bsend", mine, 1, typeInt, uint64((i+1)%3), 2, c)
			r.must("MPI_Recv", sum, 1, typeInt, uint64((i+2)%3), 2, c, 0)
			r.same("a buffered message", slice[int32](sum, 1), int32((i+2)%3))
			r.must("MPI_Session_flush_buffer", s)
			req, where := place(r.cMemory, Handle(0)), place(r.cMemory, uint64(0))
			r.must("MPI_Session_iflush_buffer", s, req)
			r.must("MPI_Wait", req, 0)
			r.must("MPI_Session_detach_buffer", s, where, num)
			if *at[uint64](where) != mem || *at[int32](num) != room {
				t.Errorf("%d bytes at %#x are detached, want %d at %#x", *at[int32](num), *at[uint64](where), room, mem)
			}
			r.freeHandle("MPI_Comm_free", inter)
			r.freeHandle("MPI_Comm_free", c)
			if h := r.freeHandle("MPI_Session_finalize", s); h != sessionNull {
				t.Errorf("MPI_Session_finalize leaves %#x, want MPI_SESSION_NULL", h)
			}
			if code := r.call("MPI_Session_get_num_psets", s, none, num); code != errSession {
				t.Errorf("a session that has ended: code %d, want %d", code, errSession)
			}
		}
	})
}

// MPI_Init and sessions share the job, whichever begins and ends first.
func TestSessionBesideInit(t *testing.T) {
	rs := ranksOn(t, vmmctest.Nodes(t, 1)[0], 2, func(r *rank) {
		if err := r.Exit(); err != nil {
			r.t.Error(err)
		}
	})
	each(rs, func(_ int, r *rank) {
		none, ret := uint64(infoNull), uint64(errorsReturn)
		first := r.made("MPI_Session_init", none, ret)
		r.must("MPI_Init", 0, 0)
		second := r.made("MPI_Session_init", none, ret)
		r.freeHandle("MPI_Session_finalize", first)
		r.must("MPI_Barrier", world)
		r.must("MPI_Finalize")
		g := r.made("MPI_Group_from_session_pset", second, r.text(mpi.PsetWorld))
		c := r.made("MPI_Comm_create_from_group", g, r.text(""), none, ret)
		r.must("MPI_Barrier", c)
		r.freeHandle("MPI_Session_finalize", second)
	})
}

// Errors of a session go to its own error handler.
func TestSessionErrhandler(t *testing.T) {
	r := job(t, 1)[0]
	calls := 0
	r.config.Callback = func(function uint64, _ ...uint64) uint64 {
		calls++
		if function != 0x77 {
			t.Errorf("function %#x is called", function)
		}
		return 0
	}
	h := place(r.cMemory, Handle(0))
	r.must("MPI_Session_create_errhandler", 0x77, h)
	s := r.made("MPI_Session_init", uint64(infoNull), uint64(*at[Handle](h)))
	out := place(r.cMemory, Handle(0))
	if code := r.call("MPI_Group_from_session_pset", s, r.text("none"), out); code != errArg || calls != 1 {
		t.Errorf("code %d, %d calls of the handler, want %d and 1", code, calls, errArg)
	}
	r.must("MPI_Session_call_errhandler", s, uint64(errRank))
	if calls != 2 {
		t.Errorf("%d calls of the handler, want 2", calls)
	}
	r.must("MPI_Session_get_errhandler", s, out)
	r.must("MPI_Session_set_errhandler", s, uint64(errorsReturn))
	if code := r.call("MPI_Group_from_session_pset", s, r.text("none"), out); code != errArg || calls != 2 {
		t.Errorf("code %d, %d calls of the handler, want %d and 2", code, calls, errArg)
	}
	r.freeHandle("MPI_Session_finalize", s)
}

// A communicator that has a buffer uses no other one.
func TestCommBuffer(t *testing.T) {
	r := job(t, 1)[0]
	const room = 4 + mpi.BsendOverhead
	mem, got := place(r.cMemory, make([]byte, 2*room)...), place(r.cMemory, int32(0))
	one, where, num := place(r.cMemory, int32(5)), place(r.cMemory, uint64(0)), place(r.cMemory, int64(0))
	req := place(r.cMemory, Handle(0))
	c := r.made("MPI_Comm_dup", world)
	r.must("MPI_Buffer_attach", mem+room, room)
	r.must("MPI_Comm_attach_buffer", c, mem, room)
	if code := r.call("MPI_Comm_attach_buffer", c, mem, room); code != errBuffer {
		t.Errorf("a second buffer: code %d, want %d", code, errBuffer)
	}
	// It is used again when its message has left.
	for range 2 {
		r.must("MPI_Bsend", one, 1, typeInt, 0, 1, c)
		r.must("MPI_Recv", got, 1, typeInt, 0, 1, c, 0)
		r.must("MPI_Ibsend", one, 1, typeInt, 0, 1, world, req)
		r.must("MPI_Wait", req, 0)
		r.must("MPI_Recv", got, 1, typeInt, 0, 1, world, 0)
		r.same("a message", slice[int32](got, 1), 5)
	}
	if code := r.call("MPI_Bsend", mem, room, 0x247, 0, 1, c); code != errBuffer {
		t.Errorf("a message that is too long: code %d, want %d", code, errBuffer)
	}
	r.must("MPI_Comm_flush_buffer", c)
	r.must("MPI_Comm_iflush_buffer", c, req)
	r.must("MPI_Wait", req, 0)
	r.must("MPI_Comm_detach_buffer_c", c, where, num)
	if *at[uint64](where) != mem || *at[int64](num) != room {
		t.Errorf("%d bytes at %#x are detached, want %d at %#x", *at[int64](num), *at[uint64](where), room, mem)
	}
	r.must("MPI_Comm_attach_buffer", c, bufferAutomatic, 0)
	r.must("MPI_Bsend", mem, room, 0x247, 0, 1, c)
	r.must("MPI_Recv", mem, room, 0x247, 0, 1, c, 0)
	r.must("MPI_Comm_detach_buffer", c, where, num)
	if *at[uint64](where) != bufferAutomatic {
		t.Errorf("what is detached is %#x, want MPI_BUFFER_AUTOMATIC", *at[uint64](where))
	}
	r.freeHandle("MPI_Comm_free", c)
	r.must("MPI_Buffer_detach", where, num)
}
