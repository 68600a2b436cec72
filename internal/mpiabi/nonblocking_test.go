//go:build linux

package mpiabi

import (
	"strings"
	"testing"
	"time"
)

func init() {
	wrongCalls = append(wrongCalls, func(t *testing.T, r *rank) []wrongCall {
		mem, out := place(r.cMemory, make([]int32, 8)...), place(r.cMemory, Handle(0))
		var rows []wrongCall
		for _, p := range prototypes {
			_, registered := entries[p.name]
			init := strings.Contains(p.name, "_init") && strings.Contains(callsText, "int "+strings.Replace(p.name, "_init", "", 1)+"(")
			last := len(p.params) - 1
			if !registered || p.handleParam("MPI_Comm") < 0 || !init && !strings.HasPrefix(p.name, "MPI_I") ||
				p.params[last].typ != "MPI_Request" || strings.Contains(p.name, "send") || strings.Contains(p.name, "recv") ||
				strings.Contains(p.name, "eighbor") {
				continue
			}
			// The arguments of a right call, of which one is wrong.
			right := make(Args, last+1)
			wrong := map[int]struct {
				value uint64
				class int32
			}{last: {0, errArg}}
			for i, q := range p.params {
				switch {
				case q.typ == "MPI_Request":
					right[i] = out
				case q.pointer:
					right[i] = mem
				case q.typ == "MPI_Datatype":
					right[i] = 0x209
					wrong[i] = struct {
						value uint64
						class int32
					}{uint64(datatypeNull), errType}
				case q.typ == "MPI_Op":
					right[i] = uint64(opSum)
					wrong[i] = struct {
						value uint64
						class int32
					}{uint64(opNull), errOp}
				case q.typ == "MPI_Comm":
					right[i] = uint64(commWorld)
					wrong[i] = struct {
						value uint64
						class int32
					}{uint64(commNull), errComm}
				case strings.HasSuffix(q.name, "count"):
					right[i] = 1
					wrong[i] = struct {
						value uint64
						class int32
					}{neg(-1), errCount}
				}
			}
			for i, w := range wrong {
				args := append(Args(nil), right...)
				args[i] = w.value
				rows = append(rows, wrongCall{p.name, args, w.class})
			}
		}
		return rows
	})
}

func TestNonblockingCollectives(t *testing.T) {
	rs := job(t, 3)
	each(rs, func(i int, r *rank) {
		const intType = 0x209
		world, me := r.made("MPI_Comm_dup", uint64(commWorld)), int32(i)
		reqs := place(r.cMemory, make([]Handle, 5)...)
		req := func(i int) uint64 { return reqs + uint64(8*i) }
		mine := place(r.cMemory, me+1, 10*me)
		sum, root, all := place(r.cMemory, int32(0), 0), place(r.cMemory, me, me), place(r.cMemory, make([]int32, 6)...)
		pair := r.made("MPI_Type_contiguous", 2, intType)
		r.must("MPI_Type_commit", place(r.cMemory, Handle(pair)))
		r.must("MPI_Iallreduce", mine, sum, 2, intType, uint64(opSum), world, req(0))
		r.must("MPI_Ibcast", root, 1, pair, 2, world, req(1))
		r.must("MPI_Igatherv", mine, 1, intType, all, place(r.cMemory, int32(1), 1, 1), place(r.cMemory, int32(4), 2, 0), intType, 0, world, req(2))
		r.must("MPI_Ibarrier", world, req(3))
		// A blocking collective, and messages, while others are under way. A type and a communicator that are
		// freed serve what has begun.
		r.must("MPI_Iscan", mine, all+4, 1, intType, uint64(opSum), world, req(4))
		r.freeHandle("MPI_Type_free", pair)
		r.must("MPI_Barrier", world)
		r.freeHandle("MPI_Comm_free", world)
		r.must("MPI_Waitall", 5, reqs, 0)
		for k, h := range slice[Handle](reqs, 5) {
			if h != requestNull {
				t.Errorf("request %d is %#x, want MPI_REQUEST_NULL", k, h)
			}
		}
		r.same("MPI_Iallreduce", slice[int32](sum, 2), 6, 30)
		r.same("MPI_Ibcast", slice[int32](root, 2), 2, 2)
		r.same("MPI_Iscan", slice[int32](all+4, 1), []int32{1, 3, 6}[i])
		if i == 0 {
			r.same("MPI_Igatherv", slice[int32](all, 6), 3, 1, 2, 0, 1, 0)
		}
		// A persistent one.
		r.must("MPI_Allreduce_init", mine, sum, 1, intType, uint64(opSum), uint64(commWorld), 0x130, req(0))
		for k := range int32(3) {
			*at[int32](mine) = me + k
			r.must("MPI_Start", req(0))
			r.must("MPI_Wait", req(0), 0)
			r.same("MPI_Allreduce_init", slice[int32](sum, 1), 3+3*k)
		}
		r.must("MPI_Request_free", req(0))
		// Arguments that only the collective itself reads are errors of its end.
		r.world.handler.Store(uint64(errorsReturn))
		r.must("MPI_Ibcast", 0, 1, intType, 0, uint64(commWorld), req(0))
		if code := r.call("MPI_Wait", req(0), 0); code != errBuffer {
			t.Errorf("MPI_Wait of a broadcast of NULL: code %d, want %d", code, errBuffer)
		}
	})
}

// MPI_Ialltoallw and its persistent form keep datatypes that the program frees, and take MPI_IN_PLACE.
func TestNonblockingAlltoallw(t *testing.T) {
	rs := job(t, 2)
	each(rs, func(i int, r *rank) {
		me, other := int32(i), int32(1-i)
		pair := r.made("MPI_Type_contiguous", 2, typeInt)
		r.must("MPI_Type_commit", place(r.cMemory, Handle(pair)))
		src, dst := place(r.cMemory, 10*me, 10*me+1, 10*me+2), place(r.cMemory, make([]int32, 4)...)
		// Rank 0 gets an int of each rank, and rank 1 a pair.
		kinds := []Handle{Handle(typeInt), Handle(pair)}
		one, displs, types := place(r.cMemory, int32(1), 1), place(r.cMemory, int32(0), 4), place(r.cMemory, kinds...)
		froms, at := place(r.cMemory, kinds[i], kinds[i]), place(r.cMemory, int32(0), 4+4*me)
		reqs := place(r.cMemory, make([]Handle, 2)...)
		r.must("MPI_Alltoallw_init", src, one, displs, types, dst, one, at, froms, world, uint64(infoNull), reqs)
		r.must("MPI_Ialltoallw", src, one, displs, types, dst, one, at, froms, world, reqs+8)
		r.freeHandle("MPI_Type_free", pair)
		r.must("MPI_Wait", reqs+8, 0)
		want := [][]int32{{0, 10, 0, 0}, {1, 2, 11, 12}}[i]
		r.same("MPI_Ialltoallw", slice[int32](dst, 4), want...)
		for range 2 {
			copy(slice[int32](dst, 4), []int32{-1, -1, 0, 0})
			r.must("MPI_Start", reqs)
			r.must("MPI_Wait", reqs, 0)
			r.same("MPI_Alltoallw_init", slice[int32](dst, 4), want...)
		}
		copy(slice[int32](dst, 2), []int32{10 * me, 10*me + 1})
		ints := place(r.cMemory, Handle(typeInt), Handle(typeInt))
		r.must("MPI_Ialltoallw", inPlace, 0, 0, 0, dst, one, displs, ints, world, reqs+8)
		r.must("MPI_Wait", reqs+8, 0)
		if i == 0 {
			r.same("in place", slice[int32](dst, 2), 0, 10*other)
		} else {
			r.same("in place", slice[int32](dst, 2), 1, 11)
		}
	})
}

// objects is how many dynamic handles there are.
func (r *rank) objects() (n int) {
	r.handles.each(func(any) { n++ })
	return n
}

// Persistent collectives keep datatypes, operations and communicators for themselves. Nothing is left when they are
// freed, or could not be made.
func TestFreedCollectivesLeaveNothing(t *testing.T) {
	rs := job(t, 2)
	each(rs, func(i int, r *rank) {
		const intType = 0x209
		world, req := uint64(commWorld), place(r.cMemory, Handle(0))
		mine, sum := place(r.cMemory, int32(i), 1), place(r.cMemory, int32(0), 0)
		pair := r.made("MPI_Type_contiguous", 2, intType)
		r.must("MPI_Type_commit", place(r.cMemory, Handle(pair)))
		before := r.objects()
		for range 3 {
			r.must("MPI_Bcast_init", mine, 1, pair, 0, world, uint64(infoNull), req)
			r.must("MPI_Start", req)
			r.must("MPI_Wait", req, 0)
			r.must("MPI_Request_free", req)
		}
		r.must("MPI_Allreduce_init", mine, sum, 2, intType, uint64(opSum), world, uint64(infoNull), req)
		r.must("MPI_Start", req)
		r.must("MPI_Request_free", req) // while it is active
		for name, args := range map[string]Args{
			"MPI_Ibcast":     {mine, 1, pair, 0, world, 0},
			"MPI_Bcast_init": {mine, 1, pair, 0, world, uint64(infoNull), 0},
		} {
			if code := r.call(name, args...); code == errSuccess {
				t.Errorf("%s%v succeeds", name, args)
			}
		}
		r.must("MPI_Barrier", world)
		for end := time.Now().Add(bound); r.objects() != before; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("rank %d: %d objects are left, and %d were there", i, r.objects(), before)
				return
			}
		}
	})
}
