//go:build linux

package mpiabi

import (
	"slices"
	"strings"
	"testing"
)

func init() {
	wrongCalls = append(wrongCalls, func(t *testing.T, r *rank) []wrongCall {
		world, null, page := uint64(commWorld), uint64(commNull), forbidden(t)
		out := place(r.cMemory, int64(0), int64(0))
		name := place(r.cMemory, make([]byte, maxObjectName)...)
		r.must("MPI_Comm_group", world, out)
		group := uint64(*at[Handle](out))
		ranges := place(r.cMemory, int32(0), 0, 0)
		beyond := place(r.cMemory, int32(1), 1, 1)
		return []wrongCall{
			{"MPI_Comm_set_name", Args{null, name}, errComm},
			{"MPI_Comm_set_name", Args{world, 0}, errArg},
			{"MPI_Comm_set_name", Args{world, page}, errBuffer},
			{"MPI_Comm_get_name", Args{null, name, out}, errComm},
			{"MPI_Comm_get_name", Args{world, 0, out}, errArg},
			{"MPI_Comm_get_name", Args{world, name, 0}, errArg},
			{"MPI_Comm_get_name", Args{world, page, out}, errBuffer},
			{"MPI_Comm_compare", Args{null, world, out}, errComm},
			{"MPI_Comm_compare", Args{world, null, out}, errComm},
			{"MPI_Comm_compare", Args{world, world, 0}, errArg},
			{"MPI_Comm_test_inter", Args{null, out}, errComm},
			{"MPI_Comm_test_inter", Args{world, 0}, errArg},
			{"MPI_Comm_remote_size", Args{world, out}, errComm},
			{"MPI_Comm_remote_group", Args{world, out}, errComm},
			{"MPI_Comm_create", Args{null, group, out}, errComm},
			{"MPI_Comm_create", Args{world, uint64(groupNull), out}, errGroup},
			{"MPI_Comm_create", Args{world, group, 0}, errArg},
			{"MPI_Comm_create_group", Args{null, group, 0, out}, errComm},
			{"MPI_Comm_create_group", Args{world, world, 0, out}, errGroup},
			{"MPI_Comm_create_group", Args{world, group, neg(-1), out}, errTag},
			{"MPI_Comm_create_group", Args{world, group, 0, page}, errBuffer},
			{"MPI_Comm_split_type", Args{null, commTypeShared, 0, 0x130, out}, errComm},
			{"MPI_Comm_split_type", Args{world, 5, 0, 0x130, out}, errArg},
			{"MPI_Comm_split_type", Args{world, commTypeShared, 0, 0x130, 0}, errArg},
			{"MPI_Intercomm_create", Args{null, 0, world, 0, 0, out}, errComm},
			{"MPI_Intercomm_create", Args{world, 0, null, 0, 0, out}, errComm},
			{"MPI_Intercomm_create", Args{world, 1, world, 0, 0, out}, errRank},
			{"MPI_Intercomm_create", Args{world, 0, world, 0, neg(-1), out}, errTag},
			{"MPI_Intercomm_create", Args{world, 0, world, 0, 0, 0}, errArg},
			{"MPI_Intercomm_merge", Args{world, 0, out}, errComm},
			{"MPI_Group_compare", Args{world, group, out}, errGroup},
			{"MPI_Group_compare", Args{group, world, out}, errGroup},
			{"MPI_Group_compare", Args{group, group, 0}, errArg},
			{"MPI_Group_translate_ranks", Args{world, 1, ranges, group, out}, errGroup},
			{"MPI_Group_translate_ranks", Args{group, 1, ranges, world, out}, errGroup},
			{"MPI_Group_translate_ranks", Args{group, neg(-1), ranges, group, out}, errCount},
			{"MPI_Group_translate_ranks", Args{group, 1, 0, group, out}, errArg},
			{"MPI_Group_translate_ranks", Args{group, 1, beyond, group, out}, errRank},
			{"MPI_Group_translate_ranks", Args{group, 1, ranges, group, 0}, errArg},
			{"MPI_Group_range_incl", Args{world, 1, ranges, out}, errGroup},
			{"MPI_Group_range_incl", Args{group, neg(-1), ranges, out}, errCount},
			{"MPI_Group_range_incl", Args{group, 2, ranges, out}, errArg},
			{"MPI_Group_range_incl", Args{group, 1, ranges, out}, errArg}, // The stride is 0.
			{"MPI_Group_range_incl", Args{group, 1, page, out}, errBuffer},
			{"MPI_Group_range_excl", Args{group, 1, beyond, out}, errRank},
			{"MPI_Group_range_excl", Args{group, 0, 0, 0}, errArg},
		}
	})
}

func TestCommNames(t *testing.T) {
	r := job(t, 1)[0]
	text := place(r.cMemory, make([]byte, 2*maxObjectName)...)
	out := place(r.cMemory, Handle(0))
	name := func(c Handle) string {
		t.Helper()
		r.must("MPI_Comm_get_name", uint64(c), text, out)
		b := slice[byte](text, maxObjectName)
		n := slices.Index(b, 0)
		if int32(n) != *at[int32](out) {
			t.Errorf("the name has %d bytes, and its length is %d", n, *at[int32](out))
		}
		return string(b[:max(n, 0)])
	}
	set := func(c Handle, name string) {
		copy(slice[byte](text, 2*maxObjectName), name+"\x00")
		r.must("MPI_Comm_set_name", uint64(c), text)
	}
	dup := place(r.cMemory, Handle(0))
	if world, self := name(commWorld), name(commSelf); world != "MPI_COMM_WORLD" || self != "MPI_COMM_SELF" {
		t.Errorf("the communicators have the names %q and %q", world, self)
	}
	set(commWorld, "all")
	r.must("MPI_Comm_dup", uint64(commWorld), dup)
	long := strings.Repeat("x", maxObjectName+9)
	if got := name(*at[Handle](dup)); got != "" {
		t.Errorf("a copy has the name %q, want none", got)
	}
	set(*at[Handle](dup), long)
	if all, got := name(commWorld), name(*at[Handle](dup)); all != "all" || got != long[:maxObjectName-1] {
		t.Errorf("the names are %q and %q", all, got)
	}
	set(commWorld, "")
	if got := name(commWorld); got != "" {
		t.Errorf("the name is %q, want none", got)
	}
}

func TestCompare(t *testing.T) {
	rs := job(t, 3)
	each(rs, func(i int, r *rank) {
		out := place(r.cMemory, Handle(0))
		made := func(name string, args ...uint64) uint64 {
			r.must(name, append(args, out)...)
			return uint64(*at[Handle](out))
		}
		world := uint64(commWorld)
		dup := made("MPI_Comm_dup", world)
		reversed := made("MPI_Comm_split", world, 0, neg(-i))
		all := made("MPI_Comm_group", world)
		backwards := made("MPI_Comm_group", reversed)
		part := made("MPI_Group_range_incl", all, 1, place(r.cMemory, int32(0), 2, 2))
		middle := made("MPI_Group_range_excl", all, 1, place(r.cMemory, int32(2), 0, -2))
		for _, c := range []struct {
			call string
			a, b uint64
			want int32
		}{
			{"MPI_Comm_compare", world, world, ident},
			{"MPI_Comm_compare", world, dup, congruent},
			{"MPI_Comm_compare", dup, reversed, similar},
			{"MPI_Comm_compare", world, uint64(commSelf), unequal},
			{"MPI_Group_compare", all, all, ident},
			{"MPI_Group_compare", all, backwards, similar},
			{"MPI_Group_compare", all, part, unequal},
			{"MPI_Group_compare", part, uint64(groupEmpty), unequal},
		} {
			r.must(c.call, c.a, c.b, out)
			if got := *at[int32](out); got != c.want {
				t.Errorf("%s(%#x, %#x) is %d, want %d", c.call, c.a, c.b, got, c.want)
			}
		}
		ranks := place(r.cMemory, int32(0), 1, 2, procNull)
		to := place(r.cMemory, make([]int32, 4)...)
		for group, want := range map[uint64][]int32{
			part: {0, undefined, 1, procNull}, middle: {undefined, 0, undefined, procNull}, backwards: {2, 1, 0, procNull},
		} {
			r.must("MPI_Group_translate_ranks", all, 4, ranks, group, to)
			if got := slice[int32](to, 4); !slices.Equal(got, want) {
				t.Errorf("ranks 0, 1, 2 and MPI_PROC_NULL are %v, want %v", got, want)
			}
		}
		// Of a part of the ranks: by all of them, and by these alone.
		for _, c := range []uint64{made("MPI_Comm_create", world, part), made("MPI_Comm_create_group", world, part, 5)} {
			if i == 1 {
				if c != uint64(commNull) {
					t.Errorf("rank 1 gets communicator %#x, want MPI_COMM_NULL", c)
				}
				continue
			}
			r.must("MPI_Comm_rank", c, to)
			r.must("MPI_Barrier", c)
			if got := *at[int32](to); got != int32(i/2) {
				t.Errorf("rank %d is rank %d of the part, want %d", i, got, i/2)
			}
		}
		// All ranks of this job are on one node.
		shared := made("MPI_Comm_split_type", world, commTypeShared, neg(-i), 0x130)
		r.must("MPI_Comm_compare", shared, reversed, out)
		if got := *at[int32](out); got != congruent {
			t.Errorf("the ranks that share memory compare as %d, want %d", got, congruent)
		}
		for _, typ := range []int{undefined, commTypeHWGuided} {
			if c := made("MPI_Comm_split_type", world, neg(typ), 0, 0x130); c != uint64(commNull) {
				t.Errorf("MPI_Comm_split_type by %d gives %#x, want MPI_COMM_NULL", typ, c)
			}
		}
	})
}

func TestIntercomm(t *testing.T) {
	rs := job(t, 3)
	each(rs, func(i int, r *rank) {
		out := place(r.cMemory, Handle(0))
		made := func(name string, args ...uint64) uint64 {
			r.must(name, append(args, out)...)
			return uint64(*at[Handle](out))
		}
		result := func(name string, args ...uint64) int32 {
			r.must(name, append(args, out)...)
			return *at[int32](out)
		}
		world := uint64(commWorld)
		side := i % 2 // Ranks 0 and 2, and rank 1.
		local := made("MPI_Comm_split", world, uint64(side), 0)
		leader := uint64(1 - side)
		peer := world
		if i == 2 {
			peer = uint64(commNull) // It matters at leaders only.
		}
		inter := made("MPI_Intercomm_create", local, 0, peer, leader, 12)
		wantRemote := int32(1 + side)
		if got := result("MPI_Comm_remote_size", inter); got != wantRemote {
			t.Errorf("rank %d: the other group has %d ranks, want %d", i, got, wantRemote)
		}
		if got := result("MPI_Group_size", made("MPI_Comm_remote_group", inter)); got != wantRemote {
			t.Errorf("rank %d: the other group has %d members, want %d", i, got, wantRemote)
		}
		if result("MPI_Comm_test_inter", inter) != 1 || result("MPI_Comm_test_inter", world) != 0 {
			t.Error("MPI_Comm_test_inter takes one for the other")
		}
		if got := result("MPI_Comm_compare", inter, local); got != unequal {
			t.Errorf("an intercommunicator and its local part compare as %d, want %d", got, unequal)
		}
		if got := result("MPI_Comm_compare", inter, made("MPI_Comm_dup", inter)); got != congruent {
			t.Errorf("an intercommunicator and its copy compare as %d, want %d", got, congruent)
		}
		merged := made("MPI_Intercomm_merge", inter, uint64(1-side)) // Rank 1 is the first one.
		if got, want := result("MPI_Comm_rank", merged), []int32{1, 0, 2}[i]; got != want {
			t.Errorf("rank %d is rank %d of all, want %d", i, got, want)
		}
	})
}
