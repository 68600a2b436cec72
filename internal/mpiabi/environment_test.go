//go:build linux

package mpiabi

import (
	"os"
	"slices"
	"testing"
)

func init() { wrongCalls = append(wrongCalls, wrongEnvironment) }

func wrongEnvironment(t *testing.T, r *rank) []wrongCall {
	out := place(r.cMemory, make([]byte, maxProcessorName)...)
	page := forbidden(t)
	r.must("MPI_Info_create", out)
	in := *at[uint64](out)
	r.must("MPI_Info_set", in, text(r.cMemory, "mpi_integer_size"), text(r.cMemory, "8"))
	return []wrongCall{
		{"MPI_Get_processor_name", Args{0, out}, errArg},
		{"MPI_Get_processor_name", Args{page, out}, errBuffer},
		{"MPI_Get_processor_name", Args{out, 0}, errArg},
		{"MPI_Abi_get_info", Args{0}, errArg},
		{"MPI_Abi_get_fortran_info", Args{page}, errBuffer},
		{"MPI_Abi_set_fortran_info", Args{uint64(infoNull)}, errInfo},
		{"MPI_Abi_set_fortran_info", Args{in}, errABI},
		{"MPI_Abi_get_fortran_booleans", Args{3, out, out, out}, errArg},
		{"MPI_Abi_get_fortran_booleans", Args{4, out, out, 0}, errArg},
		{"MPI_Abi_set_fortran_booleans", Args{0, out, out}, errArg},
		{"MPI_Abi_set_fortran_booleans", Args{4, 0, out}, errArg},
		{"MPI_Abi_set_fortran_booleans", Args{4, out, page}, errBuffer},
	}
}

func TestProcessorName(t *testing.T) {
	r := job(t, 1)[0]
	name := place(r.cMemory, make([]byte, maxProcessorName)...)
	n := place(r.cMemory, int32(0))
	r.must("MPI_Get_processor_name", name, n)
	want, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if got := cStringAt(name, maxProcessorName); got != want || int(*at[int32](n)) != len(want) {
		t.Errorf("%q of %d characters, want %q", got, *at[int32](n), want)
	}
}

// The library says how large its types are, and takes values of Fortran's LOGICAL once.
func TestABIInfo(t *testing.T) {
	r := newRank(t)
	out, fortran := place(r.cMemory, Handle(0)), place(r.cMemory, Handle(0))
	buf := place(r.cMemory, make([]byte, 64)...)
	flag := place(r.cMemory, int32(7))
	r.must("MPI_Abi_get_info", out)
	r.must("MPI_Abi_get_fortran_info", fortran)
	for _, c := range []struct {
		info      uint64
		key, want string
	}{
		{*at[uint64](out), "mpi_aint_size", "8"},
		{*at[uint64](out), "mpi_offset_size", "8"},
		{*at[uint64](fortran), "mpi_integer_size", "4"},
		{*at[uint64](fortran), "mpi_double_precision_size", "8"},
		{*at[uint64](fortran), "mpi_real16_supported", "true"},
	} {
		r.must("MPI_Info_get", c.info, text(r.cMemory, c.key), 63, buf, flag)
		if got := cStringAt(buf, 64); *at[int32](flag) != 1 || got != c.want {
			t.Errorf("%s: flag %d, %q, want %q", c.key, *at[int32](flag), got, c.want)
		}
	}
	r.must("MPI_Abi_set_fortran_info", *at[uint64](fortran))
	values := place(r.cMemory, int32(-1), 5, 0, 0)
	r.must("MPI_Abi_get_fortran_booleans", 4, values+8, values+12, flag)
	if *at[int32](flag) != 0 {
		t.Error("values of LOGICAL are set that the program has not set")
	}
	r.must("MPI_Abi_set_fortran_booleans", 4, values, values+4)
	r.must("MPI_Abi_get_fortran_booleans", 4, values+8, values+12, flag)
	if v := slice[int32](values, 4); *at[int32](flag) != 1 || !slices.Equal(v[2:], v[:2]) {
		t.Errorf("flag %d, values %v, want 1, and %v", *at[int32](flag), v[2:], v[:2])
	}
	r.self.handler.Store(uint64(errorsReturn))
	if code := r.call("MPI_Abi_set_fortran_booleans", 4, values, values+4); code != errABI {
		t.Errorf("they are set again: code %d, want %d", code, errABI)
	}
	for _, null := range []Args{{4, 0, values, flag}, {4, values, 0, flag}} {
		if code := r.call("MPI_Abi_get_fortran_booleans", null...); code != errArg {
			t.Errorf("MPI_Abi_get_fortran_booleans%v: code %d, want %d", null, code, errArg)
		}
	}
}
