//go:build linux

package mpiabi

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/vmmc-go/vmmc/mpi"
)

func init() { wrongCalls = append(wrongCalls, wrongProbes) }

func wrongProbes(t *testing.T, r *rank) []wrongCall {
	out := place(r.cMemory, make([]int64, 8)...)
	null := place(r.cMemory, messageNull)
	page := forbidden(t)
	return []wrongCall{
		{"MPI_Probe", Args{3, 1, world, 0}, errRank},
		{"MPI_Probe", Args{0, neg(-7), world, 0}, errTag},
		{"MPI_Probe", Args{0, 1, uint64(commNull), 0}, errComm},
		{"MPI_Iprobe", Args{0, 1, uint64(commNull), out, 0}, errComm},
		{"MPI_Iprobe", Args{3, 1, world, out, 0}, errRank},
		{"MPI_Iprobe", Args{0, 1, world, 0, 0}, errArg},
		{"MPI_Mprobe", Args{3, 1, world, out, 0}, errRank},
		{"MPI_Mprobe", Args{0, 1, world, 0, 0}, errArg},
		{"MPI_Mprobe", Args{neg(procNull), 1, world, out, page}, errBuffer},
		{"MPI_Improbe", Args{0, neg(-7), world, out, out + 8, 0}, errTag},
		{"MPI_Improbe", Args{0, 1, world, 0, out + 8, 0}, errArg},
		{"MPI_Improbe", Args{0, 1, world, out, 0, 0}, errArg},
		{"MPI_Mrecv", Args{out, 1, typeInt, null, 0}, errRequest},
		{"MPI_Mrecv", Args{out, 1, typeInt, 0, 0}, errArg},
		{"MPI_Mrecv_c", Args{out, 1, 0, null, 0}, errType},
		{"MPI_Imrecv", Args{out, 1, typeInt, null, out}, errRequest},
		{"MPI_Imrecv", Args{out, neg(-1), typeInt, null, out}, errCount},
		{"MPI_Imrecv_c", Args{out, 1, typeInt, null, 0}, errArg},
	}
}

// A probe leaves the message.
func TestProbe(t *testing.T) {
	rs := job(t, 2)
	each(rs, func(i int, r *rank) {
		other := uint64(1 - i)
		ints := place(r.cMemory, int32(10+i), 0)
		flag := place(r.cMemory, int32(9))
		st := place(r.cMemory, make([]int32, statusSize/4)...)
		req := place(r.cMemory, requestNull)
		r.must("MPI_Iprobe", other, 3, world, flag, st)
		if v := *at[int32](flag); v != 0 {
			t.Errorf("MPI_Iprobe finds a message that no rank has sent: flag %d", v)
		}
		r.must("MPI_Isend", ints, 1, typeInt, other, 4, world, req)
		r.must("MPI_Probe", neg(-1), 4, world, st)
		if s := slice[int32](st, 4); s[statusSource] != int32(1-i) || s[statusTag] != 4 || s[statusBytesLow] != 4 {
			t.Errorf("MPI_Probe: status %v", s)
		}
		r.must("MPI_Iprobe", other, neg(-2), world, flag, st)
		r.must("MPI_Recv", ints+4, 1, typeInt, other, 4, world, st)
		r.must("MPI_Wait", req, 0)
		if f, v := *at[int32](flag), slice[int32](ints, 2); f != 1 || v[1] != int32(11-i) {
			t.Errorf("flag %d, received %d, want 1 and %d", f, v[1], 11-i)
		}
	})
}

// A matched probe takes the message: no other receive gets it.
func TestMatchedProbe(t *testing.T) {
	r := job(t, 1)[0]
	pairs := place(r.cMemory, doubleAndInt{1.5, 4, 0}, doubleAndInt{2.5, 5, 0}, doubleAndInt{}, doubleAndInt{})
	reqs := place(r.cMemory, requestNull, requestNull)
	ms := place(r.cMemory, Handle(7), Handle(7), Handle(7))
	flag := place(r.cMemory, int32(9))
	st := place(r.cMemory, make([]int32, statusSize/4)...)
	r.must("MPI_Improbe", 0, 1, world, flag, ms, st)
	if *at[int32](flag) != 0 {
		t.Error("MPI_Improbe takes a message that no rank has sent")
	}
	r.must("MPI_Isend", pairs, 1, typeDoubleInt, 0, 1, world, reqs)
	r.must("MPI_Isend", pairs+16, 1, typeDoubleInt, 0, 1, world, reqs+8)
	r.must("MPI_Mprobe", 0, 1, world, ms, st)
	r.must("MPI_Improbe", neg(-1), neg(-2), world, flag, ms+8, st)
	if s := slice[int32](st, 4); *at[int32](flag) != 1 || s[statusTag] != 1 || s[statusBytesLow] != 12 {
		t.Errorf("MPI_Improbe: flag %d, status %v, want 1, tag 1, 12 bytes", *at[int32](flag), s)
	}
	r.must("MPI_Mrecv", pairs+48, 1, typeDoubleInt, ms+8, 0)
	r.must("MPI_Mrecv", pairs+32, 1, typeDoubleInt, ms, st)
	if v := slice[doubleAndInt](pairs, 4); v[2] != v[0] || v[3] != v[1] {
		t.Errorf("received %v, want %v", v[2:], v[:2])
	}
	r.must("MPI_Mprobe", neg(procNull), 1, world, ms+16, st)
	if h := *at[Handle](ms + 16); h != messageNoProc {
		t.Errorf("the message of MPI_PROC_NULL is %#x, want %#x", h, messageNoProc)
	}
	r.must("MPI_Mrecv", 0, 0, typeInt, ms+16, st)
	if h := slice[Handle](ms, 3); !slices.Equal(h, []Handle{messageNull, messageNull, messageNull}) {
		t.Errorf("handles %#x, want MPI_MESSAGE_NULL", h)
	}
	if s := slice[int32](st, 4); s[statusSource] != procNull || s[statusTag] != -2 || s[statusBytesLow] != 0 {
		t.Errorf("status %v, want that of MPI_PROC_NULL", s)
	}
	r.must("MPI_Waitall", 2, reqs, 0)
}

// A message that a probe has taken is received beside other requests.
func TestMatchedReceive(t *testing.T) {
	rs := job(t, 2)
	each(rs, func(i int, r *rank) {
		const long = 200_000
		req := place(r.cMemory, requestNull, requestNull, requestNull)
		st := place(r.cMemory, make([]int32, 3*statusSize/4)...)
		if i == 0 {
			data := place(r.cMemory, make([]byte, long)...)
			slice[byte](data, long)[long-1] = 9
			r.must("MPI_Isend", data, long, 0x247, 1, 1, world, req)
			r.must("MPI_Recv", 0, 0, typeInt, 1, 2, world, 0)
			r.must("MPI_Send", data, 3, 0x247, 1, 3, world)
			r.must("MPI_Wait", req, 0)
			return
		}
		data := place(r.cMemory, make([]byte, long)...)
		m := place(r.cMemory, messageNull, messageNoProc)
		short := place(r.cMemory, int64(0))
		r.must("MPI_Irecv", short, 8, 0x247, 0, 3, world, req)
		r.must("MPI_Mprobe", 0, 1, world, m, 0)
		r.must("MPI_Imrecv", data, long, 0x247, m, req+8)
		r.must("MPI_Imrecv", 0, 0, typeInt, m+8, req+16)
		if h := slice[Handle](m, 2); h[0] != messageNull || h[1] != messageNull {
			t.Errorf("handles %#x after MPI_Imrecv, want MPI_MESSAGE_NULL", h)
		}
		r.must("MPI_Wait", req+16, st)
		if s := slice[int32](st, 2); s[0] != procNull || s[1] != -2 {
			t.Errorf("status %v, want that of MPI_PROC_NULL", s)
		}
		// The other request is over only when this one is.
		index := place(r.cMemory, int32(7))
		r.must("MPI_Waitany", 3, req, index, st)
		if s := slice[int32](st, 4); *at[int32](index) != 1 || s[statusTag] != 1 || s[statusBytesLow] != long || slice[byte](data, long)[long-1] != 9 {
			t.Errorf("request %d is over with status %v, last byte %d", *at[int32](index), s, slice[byte](data, long)[long-1])
		}
		r.must("MPI_Send", 0, 0, typeInt, 0, 2, world)
		r.must("MPI_Waitall", 3, req, st)
	})
}

// Of requests of both kinds the one that package mpi has may be over first.
func TestWaitPart(t *testing.T) {
	never := make(chan struct{})
	defer close(never)
	slow := inBackground(func() (mpi.Status, error) { <-never; return mpi.Status{}, nil })
	if err := waitPart(t.Context(), []part{slow, &mpi.Request{}}); err != nil {
		t.Error(err)
	}
	if _, ok, _ := slow.Test(); ok {
		t.Error("a call is over that has not ended")
	}
	if err := waitPart(t.Context(), []part{nil, slow, inBackground(func() (mpi.Status, error) { return mpi.Status{}, nil })}); err != nil {
		t.Error(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := waitPart(ctx, []part{slow}); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting with a context that has ended: %v", err)
	}
}
