//go:build linux

package mpiabi

import (
	"slices"
	"testing"
)

func init() {
	wrongCalls = append(wrongCalls, func(_ *testing.T, r *rank) []wrongCall {
		out := place(r.cMemory, Handle(0))
		return []wrongCall{
			{"MPI_Grequest_start", Args{0, 1, 1, 0, out}, errArg},
			{"MPI_Grequest_start", Args{1, 0, 1, 0, out}, errArg},
			{"MPI_Grequest_start", Args{1, 1, 0, 0, out}, errArg},
			{"MPI_Grequest_start", Args{1, 1, 1, 0, 0}, errArg},
			{"MPI_Grequest_complete", Args{uint64(requestNull)}, errRequest},
			{"MPI_Grequest_complete", Args{world}, errRequest},
		}
	})
}

// A generalized request is over when the program says so. Its functions tell the status, free it, and cancel it.
func TestGeneralizedRequest(t *testing.T) {
	r := job(t, 1)[0]
	r.self.handler.Store(uint64(errorsReturn))
	const query, free, cancel, extra = 0x10, 0x20, 0x30, 0x44
	var called []string
	var fails int32
	r.config.Callback = func(function uint64, args ...uint64) uint64 {
		if args[0] != extra {
			t.Errorf("function %#x gets %#x, want the extra state", function, args[0])
		}
		switch function {
		case query:
			called = append(called, "query")
			r.must("MPI_Status_set_elements", args[1], typeInt, 3)
			r.must("MPI_Status_set_source", args[1], 5)
			r.must("MPI_Status_set_tag", args[1], 6)
		case free:
			called = append(called, "free")
		case cancel:
			called = append(called, []string{"cancel", "cancel a complete one"}[args[1]])
		}
		return uint64(uint32(fails))
	}
	same := func(what string, want ...string) {
		t.Helper()
		if !slices.Equal(called, want) {
			t.Errorf("%s calls %q, want %q", what, called, want)
		}
		called = nil
	}
	req, st, flag := place(r.cMemory, Handle(0), Handle(0)), place(r.cMemory, make([]int32, 16)...), place(r.cMemory, int32(0), 0)
	start := func() {
		t.Helper()
		r.must("MPI_Grequest_start", query, free, cancel, extra, req)
	}
	start()
	r.must("MPI_Test", req, flag, st)
	r.must("MPI_Cancel", req)
	r.same("MPI_Test before the end", slice[int32](flag, 1), 0)
	same("a cancel", "cancel")
	// It ends while another thread waits.
	h := uint64(*at[Handle](req))
	go r.must("MPI_Grequest_complete", h)
	r.must("MPI_Wait", req, st)
	same("MPI_Wait", "query", "free")
	if s := slice[int32](st, 8); s[statusSource] != 5 || s[statusTag] != 6 || s[statusBytesLow] != 12 || *at[Handle](req) != requestNull {
		t.Errorf("the status is %v, the request %#x, want source 5, tag 6, 12 bytes, and none", s, *at[Handle](req))
	}
	if code := r.call("MPI_Grequest_complete", h); code != errRequest {
		t.Errorf("MPI_Grequest_complete again: code %d, want %d", code, errRequest)
	}
	// Beside a message.
	start()
	r.must("MPI_Irecv", st, 1, typeInt, 0, 1, world, req+8)
	r.must("MPI_Grequest_complete", uint64(*at[Handle](req)))
	if code := r.call("MPI_Grequest_complete", uint64(*at[Handle](req))); code != errRequest {
		t.Errorf("MPI_Grequest_complete of a complete one: code %d, want %d", code, errRequest)
	}
	r.must("MPI_Cancel", req)
	r.must("MPI_Waitany", 2, req, flag, 0)
	r.same("MPI_Waitany", slice[int32](flag, 1), 0)
	same("MPI_Waitany", "cancel a complete one", "query", "free")
	r.must("MPI_Cancel", req+8)
	r.must("MPI_Wait", req+8, 0)
	// Freed before and after its end.
	start()
	h = uint64(*at[Handle](req))
	r.must("MPI_Request_free", req)
	same("MPI_Request_free before the end")
	r.must("MPI_Grequest_complete", h)
	same("MPI_Grequest_complete of one that is freed", "free")
	start()
	r.must("MPI_Grequest_complete", uint64(*at[Handle](req)))
	r.must("MPI_Request_free", req)
	same("MPI_Request_free", "free")
	// An error of a function is that of the call.
	start()
	r.must("MPI_Grequest_complete", uint64(*at[Handle](req)))
	fails = errTopology
	if code := r.call("MPI_Wait", req, 0); code != errTopology {
		t.Errorf("MPI_Wait: code %d, want that of the function, %d", code, errTopology)
	}
}
