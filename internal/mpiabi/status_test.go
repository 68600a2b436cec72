//go:build linux

package mpiabi

import (
	"slices"
	"testing"
)

func init() { wrongCalls = append(wrongCalls, wrongStatuses) }

func wrongStatuses(t *testing.T, r *rank) []wrongCall {
	out := place(r.cMemory, int64(0))
	st := place(r.cMemory, make([]int32, statusSize/4)...)
	foreign := uint64(r.handles.add(&comm{}))
	page := forbidden(t)
	rows := []wrongCall{
		{"MPI_Test_cancelled", Args{0, out}, errArg},
		{"MPI_Test_cancelled", Args{page, out}, errBuffer},
		{"MPI_Test_cancelled", Args{st, 0}, errArg},
		{"MPI_Status_set_cancelled", Args{0, 1}, errArg},
		{"MPI_Status_set_cancelled", Args{page, 1}, errBuffer},
	}
	for _, call := range []string{"MPI_Status_get_source", "MPI_Status_get_tag", "MPI_Status_get_error"} {
		rows = append(rows, wrongCall{call, Args{0, out}, errArg}, wrongCall{call, Args{st, page}, errBuffer})
	}
	for _, call := range []string{"MPI_Status_set_source", "MPI_Status_set_tag", "MPI_Status_set_error"} {
		rows = append(rows, wrongCall{call, Args{0, 1}, errArg}, wrongCall{call, Args{page, 1}, errBuffer})
	}
	for _, call := range []string{"MPI_Get_count", "MPI_Get_count_c", "MPI_Get_elements", "MPI_Get_elements_x"} {
		rows = append(rows, wrongCall{call, Args{0, typeInt, out}, errArg}, wrongCall{call, Args{st, foreign, out}, errType},
			wrongCall{call, Args{st, typeInt, 0}, errArg})
	}
	for _, call := range []string{"MPI_Status_set_elements", "MPI_Status_set_elements_x"} {
		rows = append(rows, wrongCall{call, Args{0, typeInt, 1}, errArg}, wrongCall{call, Args{st, uint64(datatypeNull), 1}, errType},
			wrongCall{call, Args{st, typeInt, neg(-1)}, errCount})
	}
	return append(rows, wrongCall{"MPI_Status_set_elements_c", Args{st, typeInt, 1 << 62}, errCount})
}

func TestStatusCounts(t *testing.T) {
	r := job(t, 1)[0]
	st := place(r.cMemory, make([]int32, statusSize/4)...)
	out := place(r.cMemory, int64(9), 9)
	for _, c := range []struct {
		bytes           int64
		datatype        uint64
		count, elements int64
	}{
		{0, typeInt, 0, 0},
		{12, typeInt, 3, 3},
		{13, typeInt, undefined, undefined},
		{24, typeDoubleInt, 2, 4},
		{20, typeDoubleInt, undefined, 3},
		{16, typeDoubleInt, undefined, undefined},
		{12, 0x22b, undefined, 3}, // MPI_2INT
		{1 << 33, 0x247, 1 << 33, 1 << 33},
	} {
		s := slice[int32](st, 8)
		s[statusBytesLow], s[statusBytesHigh] = int32(uint32(c.bytes)), int32(c.bytes>>32)
		r.must("MPI_Get_count_c", st, c.datatype, out)
		r.must("MPI_Get_elements_x", st, c.datatype, out+8)
		if v := slice[int64](out, 2); v[0] != c.count || v[1] != c.elements {
			t.Errorf("%d bytes of datatype %#x: %v, want %d items and %d elements", c.bytes, c.datatype, v, c.count, c.elements)
		}
		if c.elements < 0 {
			continue
		}
		r.must("MPI_Status_set_elements_x", st, c.datatype, uint64(c.elements))
		if s[statusBytesLow] != int32(uint32(c.bytes)) || s[statusBytesHigh] != int32(c.bytes>>32) {
			t.Errorf("%d elements of datatype %#x: status %v, want %d bytes", c.elements, c.datatype, s, c.bytes)
		}
	}
	// An int does not hold the last count.
	r.must("MPI_Get_count", st, 0x247, out)
	if v := *at[int32](out); v != undefined {
		t.Errorf("MPI_Get_count gives %d for 2^33 items, want MPI_UNDEFINED", v)
	}
}

// Elements of derived datatypes are those of the datatypes that they are made of.
func TestDerivedElements(t *testing.T) {
	r := job(t, 1)[0]
	st := place(r.cMemory, make([]int32, statusSize/4)...)
	out := place(r.cMemory, int64(0))
	three, mixed, twice, none := place(r.cMemory, Handle(0)), place(r.cMemory, Handle(0)), place(r.cMemory, Handle(0)), place(r.cMemory, Handle(0))
	// Three MPI_SHORT; two of these and an MPI_DOUBLE_INT and two MPI_CHAR; that twice, by a vector.
	r.must("MPI_Type_contiguous", 3, 0x208, three)
	lengths, displs := place(r.cMemory, int32(2), 1, 2), place(r.cMemory, int64(0), 16, 32)
	types := place(r.cMemory, *at[uint64](three), typeDoubleInt, 0x243)
	r.must("MPI_Type_create_struct", 3, lengths, displs, types, mixed)
	r.must("MPI_Type_vector_c", 2, 1, 3, *at[uint64](mixed), twice)
	r.must("MPI_Type_contiguous", 0, typeInt, none)
	for _, c := range []struct {
		d        uint64
		bytes    int32
		elements int64
	}{
		{three, 0, 0},
		{three, 6, 3},
		{three, 8, 4},
		{three, 7, undefined},
		{mixed, 26, 10}, // 6 of 2 bytes, 8 and 4, 2 of 1
		{mixed, 10, 5},
		{mixed, 12, 6},
		{mixed, 20, 7},
		{mixed, 14, undefined},
		{mixed, 25, 9},
		{twice, 52, 20},
		{twice, 26 + 24, 18},
		{twice, 104 + 26 + 7, undefined},
		{none, 0, 0},
		{none, 4, undefined},
	} {
		s := slice[int32](st, 8)
		s[statusBytesLow], s[statusBytesHigh] = c.bytes, 0
		r.must("MPI_Get_elements_c", st, *at[uint64](c.d), out)
		if v := *at[int64](out); v != c.elements {
			t.Errorf("%d bytes: %d elements, want %d", c.bytes, v, c.elements)
		}
		if c.elements < 0 {
			continue
		}
		s[statusBytesLow] = 99
		r.must("MPI_Status_set_elements_c", st, *at[uint64](c.d), uint64(c.elements))
		if s[statusBytesLow] != c.bytes {
			t.Errorf("%d elements: %d bytes, want %d", c.elements, s[statusBytesLow], c.bytes)
		}
	}
	r.self.handler.Store(uint64(errorsReturn))
	if code := r.call("MPI_Status_set_elements", st, *at[uint64](none), 1); code != errCount {
		t.Errorf("an element of a datatype that has none: code %d, want %d", code, errCount)
	}
}

// The calls that set parts of a status work without MPI_Init.
func TestStatusFields(t *testing.T) {
	r := newRank(t)
	st := place(r.cMemory, make([]int32, statusSize/4)...)
	out := place(r.cMemory, int32(0), 0, 0, 0)
	r.must("MPI_Status_set_source", st, 3)
	r.must("MPI_Status_set_tag", st, 4)
	r.must("MPI_Status_set_error", st, 5)
	r.must("MPI_Status_get_source", st, out)
	r.must("MPI_Status_get_tag", st, out+4)
	r.must("MPI_Status_get_error", st, out+8)
	if s, v := slice[int32](st, 3), slice[int32](out, 3); !slices.Equal(s, []int32{3, 4, 5}) || !slices.Equal(s, v) {
		t.Errorf("status %v, and the calls give %v, want 3, 4, 5", s, v)
	}
	r = job(t, 1)[0]
	for _, want := range []int32{1, 0} {
		r.must("MPI_Status_set_cancelled", st, uint64(want*7))
		r.must("MPI_Test_cancelled", st, out+12)
		if v := *at[int32](out + 12); v != want {
			t.Errorf("MPI_Test_cancelled gives %d, want %d", v, want)
		}
	}
}
