//go:build linux

package mpiabi

import (
	"strconv"
	"strings"
	"testing"
)

// What MPI_Type_match_size finds has the size, and the class in its name.
func TestMatchSize(t *testing.T) {
	r := job(t, 1)[0]
	out := place(r.cMemory, Handle(0))
	for class, prefix := range map[int]string{
		typeclassInteger: "MPI_INTEGER", typeclassReal: "MPI_REAL", typeclassComplex: "MPI_COMPLEX",
	} {
		for size := range bySize[class] {
			r.must("MPI_Type_match_size", uint64(class), uint64(size), out)
			if d := named[*at[Handle](out)]; d == nil || d.size != size || d.name != prefix+strconv.Itoa(size) {
				t.Errorf("%d bytes of class %s are %#x, want %s%d", size, prefix, *at[Handle](out), prefix, size)
			}
		}
	}
}

// What MPI_Type_get_value_index finds has the names of its parts.
func TestValueIndex(t *testing.T) {
	r := job(t, 1)[0]
	out := place(r.cMemory, Handle(0))
	for parts := range byValueAndIndex {
		r.must("MPI_Type_get_value_index", h(parts[0]), h(parts[1]), out)
		v, i := strings.TrimPrefix(named[parts[0]].name, "MPI_"), strings.TrimPrefix(named[parts[1]].name, "MPI_")
		want := "MPI_" + v + "_" + i
		if v == i {
			want = "MPI_2" + v
		}
		if d := named[*at[Handle](out)]; d == nil || d.name != want {
			t.Errorf("the pair of %s and %s is %#x, want %s", v, i, *at[Handle](out), want)
		}
	}
	r.must("MPI_Type_get_value_index", charType, intType, out)
	if *at[Handle](out) != datatypeNull {
		t.Errorf("a pair that has no datatype is %#x, want MPI_DATATYPE_NULL", *at[Handle](out))
	}
}

func init() {
	wrongCalls = append(wrongCalls, func(t *testing.T, r *rank) []wrongCall {
		out := place(r.cMemory, Handle(0))
		return []wrongCall{
			{"MPI_Type_match_size", Args{7, 4, out}, errArg},
			{"MPI_Type_match_size", Args{typeclassReal, 3, out}, errArg},
			{"MPI_Type_match_size", Args{typeclassReal, 4, 0}, errArg},
			{"MPI_Type_get_value_index", Args{h(datatypeNull), intType, out}, errType},
			{"MPI_Type_get_value_index", Args{intType, h(datatypeNull), out}, errType},
			{"MPI_Type_get_value_index", Args{intType, intType, forbidden(t)}, errBuffer},
		}
	})
}
