//go:build linux

package mpiabi

import "testing"

func init() {
	wrongCalls = append(wrongCalls, func(_ *testing.T, r *rank) []wrongCall {
		out, none := place(r.cMemory, Handle(0)), neg(undefined)
		r.must("MPI_Type_create_f90_real", 15, 307, out)
		fixed := place(r.cMemory, *at[Handle](out))
		return []wrongCall{
			{"MPI_Type_create_f90_real", Args{none, none, out}, errArg},
			{"MPI_Type_create_f90_real", Args{34, none, out}, errArg},
			{"MPI_Type_create_f90_real", Args{neg(-1), 1, out}, errArg},
			{"MPI_Type_create_f90_real", Args{6, 37, 0}, errArg},
			{"MPI_Type_create_f90_complex", Args{none, none, out}, errArg},
			{"MPI_Type_create_f90_complex", Args{1, 4932, out}, errArg},
			{"MPI_Type_create_f90_integer", Args{none, out}, errArg},
			{"MPI_Type_create_f90_integer", Args{39, out}, errArg},
			{"MPI_Type_create_f90_integer", Args{9, 0}, errArg},
			{"MPI_Type_free", Args{fixed}, errType},
		}
	})
}

// The smallest number that has a precision and a range is taken, and the datatype knows what it was asked for.
func TestF90Types(t *testing.T) {
	r := job(t, 1)[0]
	none := neg(undefined)
	out := place(r.cMemory, int32(0), 0, 0, 0)
	for _, c := range []struct {
		call     string
		args     []uint64
		size     int32
		combiner int32
	}{
		{"MPI_Type_create_f90_real", []uint64{6, none}, 4, combinerF90Real},
		{"MPI_Type_create_f90_real", []uint64{none, 37}, 4, combinerF90Real},
		{"MPI_Type_create_f90_real", []uint64{7, 30}, 8, combinerF90Real},
		{"MPI_Type_create_f90_real", []uint64{6, 38}, 8, combinerF90Real},
		{"MPI_Type_create_f90_real", []uint64{15, 308}, 16, combinerF90Real},
		{"MPI_Type_create_f90_complex", []uint64{6, 37}, 8, combinerF90Complex},
		{"MPI_Type_create_f90_complex", []uint64{15, none}, 16, combinerF90Complex},
		{"MPI_Type_create_f90_integer", []uint64{2}, 1, combinerF90Integer},
		{"MPI_Type_create_f90_integer", []uint64{3}, 2, combinerF90Integer},
		{"MPI_Type_create_f90_integer", []uint64{9}, 4, combinerF90Integer},
		{"MPI_Type_create_f90_integer", []uint64{10}, 8, combinerF90Integer},
		{"MPI_Type_create_f90_integer", []uint64{38}, 16, combinerF90Integer},
	} {
		h := r.made(c.call, c.args...)
		if again := r.made(c.call, c.args...); again != h {
			t.Errorf("%s%v gives %#x, and then %#x", c.call, c.args, h, again)
		}
		r.must("MPI_Type_size", h, out)
		r.same(c.call+": the size", slice[int32](out, 1), c.size)
		r.must("MPI_Type_get_envelope", h, out, out+4, out+8, out+12)
		r.same(c.call+": the envelope", slice[int32](out, 4), int32(len(c.args)), 0, 0, c.combiner)
		r.must("MPI_Type_get_contents", h, uint64(len(c.args)), 0, 0, out, 0, 0)
		for i, v := range c.args {
			r.same(c.call+": an argument", slice[int32](out, 4)[i:i+1], int32(v))
		}
	}
	// It needs no commit, and can be reduced.
	double := r.made("MPI_Type_create_f90_real", 15, 307)
	values := place(r.cMemory, 1.5, 0)
	r.must("MPI_Allreduce", values, values+8, 1, double, uint64(opSum), world)
	if got := *at[float64](values + 8); got != 1.5 {
		t.Errorf("the sum is %v, want 1.5", got)
	}
	// A type that is made of one tells of it by the same handle, which is not freed.
	pair := r.made("MPI_Type_contiguous", 2, double)
	types := place(r.cMemory, Handle(0))
	r.must("MPI_Type_get_contents", pair, 1, 0, 1, out, 0, types)
	if got := *at[Handle](types); uint64(got) != double {
		t.Errorf("the type is made of %#x, want %#x", got, double)
	}
}
