//go:build linux

package mpiabi

import (
	"testing"

	"github.com/vmmc-go/vmmc/mpi"
)

func init() { wrongCalls = append(wrongCalls, wrongBuffers) }

func wrongBuffers(t *testing.T, r *rank) []wrongCall {
	out := place(r.cMemory, int64(0), 0)
	page := forbidden(t)
	return []wrongCall{
		{"MPI_Buffer_attach", Args{out, neg(-1)}, errCount},
		{"MPI_Buffer_attach_c", Args{0, 8}, errBuffer},
		{"MPI_Buffer_attach", Args{inPlace, 8}, errBuffer},
		{"MPI_Buffer_detach", Args{0, out}, errArg},
		{"MPI_Buffer_detach", Args{out, 0}, errArg},
		{"MPI_Buffer_detach", Args{page, out}, errBuffer},
		{"MPI_Buffer_detach_c", Args{out, out + 8}, errBuffer}, // None is attached.
		{"MPI_Buffer_flush", Args{1}, errIntern},
		{"MPI_Buffer_iflush", Args{0}, errArg},
		{"MPI_Buffer_iflush", Args{page}, errBuffer},
	}
}

// Buffered sends need no receiver, and fail when they take more than the buffer.
func TestBufferedSend(t *testing.T) {
	if mpi.BsendOverhead > 512 {
		t.Errorf("a message takes %d bytes beside its data, and MPI_BSEND_OVERHEAD is 512", mpi.BsendOverhead)
	}
	r := job(t, 1)[0]
	r.self.handler.Store(uint64(errorsReturn))
	const size = 2 * (8 + mpi.BsendOverhead)
	buf := place(r.cMemory, make([]byte, size)...)
	pairs := place(r.cMemory, 1.5, 2.5, 0, 0)
	reqs := place(r.cMemory, Handle(0), Handle(0))
	out := place(r.cMemory, int64(7), 7)
	r.must("MPI_Buffer_attach", buf, size)
	if code := r.call("MPI_Buffer_attach", buf, size); code != errBuffer {
		t.Errorf("a second buffer is attached: code %d, want %d", code, errBuffer)
	}
	for range 2 {
		r.must("MPI_Bsend", pairs, 1, 0x214, 0, 1, world)
		r.must("MPI_Ibsend", pairs+8, 1, 0x214, 0, 1, world, reqs)
		r.must("MPI_Wait", reqs, 0)
		if code := r.call("MPI_Bsend", buf, size, 0x247, 0, 1, world); code != errBuffer {
			t.Errorf("the message takes more than the buffer: code %d, want %d", code, errBuffer)
		}
		slice[float64](pairs, 4)[0]++ // What is sent is a copy.
		r.must("MPI_Recv", pairs+16, 1, 0x214, 0, 1, world, 0)
		r.must("MPI_Recv", pairs+24, 1, 0x214, 0, 1, world, 0)
		if v := slice[float64](pairs, 4); v[2] != v[0]-1 || v[3] != v[1] {
			t.Errorf("received %v, want %v and %v", v[2:], v[0]-1, v[1])
		}
		r.must("MPI_Buffer_flush")
	}
	r.must("MPI_Bsend_init", pairs, 1, 0x214, 0, 1, world, reqs+8)
	for range 3 {
		slice[float64](pairs, 4)[0]++
		r.must("MPI_Start", reqs+8)
		r.must("MPI_Wait", reqs+8, 0)
		r.must("MPI_Recv", pairs+16, 1, 0x214, 0, 1, world, 0)
		if v := slice[float64](pairs, 4); v[2] != v[0] {
			t.Errorf("received %v, want %v", v[2], v[0])
		}
	}
	r.must("MPI_Request_free", reqs+8)
	r.must("MPI_Buffer_detach_c", out, out+8)
	if v := slice[uint64](out, 2); v[0] != buf || v[1] != size {
		t.Errorf("detached %d bytes at %#x, want %d at %#x", v[1], v[0], size, buf)
	}
	// The library has as much memory as the messages take.
	r.must("MPI_Buffer_attach", bufferAutomatic, 1)
	for range 100 {
		r.must("MPI_Bsend", pairs, 1, 0x214, 0, 1, world)
	}
	for range 100 {
		r.must("MPI_Recv", pairs+16, 1, 0x214, 0, 1, world, 0)
	}
	r.must("MPI_Buffer_detach", out, out+8)
	if v := slice[uint64](out, 2); v[0] != bufferAutomatic || int32(v[1]) != 0 {
		t.Errorf("detached %d bytes at %#x, want none at MPI_BUFFER_AUTOMATIC", int32(v[1]), v[0])
	}
	r.must("MPI_Buffer_attach", 0, 0)
	r.must("MPI_Buffer_flush")
	if code := r.call("MPI_Bsend", pairs, 1, 0x214, 0, 1, world); code != errBuffer {
		t.Errorf("the buffer has no bytes: code %d, want %d", code, errBuffer)
	}
	r.must("MPI_Buffer_detach", out, out+8)
}

// A flush is over when the messages have left the buffer: not before a receive takes a long one.
func TestBufferFlush(t *testing.T) {
	rs := job(t, 2)
	each(rs, func(i int, r *rank) {
		const long = 300_000
		data := place(r.cMemory, make([]byte, long)...)
		req, flag := place(r.cMemory, requestNull), place(r.cMemory, int32(7))
		if i == 1 {
			r.must("MPI_Recv", 0, 0, typeInt, 0, 2, world, 0)
			r.must("MPI_Recv", data, long, 0x247, 0, 1, world, 0)
			if v := slice[byte](data, long)[long-1]; v != 9 {
				t.Errorf("the last byte is %d, want 9", v)
			}
			return
		}
		slice[byte](data, long)[long-1] = 9
		r.must("MPI_Buffer_attach", bufferAutomatic, 0)
		r.must("MPI_Bsend", data, long, 0x247, 1, 1, world)
		slice[byte](data, long)[long-1] = 0
		r.must("MPI_Buffer_iflush", req)
		r.must("MPI_Test", req, flag, 0)
		if *at[int32](flag) != 0 {
			t.Error("MPI_Buffer_iflush is over, and no receive has taken the message")
		}
		r.must("MPI_Send", 0, 0, typeInt, 1, 2, world)
		r.must("MPI_Wait", req, 0)
		r.must("MPI_Buffer_detach", req, flag)
	})
}
