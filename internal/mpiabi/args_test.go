//go:build linux

package mpiabi

import (
	"context"
	"slices"
	"testing"
)

// The prototype says how wide the integers of an array are.
func TestArrays(t *testing.T) {
	m := newMemory(t)
	narrow := place(m, int32(4), int32(-5), int32(6))
	wide := place(m, int64(4), int64(-5), int64(1)<<40)
	page := forbidden(t)
	for _, c := range []struct {
		call string
		addr uint64
		want []int
		code int32
	}{
		{"MPI_Allgatherv", narrow, []int{4, -5, 6}, errSuccess},
		{"MPI_Allgatherv_c", wide, []int{4, -5, 1 << 40}, errSuccess},
		{"MPI_Allgatherv", 0, nil, errArg},
		{"MPI_Allgatherv", page, nil, errBuffer},
	} {
		p := prototypes[Number(c.call)]
		a := &arguments{Args: make(Args, len(p.params)), p: p, ctx: context.Background()}
		a.Args[4] = c.addr
		got, err := a.ints(4, 3)
		if classOf(err) != c.code || err == nil && !slices.Equal(got, c.want) {
			t.Errorf("%s: recvcounts are %v, %v, want %v and class %d", c.call, got, err, c.want, c.code)
		}
	}
}

// Results that an int does not hold are MPI_UNDEFINED, and a NULL address is an error.
func TestResults(t *testing.T) {
	m := newMemory(t)
	out := place(m, int64(0))
	count := func(name string, addr uint64) *arguments {
		p := prototypes[Number(name)]
		a := &arguments{Args: make(Args, len(p.params)), p: p, ctx: context.Background()}
		a.Args[2] = addr
		return a
	}
	if err := count("MPI_Get_count", out).setInt(2, 1<<40); err != nil || *at[int32](out) != undefined {
		t.Errorf("MPI_Get_count stores %d, %v, want MPI_UNDEFINED", *at[int32](out), err)
	}
	if err := count("MPI_Get_count_c", out).setInt(2, 1<<40); err != nil || *at[int64](out) != 1<<40 {
		t.Errorf("MPI_Get_count_c stores %d, %v, want 1<<40", *at[int64](out), err)
	}
	dup := prototypes[Number("MPI_Comm_dup")]
	for addr, want := range map[uint64]int32{out: errSuccess, 0: errArg, forbidden(t): errBuffer} {
		a := &arguments{Args: Args{uint64(commWorld), addr}, p: dup, ctx: context.Background()}
		if err := a.setHandle(1, commSelf); classOf(err) != want || err == nil && *at[Handle](addr) != commSelf {
			t.Errorf("a handle at %#x: %v, want class %d", addr, err, want)
		}
	}
}
