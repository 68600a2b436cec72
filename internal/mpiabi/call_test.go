//go:build linux

package mpiabi

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/mpi"
)

// neg is a negative int as an argument.
func neg(v int) uint64 { return uint64(int64(v)) }

// Package mpi's values are the ABI's where this package passes them on.
func TestValues(t *testing.T) {
	for _, c := range []struct{ got, want int }{
		{mpi.AnySource, -1},
		{mpi.AnyTag, -2},
		{mpi.ProcNull, procNull},
		{mpi.Undefined, undefined},
	} {
		if c.got != c.want {
			t.Errorf("package mpi has %d, the ABI %d", c.got, c.want)
		}
	}
}

// Datatypes of a fixed size have its logarithm in their handle.
func TestNamedDatatypes(t *testing.T) {
	for h, d := range named {
		if _, extent := d.d.Extent(); d.d.Size() != d.size || extent != d.extent {
			t.Errorf("%s: %d bytes, extent %d, want %d and %d", d.name, d.d.Size(), extent, d.size, d.extent)
		}
		if h >= 0x240 && h < 0x280 || h >= 0x2c0 {
			if want := 1 << (h >> 3 & 7); d.size != want {
				t.Errorf("%s: %d bytes, and handle %#x says %d", d.name, d.size, uint64(h), want)
			}
		}
	}
}

func TestBeforeInit(t *testing.T) {
	r := newRank(t)
	flag := place(r.cMemory, int32(7))
	if p := r.Phase(); p != phaseBefore {
		t.Errorf("before MPI_Init: phase %d, want %d", p, phaseBefore)
	}
	if code := r.call("MPI_Comm_rank", uint64(commWorld), flag); code != errOther {
		t.Errorf("MPI_Comm_rank before MPI_Init: code %d, want %d", code, errOther)
	}
	if *r.status != 1 || !strings.Contains(r.stderr.String(), "MPI_Comm_rank: MPI is not initialized") || strings.Count(r.stderr.String(), "\n") != 1 {
		t.Errorf("the job ends with status %d and %q, want 1 and a line that names the call", *r.status, r.stderr)
	}
}

// A program that nothing has launched is a job of one rank.
func TestAlone(t *testing.T) {
	r := newRank(t)
	out := place(r.cMemory, int32(0), int32(7), int32(0), int32(0))
	r.must("MPI_Init_thread", 0, 0, threadFunneled, out)
	r.must("MPI_Comm_rank", uint64(commWorld), out+4)
	r.must("MPI_Comm_size", uint64(commSelf), out+8)
	r.must("MPI_Query_thread", out+12)
	running := r.Phase()
	r.must("MPI_Finalize")
	if running != phaseRunning || r.Phase() != phaseFinalized {
		t.Errorf("phases %d and %d, want %d and %d", running, r.Phase(), phaseRunning, phaseFinalized)
	}
	want := []int32{threadMultiple, 0, 1, threadMultiple}
	for i, v := range slice[int32](out, len(want)) {
		if v != want[i] {
			t.Errorf("result %d is %d, want %d", i, v, want[i])
		}
	}
	if code := r.call("MPI_Init", 0, 0); code != errOther || *r.status != 1 {
		t.Errorf("MPI_Init after MPI_Finalize: code %d, status %d, want %d and 1", code, *r.status, errOther)
	}
}

func TestSendRecv(t *testing.T) {
	rs := job(t, 2)
	type doubleInt struct {
		V float64
		I int32
		_ int32
	}
	each(rs, func(i int, r *rank) {
		ints := place(r.cMemory, make([]int32, 3)...)
		pairs := place(r.cMemory, make([]doubleInt, 2)...)
		st := place(r.cMemory, 9, 9, 9, 9, 9, 9, 9, int32(9))
		if i == 0 {
			copy(slice[int32](ints, 3), []int32{1, -2, math.MaxInt32})
			copy(slice[doubleInt](pairs, 2), []doubleInt{{1.5, 4, 0}, {-2.5, 5, 0}})
			r.must("MPI_Send", ints, 3, 0x209, 1, 7, uint64(commWorld))
			r.must("MPI_Send_c", pairs, 2, 0x229, 1, 8, uint64(commWorld))
			r.must("MPI_Send", 0, 0, 0x209, 1, 9, uint64(commWorld))
			r.must("MPI_Send", ints, 3, 0x209, neg(procNull), 9, uint64(commWorld))
			return
		}
		r.must("MPI_Recv", ints, 3, 0x209, neg(-1), neg(-2), uint64(commWorld), st)
		if v := slice[int32](ints, 3); v[0] != 1 || v[1] != -2 || v[2] != math.MaxInt32 {
			t.Errorf("received %v", v)
		}
		if s := slice[int32](st, 8); s[statusSource] != 0 || s[statusTag] != 7 || s[statusBytesLow] != 12 || s[statusError] != 9 {
			t.Errorf("the status is %v, want source 0, tag 7, 12 bytes, and the error as it was", s)
		}
		r.must("MPI_Recv_c", pairs, 2, 0x229, 0, 8, uint64(commWorld), 0)
		if v := slice[doubleInt](pairs, 2); v[0].V != 1.5 || v[0].I != 4 || v[1].V != -2.5 || v[1].I != 5 {
			t.Errorf("received %v", v)
		}
		r.must("MPI_Recv", 0, 0, 0x209, 0, 9, uint64(commWorld), st)
		r.must("MPI_Recv", ints, 3, 0x209, neg(procNull), 9, uint64(commWorld), st)
		if s := slice[int32](st, 8); s[statusSource] != procNull || s[statusTag] != mpi.AnyTag || s[statusBytesLow] != 0 {
			t.Errorf("the status is %v, want that of MPI_PROC_NULL", s)
		}
	})
}

// wrongCall is a call with a wrong argument, and its error.
type wrongCall struct {
	call string
	args Args
	want int32
}

// wrongCalls are those that other files of tests add to the table.
var wrongCalls []func(t *testing.T, r *rank) []wrongCall

// Each registered call with each wrong argument.
func TestWrongArguments(t *testing.T) {
	r := job(t, 1)[0]
	world := uint64(commWorld)
	buf := place(r.cMemory, make([]int32, 8)...)
	out := place(r.cMemory, int64(0))
	foreign := uint64(r.handles.add(&datatype{name: "foreign", size: 4, extent: 4}))
	page := forbidden(t)
	r.must("MPI_Comm_group", world, out)
	group := uint64(*at[Handle](out))
	tried := map[string]bool{}
	rows := []wrongCall{
		{"MPI_Init", Args{0, 0}, errOther},
		{"MPI_Init_thread", Args{0, 0, threadSingle, out}, errOther},
		{"MPI_Init_thread", Args{0, 0, 5, out}, errArg},
		{"MPI_Init_thread", Args{0, 0, threadSingle, 0}, errArg},
		{"MPI_Finalize", Args{1}, errIntern},
		{"MPI_Query_thread", Args{0}, errArg},
		{"MPI_Abort", Args{foreign, 1}, errComm},
		{"MPI_Comm_rank", Args{uint64(commNull), out}, errComm},
		{"MPI_Comm_rank", Args{foreign, out}, errComm},
		{"MPI_Comm_rank", Args{world, 0}, errArg},
		{"MPI_Comm_rank", Args{world, page}, errBuffer},
		{"MPI_Comm_size", Args{0, out}, errComm},
		{"MPI_Comm_size", Args{world, 0}, errArg},
		{"MPI_Comm_dup", Args{foreign, out}, errComm},
		{"MPI_Comm_dup", Args{world, 0}, errArg},
		{"MPI_Comm_dup", Args{world, page}, errBuffer},
		{"MPI_Comm_split", Args{world, neg(-1), 0, out}, errArg},
		{"MPI_Comm_split", Args{uint64(commNull), 0, 0, out}, errComm},
		{"MPI_Comm_free", Args{0}, errArg},
		{"MPI_Comm_free", Args{page}, errBuffer},
		{"MPI_Comm_free", Args{place(r.cMemory, commWorld)}, errComm},
		{"MPI_Barrier", Args{uint64(commNull)}, errComm},
		{"MPI_Comm_group", Args{foreign, out}, errComm},
		{"MPI_Comm_group", Args{world, page}, errBuffer},
		{"MPI_Group_size", Args{uint64(groupNull), out}, errGroup},
		{"MPI_Group_rank", Args{foreign, out}, errGroup},
		{"MPI_Group_incl", Args{uint64(groupEmpty), 1, buf, out}, errArg},
		{"MPI_Group_incl", Args{group, 1, page, out}, errBuffer},
		{"MPI_Group_incl", Args{group, 1, place(r.cMemory, int32(5)), out}, errRank},
		{"MPI_Group_excl", Args{group, neg(-1), buf, out}, errArg},
		{"MPI_Group_union", Args{group, foreign, out}, errGroup},
		{"MPI_Group_intersection", Args{foreign, group, out}, errGroup},
		{"MPI_Group_difference", Args{group, group, 0}, errArg},
		{"MPI_Group_free", Args{0}, errArg},
		{"MPI_Group_free", Args{place(r.cMemory, foreign)}, errGroup},
		{"MPI_Send", Args{0, 1, 0x209, 0, 0, world}, errBuffer},
		{"MPI_Send", Args{inPlace, 1, 0x209, 0, 0, world}, errBuffer},
		{"MPI_Send", Args{page, 1, 0x209, 0, 0, world}, errBuffer},
		{"MPI_Send", Args{buf, neg(-1), 0x209, 0, 0, world}, errCount},
		{"MPI_Send_c", Args{buf, math.MaxInt64, 0x209, 0, 0, world}, errCount},
		{"MPI_Send", Args{buf, 1, uint64(datatypeNull), 0, 0, world}, errType},
		{"MPI_Send", Args{buf, 1, 0x209 + 1<<20, 0, 0, world}, errType},
		{"MPI_Send", Args{buf, 1, 0x209, 1, 0, world}, errRank},
		{"MPI_Send", Args{buf, 1, 0x209, neg(-1), 0, world}, errRank},
		{"MPI_Send", Args{buf, 1, 0x209, 0, neg(-1), world}, errTag},
		{"MPI_Send", Args{buf, 1, 0x209, 0, 0, uint64(commNull)}, errComm},
		{"MPI_Recv", Args{0, 1, 0x209, 0, 0, world, 0}, errBuffer},
		{"MPI_Recv", Args{buf, neg(-1), 0x209, 0, 0, world, 0}, errCount},
		{"MPI_Recv", Args{buf, 1, 1, 0, 0, world, 0}, errType},
		{"MPI_Recv", Args{buf, 1, 0x209, 5, 0, world, 0}, errRank},
		{"MPI_Recv", Args{buf, 1, 0x209, 0, neg(-5), world, 0}, errTag},
		{"MPI_Recv_c", Args{buf, 1, 0x209, 0, 0, foreign, 0}, errComm},
	}
	for _, more := range wrongCalls {
		rows = append(rows, more(t, r)...)
	}
	for _, c := range rows {
		tried[strings.TrimSuffix(c.call, "_c")] = true
		// A failure that no communicator has goes to MPI_COMM_SELF.
		r.self.handler.Store(uint64(errorsReturn))
		if code := r.call(c.call, c.args...); code != c.want {
			t.Errorf("%s%v: code %d, want %d", c.call, c.args, code, c.want)
		}
	}
	if *r.status != -1 || r.stderr.Len() > 0 {
		t.Errorf("the job ends with status %d, %q: errors are returned here", *r.status, r.stderr)
	}
	for name := range entries {
		if !tried[strings.TrimSuffix(name, "_c")] {
			t.Errorf("%s is called with no wrong argument: give it a row", name)
		}
	}
	for _, number := range []int{-1, len(prototypes)} {
		if code := r.Call(r.Context(), number, nil); code != errIntern {
			t.Errorf("call %d: code %d, want %d", number, code, errIntern)
		}
	}
}

func TestUnsupported(t *testing.T) {
	r := job(t, 1)[0]
	r.self.handler.Store(uint64(errorsReturn))
	for name, want := range map[string]int32{"MPI_Register_datarep": errUnsupp, "MPI_T_init_thread": errToolNotSupported} {
		p := prototypes[Number(name)]
		if code := r.Call(r.Context(), Number(name), make(Args, len(p.params))); code != want {
			t.Errorf("%s: code %d, want %d", name, code, want)
		}
	}
}

func TestPanic(t *testing.T) {
	r := newRank(t)
	r.self.handler.Store(uint64(errorsReturn))
	r.begin = nil // MPI_Init calls it.
	if code := r.call("MPI_Init", 0, 0); code != errIntern {
		t.Errorf("a call that panics: code %d, want %d", code, errIntern)
	}
}

func TestFatal(t *testing.T) {
	r := job(t, 1)[0]
	r.world.handler.Store(uint64(errorsAreFatal))
	r.call("MPI_Send", 0, 0, 0x209, 9, 0, uint64(commWorld))
	want := "mpi: rank 0 of MPI_COMM_WORLD: MPI_Send, argument dest: "
	if *r.status != 1 || !strings.HasPrefix(r.stderr.String(), want) || strings.Count(r.stderr.String(), "\n") != 1 {
		t.Errorf("status %d, %q, want 1 and one line that begins with %q", *r.status, r.stderr, want)
	}
	said := r.stderr.Len()
	r.call("MPI_Send", 0, 0, 0x209, 9, 0, uint64(commWorld))
	if r.stderr.Len() != said {
		t.Errorf("a second error says more, while the job ends: %q", r.stderr)
	}
	if r.ctx.Err() == nil {
		t.Error("calls that wait go on after the job's end")
	}
	// The rank has not ended, so it finalizes for the test.
	r.ctx = context.Background()
}

func TestAbort(t *testing.T) {
	for code, want := range map[int]int{3: 3, 0: 1, 256: 1, -1: 255} {
		r := newRank(t)
		r.must("MPI_Init", 0, 0)
		r.must("MPI_Abort", uint64(commWorld), neg(code))
		if *r.status != want || !strings.Contains(r.stderr.String(), "MPI_Abort with code") {
			t.Errorf("MPI_Abort(%d): status %d, %q, want %d", code, *r.status, r.stderr, want)
		}
		r.ctx = context.Background() // The program has not ended, so it finalizes.
		r.must("MPI_Finalize")
	}
}

// A handler of the program gets the addresses of its communicator's handle and of the code.
func TestUserHandler(t *testing.T) {
	r := job(t, 1)[0]
	h := r.handles.add(&userHandler{"MPI_Comm", 0x1234})
	r.world.handler.Store(uint64(h))
	calls := 0
	r.config.Callback = func(function uint64, args ...uint64) uint64 {
		calls++
		if len(args) != 2 || function != 0x1234 || *at[Handle](args[0]) != commWorld || *at[int32](args[1]) != errRank {
			t.Errorf("function %#x is called with %v", function, args)
		}
		return 0
	}
	if code := r.call("MPI_Send", 0, 0, 0x209, 9, 0, uint64(commWorld)); code != errRank || calls != 1 {
		t.Errorf("code %d, %d calls of the handler, want %d and 1", code, calls, errRank)
	}
	if *r.status != -1 {
		t.Errorf("the job ends with status %d", *r.status)
	}
}
