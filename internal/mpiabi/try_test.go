//go:build linux

package mpiabi

import (
	"testing"
	"time"
)

// typeLong is MPI_LONG.
const typeLong = 0x20a

// try tries a call, and fails the test unless it is executed exactly if it should be.
func (r *rank) try(want bool, name string, args ...uint64) {
	r.t.Helper()
	code, ok := r.Try(Number(name), args)
	if ok != want || code != errSuccess {
		r.t.Fatalf("%s: executed %v with code %d, want %v and 0: %s", name, ok, code, want, r.stderr)
	}
}

// tryUntil tries a call until it is executed.
func (r *rank) tryUntil(name string, args ...uint64) {
	r.t.Helper()
	for end := time.Now().Add(bound); ; {
		code, ok := r.Try(Number(name), args)
		if ok && code == errSuccess {
			return
		}
		if ok || time.Now().After(end) {
			r.t.Fatalf("%s: executed %v with code %d: %s", name, ok, code, r.stderr)
		}
	}
}

// A call that would wait does nothing when it is tried, and can be called or tried again. All others are
// executed.
func TestTry(t *testing.T) {
	rs := job(t, 2)
	to, from := rs[0], rs[1]
	out, in := place(to.cMemory, int64(41)), place(from.cMemory, int64(0))
	n := place(from.cMemory, int32(0))
	from.try(true, "MPI_Comm_rank", world, n)
	if got := *at[int32](n); got != 1 {
		t.Errorf("rank %d, want 1", got)
	}
	from.try(false, "MPI_Barrier", world)
	from.try(false, "MPI_Recv", in, 1, typeLong, 0, 5, world, 0)
	from.try(false, "MPI_Probe", 0, 5, world, 0)
	to.tryUntil("MPI_Send", out, 1, typeLong, 1, 5, world)
	from.tryUntil("MPI_Probe", 0, 5, world, 0)
	from.tryUntil("MPI_Recv", in, 1, typeLong, 0, 5, world, 0)
	if got := *at[int64](in); got != 41 {
		t.Errorf("received %d, want 41", got)
	}
	from.try(false, "MPI_Recv", in, 1, typeLong, 0, 5, world, 0)

	for _, end := range []struct {
		name string
		args func(requests uint64) []uint64
	}{
		{"MPI_Wait", func(rs uint64) []uint64 { return []uint64{rs, 0} }},
		{"MPI_Waitall", func(rs uint64) []uint64 { return []uint64{1, rs, 0} }},
		{"MPI_Waitany", func(rs uint64) []uint64 { return []uint64{1, rs, n, 0} }},
		{"MPI_Waitsome", func(rs uint64) []uint64 { return []uint64{1, rs, n, place(from.cMemory, int32(0)), 0} }},
	} {
		request, sent := place(from.cMemory, Handle(0)), place(to.cMemory, Handle(0))
		*at[int64](out)++
		from.try(true, "MPI_Irecv", in, 1, typeLong, 0, 6, world, request)
		begun := *at[Handle](request)
		from.try(false, end.name, end.args(request)...)
		if got := *at[Handle](request); got != begun {
			t.Errorf("%s has set the handle of a request that is not over to %#x", end.name, uint64(got))
		}
		to.try(true, "MPI_Isend", out, 1, typeLong, 1, 6, world, sent)
		from.tryUntil(end.name, end.args(request)...)
		to.tryUntil("MPI_Wait", sent, 0)
		if got, want := *at[int64](in), *at[int64](out); got != want {
			t.Errorf("%s: received %d, want %d", end.name, got, want)
		}
		if got := *at[Handle](request); got != requestNull {
			t.Errorf("%s: the handle is %#x, want MPI_REQUEST_NULL", end.name, uint64(got))
		}
	}
	// Errors are those of the call.
	if code, ok := from.Try(Number("MPI_Recv"), Args{in, 1, typeLong, 7, 5, world, 0}); !ok || code != errRank {
		t.Errorf("a receive from rank 7: executed %v with code %d, want true and %d", ok, code, errRank)
	}
	if code, ok := from.Try(-1, nil); ok {
		t.Errorf("a call that is none was executed, with code %d", code)
	}
}
