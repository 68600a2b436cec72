//go:build linux

package mpiabi

import (
	"context"
	"errors"
	"math"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/mpi"
)

// Each class of package mpi that has a class in the ABI is that one.
func TestClasses(t *testing.T) {
	known := 0
	for c := range mpi.Class(1000) {
		if strings.HasPrefix(c.Error(), "MPI error class") {
			continue // There is no such class.
		}
		known++
		if _, ok := classes[c]; !ok {
			t.Errorf("%v has no class in the ABI", c)
		}
	}
	if known != len(classes) {
		t.Errorf("package mpi has %d classes, and the ABI's table %d", known, len(classes))
	}
	for class, want := range map[mpi.Class]int32{mpi.ErrPort: 43, mpi.ErrName: 38, mpi.ErrService: 51, mpi.ErrSpawn: 53} {
		if got := classOf(&mpi.Error{Class: class, Err: errors.New("test")}); got != want {
			t.Errorf("%v is %d, want %d", class, got, want)
		}
	}
}

// An error of a call without a communicator names the process, and the handler that it goes to.
func TestErrorWithoutCommunicator(t *testing.T) {
	rs := job(t, 2)
	r := rs[1]
	r.call("MPI_Type_commit", place(r.cMemory, datatypeNull))
	r.ctx = context.Background() // The rank has not ended, so it finalizes for the test.
	got := r.stderr.String()
	if !strings.HasPrefix(got, "mpi: rank 1 of MPI_COMM_WORLD: MPI_Type_commit, argument ") ||
		!strings.Contains(got, "errors of MPI_COMM_SELF, which has those of calls without a communicator, are fatal") {
		t.Errorf("MPI_Type_commit of MPI_DATATYPE_NULL at rank 1 says %q", got)
	}
}

// pages are three pages of memory, of which the middle one is not mapped, and one that can only be read.
func pages(t *testing.T) (hole, constant uint64, size int) {
	t.Helper()
	size = os.Getpagesize()
	var at [2]uint64
	for i, prot := range []int{syscall.PROT_READ | syscall.PROT_WRITE, syscall.PROT_READ} {
		b, err := syscall.Mmap(-1, 0, 3*size, prot, syscall.MAP_PRIVATE|syscall.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		at[i] = address(&b[0])
		if i == 0 {
			if err := syscall.Mprotect(b[size:2*size], syscall.PROT_NONE); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() {
			if err := syscall.Munmap(b); err != nil {
				t.Error(err)
			}
		})
	}
	return at[0], at[1], size
}

// An address where a program has no memory is an error of the call, whatever the address is and
// wherever in the buffer the memory is missing.
func TestBadAddresses(t *testing.T) {
	r := job(t, 1)[0]
	r.self.handler.Store(uint64(errorsReturn))
	hole, constant, page := pages(t)
	world, mem, all := uint64(commWorld), place(r.cMemory, make([]int64, 8)...), uint64(3*page)
	two := place(r.cMemory, Handle(0x209), Handle(0x209))
	for _, addr := range []uint64{3, 8, 4095, math.MaxUint64, math.MaxUint64 - 7, 1 << 63, 1 << 56, 1 << 47} {
		for _, c := range []struct {
			name string
			args Args
		}{
			{"MPI_Send", Args{addr, 1, 0x209, 0, 0, world}},
			{"MPI_Recv", Args{addr, 1, 0x209, 0, 0, world, 0}},
			{"MPI_Irecv", Args{addr, 1, 0x209, 0, 0, world, mem}},
			{"MPI_Irecv", Args{mem, 1, 0x209, 0, 0, world, addr}},
			{"MPI_Iprobe", Args{neg(-1), neg(-2), world, addr, 0}},
			{"MPI_Bcast", Args{addr, 1, 0x209, 0, world}},
			{"MPI_Allreduce", Args{mem, addr, 1, 0x209, uint64(opSum), world}},
			{"MPI_Alltoallw", Args{mem, addr, mem, two, mem, mem, mem, two, world}},
			{"MPI_Waitall", Args{2, addr, 0}},
			{"MPI_Waitall", Args{math.MaxInt32, mem, 0}},
			{"MPI_Type_indexed", Args{1, addr, mem, 0x209, mem}},
			{"MPI_Type_create_struct", Args{1, mem, mem, addr, mem}},
			{"MPI_Type_size", Args{0x209, addr}},
			{"MPI_Pack", Args{mem, 1, 0x209, addr, 64, place(r.cMemory, int32(0)), world}},
			{"MPI_Unpack", Args{addr, 64, place(r.cMemory, int32(0)), mem, 1, 0x209, world}},
			{"MPI_Win_create", Args{addr, 8, 1, uint64(infoNull), world, mem}},
			{"MPI_Comm_set_name", Args{world, addr}},
			{"MPI_Comm_get_name", Args{world, addr, mem}},
			{"MPI_Get_count", Args{addr, 0x209, mem}},
			{"MPI_Status_set_elements", Args{addr, 0x209, 1}},
			{"MPI_Group_incl", Args{uint64(groupEmpty), 1, addr, mem}},
			{"MPI_Info_create", Args{addr}},
			{"MPI_Error_string", Args{0, addr, mem}},
		} {
			if code := r.call(c.name, c.args...); code != errBuffer && code != errArg && code != errRank {
				t.Errorf("%s%v: code %d, want %d", c.name, c.args, code, errBuffer)
			}
		}
	}
	for _, c := range []struct {
		name string
		args Args
	}{
		{"MPI_Send", Args{hole, all, 0x247, 0, 0, world}},
		{"MPI_Isend", Args{hole, all, 0x247, 0, 0, world, mem}},
		{"MPI_Recv", Args{hole, all, 0x247, 0, 0, world, 0}},
		{"MPI_Recv", Args{constant, all, 0x247, 0, 0, world, 0}},
		{"MPI_Irecv", Args{constant, 1, 0x247, 0, 0, world, mem}},
		{"MPI_Bcast", Args{hole, all, 0x247, 0, world}},
		{"MPI_Allreduce", Args{hole, constant, 1, 0x209, uint64(opSum), world}},
		{"MPI_Allreduce", Args{constant, hole, all / 4, 0x209, uint64(opSum), world}},
		{"MPI_Win_create", Args{hole, all, 1, uint64(infoNull), world, mem}},
		{"MPI_Sendrecv", Args{constant, 1, 0x247, 0, 0, constant, 1, 0x247, 0, 0, world, 0}},
	} {
		if code := r.call(c.name, c.args...); code != errBuffer {
			t.Errorf("%s%v: code %d, want %d", c.name, c.args, code, errBuffer)
		}
	}
	// What a call only reads may be constant, also where its prototype has no const.
	r.must("MPI_Bcast", constant, all, 0x247, 0, world)
	r.must("MPI_Sendrecv", constant, 4, 0x247, 0, 0, mem, 4, 0x247, 0, 0, world, 0)
	if *r.status != -1 || r.stderr.Len() > 0 {
		t.Errorf("the job ends with status %d, %q", *r.status, r.stderr)
	}
}

// A call whose thread has left it is over. A receive takes no message then, and no error handler is called.
func TestCallLeft(t *testing.T) {
	r := job(t, 1)[0]
	r.world.handler.Store(uint64(errorsAreFatal))
	world := uint64(commWorld)
	buf := place(r.cMemory, int32(7), int32(8))
	req := place(r.cMemory, make([]Handle, 1)...)
	for _, c := range []struct {
		name string
		args Args
	}{
		{"MPI_Recv", Args{buf, 1, 0x209, 0, 5, world, 0}},
		{"MPI_Probe", Args{0, 5, world, 0}},
		{"MPI_Ssend", Args{buf, 1, 0x209, 0, 6, world}},
		{"MPI_Sendrecv", Args{0, 0, 0x209, neg(procNull), 0, buf, 1, 0x209, 0, 5, world, 0}},
	} {
		ctx, left := context.WithCancel(r.Context())
		over := make(chan int32)
		go func() { over <- r.Call(ctx, Number(c.name), c.args) }()
		select {
		case code := <-over:
			t.Fatalf("%s returns %d before any message has come", c.name, code)
		case <-time.After(20 * time.Millisecond):
		}
		left()
		if code := <-over; code == errSuccess {
			t.Errorf("%s that was left has succeeded", c.name)
		}
	}
	r.must("MPI_Irecv", buf+4, 1, 0x209, 0, 5, world, req)
	r.must("MPI_Send", place(r.cMemory, int32(9)), 1, 0x209, 0, 5, world)
	r.must("MPI_Wait", req, 0)
	if v := slice[int32](buf, 2); v[0] != 7 || v[1] != 9 {
		t.Errorf("the buffer of the receive that was left has %d, and that of a later one %d, want 7 and 9", v[0], v[1])
	}
	if *r.status != -1 || r.stderr.Len() > 0 {
		t.Errorf("the job ends with status %d, %q: no thread is in the call", *r.status, r.stderr)
	}
	r.world.handler.Store(uint64(errorsReturn))
}
