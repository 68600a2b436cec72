//go:build linux

package mpiabi

import (
	"slices"
	"testing"
)

const (
	typeInt       uint64 = 0x209
	typeDoubleInt uint64 = 0x229
	world                = uint64(commWorld)
)

type doubleAndInt struct {
	V float64
	I int32
	_ int32
}

func init() {
	wrongCalls = append(wrongCalls, wrongRequests)
}

func wrongRequests(t *testing.T, r *rank) []wrongCall {
	ints := place(r.cMemory, int32(1), 2, 3, 4)
	foreign := uint64(r.handles.add(&datatype{name: "foreign", size: 4, extent: 4}))
	stale := place(r.cMemory, Handle(0x7fffff), Handle(0x7fffff))
	null := place(r.cMemory, requestNull)
	out := place(r.cMemory, int64(0), 0, 0, 0)
	page := forbidden(t)
	inactive := place(r.cMemory, Handle(0))
	r.must("MPI_Recv_init", ints, 1, typeInt, 0, 1, world, inactive)
	rows := []wrongCall{
		{"MPI_Wait", Args{0, 0}, errRequest},
		{"MPI_Wait", Args{page, 0}, errBuffer},
		{"MPI_Wait", Args{stale, 0}, errRequest},
		{"MPI_Wait", Args{place(r.cMemory, Handle(foreign)), 0}, errRequest},
		{"MPI_Wait", Args{null, page}, errBuffer},
		{"MPI_Test", Args{stale, out, 0}, errRequest},
		{"MPI_Test", Args{null, 0, 0}, errArg},
		{"MPI_Waitall", Args{neg(-1), stale, 0}, errCount},
		{"MPI_Waitall", Args{1, 0, 0}, errRequest},
		{"MPI_Waitall", Args{1, stale, 0}, errRequest},
		{"MPI_Waitall", Args{1, null, page}, errBuffer},
		{"MPI_Testall", Args{1, stale, out, 0}, errRequest},
		{"MPI_Testall", Args{1, null, 0, 0}, errArg},
		{"MPI_Waitany", Args{2, stale, out, 0}, errRequest},
		{"MPI_Waitany", Args{1, null, 0, 0}, errArg},
		{"MPI_Testany", Args{1, stale, out, out + 8, 0}, errRequest},
		{"MPI_Testany", Args{1, null, out, 0, 0}, errArg},
		{"MPI_Waitsome", Args{1, stale, out, out + 8, 0}, errRequest},
		{"MPI_Waitsome", Args{1, null, out, 0, 0}, errArg},
		{"MPI_Testsome", Args{neg(-1), null, out, out + 8, 0}, errCount},
		{"MPI_Request_get_status", Args{foreign, out, 0}, errRequest},
		{"MPI_Request_get_status", Args{uint64(requestNull), 0, 0}, errArg},
		{"MPI_Request_get_status_all", Args{1, stale, out, 0}, errRequest},
		{"MPI_Request_get_status_any", Args{1, page, out, out + 8, 0}, errBuffer},
		{"MPI_Request_get_status_some", Args{1, null, 0, out, 0}, errArg},
		{"MPI_Request_free", Args{null}, errRequest},
		{"MPI_Request_free", Args{stale}, errRequest},
		{"MPI_Cancel", Args{null}, errRequest},
		{"MPI_Cancel", Args{inactive}, errRequest},
		{"MPI_Start", Args{null}, errRequest},
		{"MPI_Start", Args{stale}, errRequest},
		{"MPI_Startall", Args{neg(-1), null}, errCount},
		{"MPI_Startall", Args{1, null}, errRequest},
	}
	for _, call := range []string{"MPI_Isend", "MPI_Issend", "MPI_Irsend", "MPI_Send_init", "MPI_Ssend_init", "MPI_Rsend_init", "MPI_Bsend_init", "MPI_Irecv", "MPI_Recv_init"} {
		rows = append(rows,
			wrongCall{call, Args{0, 1, typeInt, 0, 1, world, out}, errBuffer},
			wrongCall{call, Args{ints, neg(-1), typeInt, 0, 1, world, out}, errCount},
			wrongCall{call, Args{ints, 1, uint64(datatypeNull), 0, 1, world, out}, errType},
			wrongCall{call, Args{ints, 1, typeInt, 5, 1, world, out}, errRank},
			wrongCall{call, Args{ints, 1, typeInt, 0, neg(-7), world, out}, errTag},
			wrongCall{call + "_c", Args{ints, 1, typeInt, 0, 1, foreign, out}, errComm},
			wrongCall{call, Args{ints, 1, typeInt, 0, 1, world, 0}, errArg},
		)
	}
	rows = append(rows, wrongCall{"MPI_Bsend", Args{ints, 1, typeInt, 0, 1, world}, errBuffer})
	rows = append(rows, wrongCall{"MPI_Ibsend", Args{ints, 1, typeInt, 0, 1, world, out}, errBuffer})
	for _, call := range []string{"MPI_Ssend", "MPI_Rsend", "MPI_Bsend"} {
		rows = append(rows,
			wrongCall{call, Args{0, 1, typeInt, 0, 1, world}, errBuffer},
			wrongCall{call, Args{ints, 1, typeInt, 9, 1, world}, errRank},
			wrongCall{call, Args{ints, 1, typeInt, 0, neg(-7), world}, errTag},
			wrongCall{call, Args{ints, 1, typeInt, 0, 1, uint64(commNull)}, errComm},
		)
	}
	for _, call := range []string{"MPI_Sendrecv", "MPI_Isendrecv"} {
		rows = append(rows,
			wrongCall{call, Args{ints, 1, typeInt, 9, 1, ints + 4, 1, typeInt, 0, 1, world, out}, errRank},
			wrongCall{call, Args{ints, 1, typeInt, 0, 1, ints + 4, 1, typeInt, 9, 1, world, out}, errRank},
			wrongCall{call, Args{ints, 1, typeInt, 0, 1, 0, 1, typeInt, 0, 1, world, out}, errBuffer},
			wrongCall{call, Args{ints, 1, 0, 0, 1, ints + 4, 1, typeInt, 0, 1, world, out}, errType},
			wrongCall{call, Args{ints, 1, typeInt, 0, 1, ints + 4, 1, typeInt, 0, 1, foreign, out}, errComm},
		)
	}
	for _, call := range []string{"MPI_Sendrecv_replace", "MPI_Isendrecv_replace"} {
		rows = append(rows,
			wrongCall{call, Args{ints, 1, typeInt, 9, 1, 0, 1, world, out}, errRank},
			wrongCall{call, Args{ints, 1, typeInt, 0, 1, 0, neg(-7), world, out}, errTag},
			wrongCall{call, Args{ints, neg(-2), typeInt, 0, 1, 0, 1, world, out}, errCount},
		)
	}
	return append(rows, wrongCall{"MPI_Isendrecv_replace", Args{ints, 1, typeInt, 0, 1, 0, 1, world, 0}, errArg})
}

// Requests are over with what was sent, and their handles are MPI_REQUEST_NULL then.
func TestWaitall(t *testing.T) {
	rs := job(t, 2)
	each(rs, func(i int, r *rank) {
		ints := place(r.cMemory, int32(40), 41, 42)
		pairs := place(r.cMemory, doubleAndInt{1.5, 4, 0}, doubleAndInt{-2.5, 5, 0})
		reqs := place(r.cMemory, Handle(0), Handle(0), requestNull)
		sts := place(r.cMemory, make([]int32, 3*statusSize/4)...)
		if i == 0 {
			r.must("MPI_Isend", ints, 3, typeInt, 1, 1, world, reqs)
			r.must("MPI_Issend_c", pairs, 2, typeDoubleInt, 1, 2, world, reqs+8)
			r.must("MPI_Waitall", 3, reqs, 0)
			return
		}
		clear(slice[int32](ints, 3))
		clear(slice[doubleAndInt](pairs, 2))
		slice[int32](sts, 24)[statusError] = 77
		r.must("MPI_Irecv", pairs, 2, typeDoubleInt, 0, 2, world, reqs+8)
		r.must("MPI_Irecv_c", ints, 3, typeInt, neg(-1), 1, world, reqs)
		r.must("MPI_Waitall", 3, reqs, sts)
		if v := slice[int32](ints, 3); !slices.Equal(v, []int32{40, 41, 42}) {
			t.Errorf("received %v, want [40 41 42]", v)
		}
		if v := slice[doubleAndInt](pairs, 2); v[0] != (doubleAndInt{1.5, 4, 0}) || v[1] != (doubleAndInt{-2.5, 5, 0}) {
			t.Errorf("received %v", v)
		}
		for k, want := range [][4]int32{{0, 1, 77, 12}, {0, 2, 0, 24}, {-1, -2, 0, 0}} {
			if s := slice[int32](sts+uint64(k)*statusSize, 4); [4]int32(s) != want {
				t.Errorf("status %d is %v, want %v", k, s, want)
			}
		}
		if h := slice[Handle](reqs, 3); h[0] != requestNull || h[1] != requestNull || h[2] != requestNull {
			t.Errorf("handles are %#x after MPI_Waitall, want MPI_REQUEST_NULL", h)
		}
	})
}

// A part of an item stores what has come of it, and leaves the rest, and the gaps.
func TestPartialItem(t *testing.T) {
	rs := job(t, 2)
	each(rs, func(i int, r *rank) {
		if i == 0 {
			r.must("MPI_Ssend", place(r.cMemory, 1.5), 1, 0x214, 1, 1, world)
			return
		}
		pair := place(r.cMemory, [4]int32{7, 7, 8, 9})
		req := place(r.cMemory, Handle(0))
		r.must("MPI_Irecv", pair, 1, typeDoubleInt, 0, 1, world, req)
		r.must("MPI_Wait", req, 0)
		if v, s := *at[float64](pair), slice[int32](pair, 4); v != 1.5 || s[2] != 8 || s[3] != 9 {
			t.Errorf("received %v, and %v beside it, want 1.5, 8 and 9", v, s[2:])
		}
	})
}

// One failed request does not keep the others from being over, and the statuses say which it was.
func TestWaitallInStatus(t *testing.T) {
	rs := job(t, 2)
	each(rs, func(i int, r *rank) {
		ints := place(r.cMemory, int32(1), 2, 3)
		reqs := place(r.cMemory, requestNull, requestNull)
		sts := place(r.cMemory, make([]int32, 2*statusSize/4)...)
		if i == 0 {
			r.must("MPI_Send", ints, 2, typeInt, 1, 1, world)
			r.must("MPI_Rsend", ints, 1, typeInt, 1, 2, world)
			return
		}
		r.must("MPI_Irecv", ints, 1, typeInt, 0, 1, world, reqs)
		r.must("MPI_Irecv", ints+8, 1, typeInt, 0, 2, world, reqs+8)
		if code := r.call("MPI_Waitall", 2, reqs, sts); code != errInStatus {
			t.Errorf("code %d, want %d", code, errInStatus)
		}
		first, second := slice[int32](sts, 8)[statusError], slice[int32](sts+statusSize, 8)[statusError]
		if first != errTruncate || second != errSuccess || slice[int32](ints, 3)[2] != 1 {
			t.Errorf("errors are %d and %d, want %d and 0; received %v", first, second, errTruncate, slice[int32](ints, 3))
		}
	})
}

// Errors of a request go to the error handler of its communicator.
func TestRequestHandler(t *testing.T) {
	r := job(t, 1)[0]
	ints := place(r.cMemory, int32(1), 2)
	req := place(r.cMemory, requestNull)
	r.must("MPI_Irecv", ints, 0, typeInt, 0, 1, world, req)
	r.must("MPI_Send", ints, 2, typeInt, 0, 1, world)
	r.self.handler.Store(uint64(errorsAreFatal))
	if code := r.call("MPI_Wait", req, 0); code != errTruncate || *r.status != -1 {
		t.Errorf("code %d, and the job ends with status %d: want %d, and errors of MPI_COMM_WORLD are returned", code, *r.status, errTruncate)
	}
}

// Waitany, Waitsome and their kin leave the requests that are not over.
func TestWaitSome(t *testing.T) {
	r := job(t, 1)[0]
	ints := place(r.cMemory, int32(5), 0, 0, 0)
	reqs := place(r.cMemory, requestNull, requestNull, requestNull)
	index := place(r.cMemory, make([]int32, 4)...)
	count := place(r.cMemory, int32(7))
	flag := place(r.cMemory, int32(7))
	st := place(r.cMemory, make([]int32, 3*statusSize/4)...)
	check := func(call string, wantCount, wantFlag int32, wantIndex ...int32) {
		t.Helper()
		if c, f, i := *at[int32](count), *at[int32](flag), slice[int32](index, len(wantIndex)); c != wantCount || f != wantFlag || !slices.Equal(i, wantIndex) {
			t.Errorf("%s: count %d, flag %d, index %v, want %d, %d, %v", call, c, f, i, wantCount, wantFlag, wantIndex)
		}
	}
	r.must("MPI_Waitany", 3, reqs, index, 0)
	r.must("MPI_Waitsome", 3, reqs, count, index+4, 0)
	r.must("MPI_Testany", 3, reqs, index+8, flag, st)
	check("without active requests", undefined, 1, undefined, 0, undefined)
	for k := range uint64(3) {
		r.must("MPI_Irecv", ints+4+4*k, 1, typeInt, 0, 1+k, world, reqs+8*k)
	}
	r.must("MPI_Testall", 3, reqs, flag, 0)
	r.must("MPI_Testsome", 3, reqs, count, index, 0)
	check("nothing is over", 0, 0)
	r.must("MPI_Testany", 3, reqs, index, flag, st)
	check("MPI_Testany", 0, 0, undefined)
	r.must("MPI_Send", ints, 1, typeInt, 0, 2, world)
	r.must("MPI_Request_get_status_any", 3, reqs, index, flag, st)
	check("MPI_Request_get_status_any", 0, 1, 1)
	r.must("MPI_Request_get_status_some", 3, reqs, count, index, st)
	check("MPI_Request_get_status_some", 1, 1, 1)
	r.must("MPI_Request_get_status", uint64(slice[Handle](reqs, 3)[1]), flag, st)
	r.must("MPI_Waitany", 3, reqs, index, st)
	check("MPI_Waitany", 1, 1, 1)
	if s := slice[int32](st, 4); s[statusSource] != 0 || s[statusTag] != 2 || s[statusBytesLow] != 4 {
		t.Errorf("MPI_Waitany: status %v, want source 0, tag 2, 4 bytes", s)
	}
	r.must("MPI_Send", ints, 1, typeInt, 0, 3, world)
	r.must("MPI_Send", ints, 1, typeInt, 0, 1, world)
	r.must("MPI_Request_get_status_all", 3, reqs, flag, st)
	check("MPI_Request_get_status_all", 1, 1)
	r.must("MPI_Waitsome", 3, reqs, count, index, st)
	check("MPI_Waitsome", 2, 1, 0, 2)
	if s := slice[int32](st, 16); s[statusTag] != 1 || s[8+statusTag] != 3 {
		t.Errorf("MPI_Waitsome: statuses %v, want tags 1 and 3", s)
	}
	if v := slice[int32](ints, 4); !slices.Equal(v, []int32{5, 5, 5, 5}) {
		t.Errorf("received %v, want 5 three times", v[1:])
	}
	r.must("MPI_Testall", 3, reqs, flag, 0)
	r.must("MPI_Testsome", 3, reqs, count, index, 0)
	check("all are over", undefined, 1)
}

// A cancelled receive takes no message, and its status says so.
func TestCancel(t *testing.T) {
	r := job(t, 1)[0]
	ints := place(r.cMemory, int32(5), 6)
	req := place(r.cMemory, requestNull)
	flag := place(r.cMemory, int32(7))
	st := place(r.cMemory, make([]int32, statusSize/4)...)
	r.must("MPI_Irecv", ints, 1, typeInt, 0, 1, world, req)
	r.must("MPI_Test", req, flag, st)
	if *at[int32](flag) != 0 || *at[Handle](req) == requestNull {
		t.Errorf("a receive without a message is over: flag %d, handle %#x", *at[int32](flag), *at[Handle](req))
	}
	r.must("MPI_Cancel", req)
	r.must("MPI_Wait", req, st)
	if s := slice[int32](st, 8); s[statusCancelled] != 1 || *at[Handle](req) != requestNull {
		t.Errorf("status %v, handle %#x after MPI_Cancel, want a cancelled one, and MPI_REQUEST_NULL", s, *at[Handle](req))
	}
	r.must("MPI_Sendrecv", ints, 1, typeInt, 0, 1, ints+4, 1, typeInt, 0, 1, world, 0)
	if v := slice[int32](ints, 2); v[1] != 5 {
		t.Errorf("received %d, want 5", v[1])
	}
}

// A request that is freed goes on.
func TestRequestFree(t *testing.T) {
	r := job(t, 1)[0]
	ints := place(r.cMemory, int32(5), 6)
	req := place(r.cMemory, requestNull)
	r.must("MPI_Irecv", ints+4, 1, typeInt, 0, 1, world, req)
	h := *at[Handle](req)
	r.self.handler.Store(uint64(errorsReturn))
	r.must("MPI_Request_free", req)
	if *at[Handle](req) != requestNull {
		t.Errorf("the handle is %#x, want MPI_REQUEST_NULL", *at[Handle](req))
	}
	if code := r.call("MPI_Wait", place(r.cMemory, h), 0); code != errRequest {
		t.Errorf("MPI_Wait for a freed request: code %d, want %d", code, errRequest)
	}
	r.must("MPI_Ssend", ints, 1, typeInt, 0, 1, world)
	if v := slice[int32](ints, 2); v[1] != 5 {
		t.Errorf("received %d, want 5", v[1])
	}
}

// Persistent requests send and receive what the buffers have at each start.
func TestPersistent(t *testing.T) {
	rs := job(t, 2)
	each(rs, func(i int, r *rank) {
		pairs := place(r.cMemory, doubleAndInt{}, doubleAndInt{})
		ints := place(r.cMemory, int32(0), 0)
		reqs := place(r.cMemory, Handle(0), Handle(0))
		st := place(r.cMemory, make([]int32, statusSize/4)...)
		other := uint64(1 - i)
		kinds := []string{"MPI_Ssend_init", "MPI_Send_init"}
		if i == 1 {
			kinds = []string{"MPI_Recv_init", "MPI_Recv_init"}
		}
		r.must(kinds[0], pairs, 2, typeDoubleInt, other, 1, world, reqs)
		r.must(kinds[1]+"_c", ints, 2, typeInt, other, 2, world, reqs+8)
		handles := slices.Clone(slice[Handle](reqs, 2))
		r.must("MPI_Wait", reqs, st)
		if s := slice[int32](st, 2); s[0] != -1 || s[1] != -2 {
			t.Errorf("an inactive request: status %v, want the empty one", s)
		}
		for round := range int32(3) {
			if i == 0 {
				copy(slice[doubleAndInt](pairs, 2), []doubleAndInt{{1.5, round, 0}, {2.5, round + 1, 0}})
				copy(slice[int32](ints, 2), []int32{round, 9})
			}
			r.must("MPI_Startall", 2, reqs)
			if code := r.call("MPI_Start", reqs); code != errRequest {
				t.Errorf("MPI_Start of a started request: code %d, want %d", code, errRequest)
			}
			r.must("MPI_Waitall", 2, reqs, 0)
			if !slices.Equal(slice[Handle](reqs, 2), handles) {
				t.Errorf("the handles are %#x, want %#x still", slice[Handle](reqs, 2), handles)
			}
			if v, w := slice[doubleAndInt](pairs, 2), slice[int32](ints, 2); v[0] != (doubleAndInt{1.5, round, 0}) || v[1].I != round+1 || w[0] != round || w[1] != 9 {
				t.Errorf("round %d: rank %d has %v and %v", round, i, v, w)
			}
		}
		r.must("MPI_Request_free", reqs)
		r.must("MPI_Request_free", reqs+8)
	})
}

// Each rank sends and receives in one call.
func TestSendrecv(t *testing.T) {
	rs := job(t, 2)
	each(rs, func(i int, r *rank) {
		other := uint64(1 - i)
		ints := place(r.cMemory, int32(10+i), 0, int32(20+i), int32(30+i), 0)
		req := place(r.cMemory, Handle(0), Handle(0))
		st := place(r.cMemory, make([]int32, 2*statusSize/4)...)
		r.must("MPI_Isendrecv", ints, 1, typeInt, other, 4, ints+16, 1, typeInt, other, 4, world, req)
		r.must("MPI_Isendrecv_replace", ints+12, 1, typeInt, other, 5, other, 5, world, req+8)
		r.must("MPI_Sendrecv", ints, 1, typeInt, other, 6, ints+4, 1, typeInt, neg(-1), 6, world, st)
		r.must("MPI_Sendrecv_replace", ints+8, 1, typeInt, other, 7, other, 7, world, st)
		r.must("MPI_Waitall", 2, req, st)
		o := int32(1 - i)
		if v := slice[int32](ints, 5); !slices.Equal(v, []int32{int32(10 + i), 10 + o, 20 + o, 30 + o, 10 + o}) {
			t.Errorf("rank %d has %v", i, v)
		}
		if s := slice[int32](st, 16); s[statusSource] != o || s[statusTag] != 4 || s[8+statusTag] != 5 || s[8+statusBytesLow] != 4 {
			t.Errorf("statuses %v, want source %d, tags 4 and 5, 4 bytes", s, o)
		}
		pairs := place(r.cMemory, doubleAndInt{1, int32(i), 3})
		r.must("MPI_Sendrecv_replace", pairs, 1, typeDoubleInt, other, 8, other, 8, world, 0)
		if v := *at[doubleAndInt](pairs); v.I != o {
			t.Errorf("received %v, want %d", v, o)
		}
		r.must("MPI_Sendrecv", ints, 1, typeInt, neg(procNull), 1, pairs, 1, typeDoubleInt, neg(procNull), 1, world, st)
	})
}
