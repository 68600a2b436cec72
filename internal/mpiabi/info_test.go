//go:build linux

package mpiabi

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func init() { wrongCalls = append(wrongCalls, wrongInfos) }

// text is a string of C.
func text(m *cMemory, s string) uint64 { return place(m, []byte(s+"\x00")...) }

func wrongInfos(t *testing.T, r *rank) []wrongCall {
	out := place(r.cMemory, make([]int64, 4)...)
	page := forbidden(t)
	null := place(r.cMemory, infoNull)
	foreign := uint64(r.handles.add(&datatype{name: "foreign", size: 4, extent: 4}))
	r.must("MPI_Info_create", out)
	in := uint64(*at[Handle](out))
	key, value, none := text(r.cMemory, "key"), text(r.cMemory, "value"), text(r.cMemory, "")
	r.must("MPI_Info_set", in, key, value)
	return []wrongCall{
		{"MPI_Info_create", Args{0}, errArg},
		{"MPI_Info_create", Args{page}, errBuffer},
		{"MPI_Info_create_env", Args{neg(-1), 0, out}, errCount},
		{"MPI_Info_create_env", Args{1, page, out}, errBuffer},
		{"MPI_Info_create_env", Args{0, 0, 0}, errArg},
		{"MPI_Info_dup", Args{uint64(infoNull), out}, errInfo},
		{"MPI_Info_dup", Args{in, 0}, errArg},
		{"MPI_Info_free", Args{0}, errArg},
		{"MPI_Info_free", Args{null}, errInfo},
		{"MPI_Info_free", Args{place(r.cMemory, infoEnv)}, errInfo},
		{"MPI_Info_free", Args{place(r.cMemory, foreign)}, errInfo},
		{"MPI_Info_set", Args{foreign, key, value}, errInfo},
		{"MPI_Info_set", Args{uint64(infoEnv), key, value}, errInfo},
		{"MPI_Info_set", Args{in, 0, value}, errInfoKey},
		{"MPI_Info_set", Args{in, none, value}, errInfoKey},
		{"MPI_Info_set", Args{in, page, value}, errBuffer},
		{"MPI_Info_set", Args{in, text(r.cMemory, strings.Repeat("k", maxInfoKey)), value}, errInfoKey},
		{"MPI_Info_set", Args{in, key, 0}, errInfoValue},
		{"MPI_Info_set", Args{in, key, text(r.cMemory, strings.Repeat("v", maxInfoValue))}, errInfoValue},
		{"MPI_Info_delete", Args{in, value}, errInfoNoKey},
		{"MPI_Info_delete", Args{in, 0}, errInfoKey},
		{"MPI_Info_delete", Args{uint64(infoEnv), key}, errInfo},
		{"MPI_Info_get", Args{foreign, key, 8, out, out + 8}, errInfo},
		{"MPI_Info_get", Args{in, none, 8, out, out + 8}, errInfoKey},
		{"MPI_Info_get", Args{in, key, neg(-1), out, out + 8}, errArg},
		{"MPI_Info_get", Args{in, key, 8, 0, out + 8}, errArg},
		{"MPI_Info_get", Args{in, key, 8, out, 0}, errArg},
		{"MPI_Info_get_string", Args{uint64(infoNull), key, out, out + 8, out + 16}, errInfo},
		{"MPI_Info_get_string", Args{in, key, 0, out + 8, out + 16}, errArg},
		{"MPI_Info_get_string", Args{in, key, place(r.cMemory, int32(-1)), out + 8, out + 16}, errArg},
		{"MPI_Info_get_string", Args{in, key, place(r.cMemory, int32(8)), 0, out + 16}, errArg},
		{"MPI_Info_get_valuelen", Args{in, page, out, out + 8}, errBuffer},
		{"MPI_Info_get_valuelen", Args{in, key, 0, out + 8}, errArg},
		{"MPI_Info_get_valuelen", Args{in, key, out, 0}, errArg},
		{"MPI_Info_get_nkeys", Args{foreign, out}, errInfo},
		{"MPI_Info_get_nkeys", Args{in, 0}, errArg},
		{"MPI_Info_get_nthkey", Args{in, 1, out}, errArg},
		{"MPI_Info_get_nthkey", Args{in, neg(-1), out}, errArg},
		{"MPI_Info_get_nthkey", Args{in, 0, 0}, errArg},
		{"MPI_Comm_set_info", Args{world, uint64(infoNull)}, errInfo},
		{"MPI_Comm_set_info", Args{foreign, in}, errComm},
		{"MPI_Comm_get_info", Args{foreign, out}, errComm},
		{"MPI_Comm_get_info", Args{world, 0}, errArg},
		{"MPI_Comm_dup_with_info", Args{world, foreign, out}, errInfo},
		{"MPI_Comm_dup_with_info", Args{foreign, in, out}, errComm},
		{"MPI_Comm_dup_with_info", Args{world, in, 0}, errArg},
		{"MPI_Win_set_info", Args{foreign, in}, errWin},
		{"MPI_Win_get_info", Args{uint64(winNull), out}, errWin},
		{"MPI_File_set_info", Args{foreign, in}, errFile},
		{"MPI_File_get_info", Args{uint64(fileNull), out}, errFile},
	}
}

// Info objects exist before MPI_Init, and keep their keys in order.
func TestInfo(t *testing.T) {
	r := newRank(t)
	hs := place(r.cMemory, Handle(0), Handle(0))
	buf := place(r.cMemory, make([]byte, maxInfoValue)...)
	n, flag := place(r.cMemory, int32(0)), place(r.cMemory, int32(0))
	// str is the string that a call has stored.
	str := func() string { return cStringAt(buf, maxInfoValue) }
	r.must("MPI_Info_create", hs)
	in := *at[uint64](hs)
	for _, kv := range [][2]string{{"b", "1"}, {"a", "22"}, {"b", "three"}, {"c", ""}} {
		r.must("MPI_Info_set", in, text(r.cMemory, kv[0]), text(r.cMemory, kv[1]))
	}
	r.must("MPI_Info_dup", in, hs+8)
	r.must("MPI_Info_delete", in, text(r.cMemory, "a"))
	for h, want := range map[uint64][]string{in: {"b", "c"}, *at[uint64](hs + 8): {"b", "a", "c"}} {
		r.must("MPI_Info_get_nkeys", h, n)
		var keys []string
		for k := range *at[int32](n) {
			r.must("MPI_Info_get_nthkey", h, uint64(k), buf)
			keys = append(keys, str())
		}
		if !slices.Equal(keys, want) {
			t.Errorf("keys %v, want %v", keys, want)
		}
	}
	for _, c := range []struct {
		size    int32 // of the buffer, with the end
		want    string
		touched bool
	}{{0, "unchanged", false}, {1, "", true}, {3, "th", true}, {6, "three", true}, {100, "three", true}} {
		copy(slice[byte](buf, 10), "unchanged\x00")
		*at[int32](n) = c.size
		r.must("MPI_Info_get_string", in, text(r.cMemory, "b"), n, buf, flag)
		if str() != c.want || *at[int32](n) != 6 || *at[int32](flag) != 1 {
			t.Errorf("a buffer of %d: %q, size %d, flag %d, want %q, 6, 1", c.size, str(), *at[int32](n), *at[int32](flag), c.want)
		}
		if c.touched {
			r.must("MPI_Info_get", in, text(r.cMemory, "b"), uint64(c.size-1), buf, flag)
			if str() != c.want {
				t.Errorf("MPI_Info_get of %d characters: %q, want %q", c.size-1, str(), c.want)
			}
		}
	}
	r.must("MPI_Info_get_valuelen", in, text(r.cMemory, "b"), n, flag)
	if *at[int32](n) != 5 || *at[int32](flag) != 1 {
		t.Errorf("MPI_Info_get_valuelen: %d, flag %d, want 5 and 1", *at[int32](n), *at[int32](flag))
	}
	for _, call := range []func(){
		func() { r.must("MPI_Info_get_valuelen", in, text(r.cMemory, "a"), n, flag) },
		func() { r.must("MPI_Info_get", in, text(r.cMemory, "a"), 9, buf, flag) },
		func() { r.must("MPI_Info_get_string", in, text(r.cMemory, "a"), n, buf, flag) },
	} {
		*at[int32](flag) = 7
		call()
		if *at[int32](flag) != 0 {
			t.Errorf("a key that is not set has a value: flag %d", *at[int32](flag))
		}
	}
	r.must("MPI_Info_free", hs)
	if *at[Handle](hs) != infoNull {
		t.Errorf("the handle is %#x after MPI_Info_free", *at[Handle](hs))
	}
	r.self.handler.Store(uint64(errorsReturn))
	if code := r.call("MPI_Info_get_nkeys", in, n); code != errInfo {
		t.Errorf("a freed info object: code %d, want %d", code, errInfo)
	}
}

func TestInfoEnv(t *testing.T) {
	r := newRank(t)
	out := place(r.cMemory, Handle(0))
	buf := place(r.cMemory, make([]byte, maxInfoValue)...)
	flag := place(r.cMemory, int32(0))
	argv := place(r.cMemory, text(r.cMemory, "program"), text(r.cMemory, "-x"), text(r.cMemory, "y"), 0)
	r.must("MPI_Info_create_env", 3, argv, out)
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		info      uint64
		key, want string
	}{
		{*at[uint64](out), "command", "program"},
		{*at[uint64](out), "argv", "-x y"},
		{uint64(infoEnv), "wdir", dir},
		{uint64(infoEnv), "command", os.Args[0]},
	} {
		r.must("MPI_Info_get", c.info, text(r.cMemory, c.key), maxInfoValue-1, buf, flag)
		if got := cStringAt(buf, maxInfoValue); *at[int32](flag) != 1 || got != c.want {
			t.Errorf("%s: flag %d, %q, want %q", c.key, *at[int32](flag), got, c.want)
		}
	}
}

// The library uses no hints for communicators, and says so.
func TestCommInfo(t *testing.T) {
	r := job(t, 1)[0]
	out := place(r.cMemory, Handle(0))
	n := place(r.cMemory, int32(7))
	r.must("MPI_Info_create", out)
	r.must("MPI_Info_set", *at[uint64](out), text(r.cMemory, "no_such_hint"), text(r.cMemory, "true"))
	r.must("MPI_Comm_set_info", world, *at[uint64](out))
	dup := place(r.cMemory, Handle(0))
	r.must("MPI_Comm_dup_with_info", world, *at[uint64](out), dup)
	r.must("MPI_Barrier", *at[uint64](dup))
	r.must("MPI_Comm_free", dup)
	r.must("MPI_Comm_dup_with_info", world, uint64(infoNull), dup)
	r.must("MPI_Comm_free", dup)
	mem := place(r.cMemory, int64(0))
	r.must("MPI_Win_create", mem, 8, 1, uint64(infoNull), world, dup)
	r.must("MPI_Win_set_info", *at[uint64](dup), *at[uint64](out))
	r.must("MPI_Win_get_info", *at[uint64](dup), mem)
	r.must("MPI_Win_free", dup)
	r.must("MPI_Comm_get_info", world, out)
	r.must("MPI_Info_get_nkeys", *at[uint64](out), n)
	if v := *at[int32](n); v != 0 {
		t.Errorf("%d hints are in use, want none", v)
	}
}
