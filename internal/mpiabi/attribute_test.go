//go:build linux

package mpiabi

import (
	"slices"
	"testing"
)

func init() {
	wrongCalls = append(wrongCalls, func(t *testing.T, r *rank) []wrongCall {
		world, page := uint64(commWorld), forbidden(t)
		out := place(r.cMemory, int64(0), int64(0))
		r.must("MPI_Comm_create_keyval", 0, 0, out, 0)
		key := uint64(*at[int32](out))
		r.must("MPI_Type_create_keyval", 0, 0, out, 0)
		typeKey := uint64(*at[int32](out))
		foreign := place(r.cMemory, int32(typeKey))
		named := place(r.cMemory, int32(keyTagUB))
		foreignForTypes := place(r.cMemory, int32(key))
		rows := []wrongCall{
			{"MPI_Type_create_keyval", Args{0, 0, 0, 0}, errArg},
			{"MPI_Type_create_keyval", Args{0, 1, out, 0}, errArg},
			{"MPI_Type_free_keyval", Args{foreignForTypes}, errKeyval},
			{"MPI_Type_set_attr", Args{0x209, key, 0}, errKeyval},
			{"MPI_Type_set_attr", Args{uint64(datatypeNull), typeKey, 0}, errType},
			{"MPI_Type_get_attr", Args{0x209, keyTagUB, out, out}, errKeyval},
			{"MPI_Type_get_attr", Args{world, typeKey, out, out}, errType},
			{"MPI_Type_delete_attr", Args{0x209, key}, errKeyval},
			{"MPI_Type_delete_attr", Args{0, typeKey}, errType},
		}
		for _, names := range [][5]string{
			{"MPI_Comm_create_keyval", "MPI_Comm_free_keyval", "MPI_Comm_set_attr", "MPI_Comm_get_attr", "MPI_Comm_delete_attr"},
			{"MPI_Keyval_create", "MPI_Keyval_free", "MPI_Attr_put", "MPI_Attr_get", "MPI_Attr_delete"},
		} {
			create, free, set, get, remove := names[0], names[1], names[2], names[3], names[4]
			rows = append(rows, []wrongCall{
				{create, Args{0, 0, 0, 0}, errArg},
				{create, Args{0, 0, page, 0}, errBuffer},
				{create, Args{0, dupFunction, out, 0}, errArg},
				{free, Args{0}, errArg},
				{free, Args{page}, errBuffer},
				{free, Args{foreign}, errKeyval},
				{free, Args{named}, errKeyval},
				{set, Args{uint64(commNull), key, 0}, errComm},
				{set, Args{world, 0, 0}, errKeyval},
				{set, Args{world, typeKey, 0}, errKeyval},
				{set, Args{world, keyTagUB, 0}, errKeyval},
				{get, Args{uint64(commNull), key, out, out}, errComm},
				{get, Args{world, key, 0, out}, errArg},
				{get, Args{world, keyTagUB, page, out}, errBuffer},
				{get, Args{world, key, out, 0}, errArg},
				{get, Args{world, keyWinBase, out, out}, errKeyval},
				{get, Args{world, neg(-1), out, out}, errKeyval},
				{remove, Args{uint64(commNull), key}, errComm},
				{remove, Args{world, typeKey}, errKeyval},
				{remove, Args{world, keyHost}, errKeyval},
			}...)
		}
		return rows
	})
}

// getAttribute is MPI_Comm_get_attr.
func (r *rank) getAttribute(c, key uint64) (value uint64, ok bool) {
	r.t.Helper()
	out := place(r.cMemory, uint64(99), uint64(99))
	r.must("MPI_Comm_get_attr", c, key, out, out+8)
	return *at[uint64](out), *at[int32](out + 8) != 0
}

func TestNamedAttributes(t *testing.T) {
	r := job(t, 1)[0]
	for key, want := range map[uint64]int32{
		keyTagUB: 1<<31 - 1, keyIO: -1, keyHost: procNull, keyWtimeIsGlobal: 0, keyLastUsedCode: 16383,
	} {
		if addr, ok := r.getAttribute(uint64(commWorld), key); !ok || *at[int32](addr) != want {
			t.Errorf("attribute %d is there: %t, want it with value %d", key, ok, want)
		}
	}
	for _, key := range []uint64{keyAppnum, keyUniverseSize} {
		if addr, ok := r.getAttribute(uint64(commSelf), key); ok || addr != 99 {
			t.Errorf("attribute %d is there, and nothing has set it", key)
		}
	}
}

// Attributes of communicators, with functions of the program.
func TestCommAttributes(t *testing.T) {
	r := job(t, 1)[0]
	r.self.handler.Store(uint64(errorsReturn)) // MPI_Comm_free has no handle among its arguments.
	const copyFn, deleteFn, extra = 0x7001, 0x7002, 0x7003
	var deleted []uint64
	var code int32
	flag := int32(1)
	r.config.Callback = func(function uint64, args ...uint64) uint64 {
		switch {
		case function == copyFn && len(args) == 6 && args[2] == extra:
			*at[uint64](args[4]) = args[3] + 1
			*at[int32](args[5]) = flag
		case function == deleteFn && len(args) == 4 && args[3] == extra:
			if code == errSuccess {
				deleted = append(deleted, args[2])
			}
		default:
			t.Errorf("function %#x is called with %v", function, args)
		}
		return uint64(code)
	}
	out := place(r.cMemory, Handle(0))
	key := func(copyFn, deleteFn uint64) uint64 {
		r.must("MPI_Comm_create_keyval", copyFn, deleteFn, out, extra)
		return uint64(*at[int32](out))
	}
	program, shared, private := key(copyFn, deleteFn), key(dupFunction, 0), key(0, 0)
	world := uint64(commWorld)
	for i, k := range []uint64{program, shared, private} {
		if _, ok := r.getAttribute(world, k); ok {
			t.Errorf("attribute %d is there before it is set", k)
		}
		r.must("MPI_Comm_set_attr", world, k, uint64(10*i))
	}
	r.must("MPI_Comm_dup", world, out)
	dup := uint64(*at[Handle](out))
	for _, c := range []struct {
		key, want uint64
		ok        bool
	}{{program, 1, true}, {shared, 10, true}, {private, 99, false}} {
		if v, ok := r.getAttribute(dup, c.key); ok != c.ok || v != c.want {
			t.Errorf("key %d of the copy: %d, %t, want %d, %t", c.key, v, ok, c.want, c.ok)
		}
	}
	r.must("MPI_Comm_set_attr", dup, program, 5) // replaces 1
	if !slices.Equal(deleted, []uint64{1}) {
		t.Errorf("values %v are deleted, want 1", deleted)
	}
	// A delete function that fails keeps the attribute, and the communicator.
	code = errOther
	if got := r.call("MPI_Comm_delete_attr", dup, program); got != errOther {
		t.Errorf("MPI_Comm_delete_attr: code %d, want the function's %d", got, errOther)
	}
	if got := r.call("MPI_Comm_free", out); got != errOther {
		t.Errorf("MPI_Comm_free: code %d, want the function's %d", got, errOther)
	}
	if v, ok := r.getAttribute(dup, program); !ok || v != 5 {
		t.Errorf("the attribute is %d, %t, want 5 as before", v, ok)
	}
	// A copy function that fails makes no communicator.
	other := place(r.cMemory, Handle(7))
	if got := r.call("MPI_Comm_dup", world, other); got != errOther || *at[Handle](other) != commNull {
		t.Errorf("MPI_Comm_dup: code %d, handle %#x, want the function's %d and MPI_COMM_NULL", got, *at[Handle](other), errOther)
	}
	code = errSuccess
	r.must("MPI_Comm_free", out)
	if !slices.Equal(deleted, []uint64{1, 5}) {
		t.Errorf("values %v are deleted, want 1 and 5", deleted)
	}
	// A copy function decides that the new one has none.
	flag = 0
	r.must("MPI_Comm_dup", world, out)
	if v, ok := r.getAttribute(uint64(*at[Handle](out)), program); ok {
		t.Errorf("the copy has %d, want none", v)
	}
	// A freed key cannot be used, and its attribute is deleted with the object.
	freed := place(r.cMemory, int32(program))
	r.must("MPI_Comm_free_keyval", freed)
	if *at[int32](freed) != keyvalInvalid {
		t.Errorf("a freed key is %d, want MPI_KEYVAL_INVALID", *at[int32](freed))
	}
	if got := r.call("MPI_Comm_get_attr", world, program, other, other); got != errKeyval {
		t.Errorf("MPI_Comm_get_attr of a freed key: code %d, want %d", got, errKeyval)
	}
}

// MPI_Finalize calls the delete functions of MPI_COMM_SELF first, the last attribute first. They may call MPI.
func TestFinalizeAttributes(t *testing.T) {
	r := newRank(t)
	var deleted []uint64
	r.config.Callback = func(_ uint64, args ...uint64) uint64 {
		out := place(r.cMemory, int32(7))
		if p := r.Phase(); p != phaseRunning {
			t.Errorf("a delete function runs in phase %d, want %d", p, phaseRunning)
		}
		r.must("MPI_Comm_rank", args[0], out)
		deleted = append(deleted, args[2])
		return 0
	}
	r.must("MPI_Init", 0, 0)
	for i, c := range []Handle{commWorld, commSelf, commSelf} {
		out := place(r.cMemory, int32(0))
		r.must("MPI_Comm_create_keyval", 0, 0x7002, out, 0)
		r.must("MPI_Comm_set_attr", uint64(c), uint64(*at[int32](out)), uint64(i))
	}
	r.must("MPI_Finalize")
	if !slices.Equal(deleted, []uint64{2, 1, 0}) {
		t.Errorf("values are deleted in the order %v, want 2, 1, 0", deleted)
	}
}

// Without a way to call functions of the program the call fails, and nothing else happens.
func TestNoCallback(t *testing.T) {
	r := job(t, 1)[0]
	out := place(r.cMemory, int64(0))
	r.must("MPI_Comm_create_keyval", 0x7001, 0, out, 0)
	r.must("MPI_Comm_set_attr", uint64(commWorld), uint64(*at[int32](out)), 3)
	if code := r.call("MPI_Comm_dup", uint64(commWorld), out); code != errOther {
		t.Errorf("MPI_Comm_dup: code %d, want %d", code, errOther)
	}
}

func TestTypeAttributes(t *testing.T) {
	r := job(t, 1)[0]
	const byteType, intType = 0x247, 0x209
	out := place(r.cMemory, uint64(0), uint64(0))
	r.must("MPI_Type_create_keyval", dupFunction, 0, out, 0)
	key := uint64(*at[int32](out))
	r.must("MPI_Type_set_attr", byteType, key, 42)
	get := func(of, want uint64, there int32) {
		t.Helper()
		r.must("MPI_Type_get_attr", of, key, out, out+8)
		if v, ok := *at[uint64](out), *at[int32](out + 8); ok != there || ok != 0 && v != want {
			t.Errorf("datatype %#x has attribute %d, %d, want %d, %d", of, v, ok, want, there)
		}
	}
	get(byteType, 42, 1)
	get(intType, 0, 0)
	dup := place(r.cMemory, Handle(0))
	r.must("MPI_Type_dup", byteType, dup)
	get(uint64(*at[Handle](dup)), 42, 1)
	r.must("MPI_Type_delete_attr", byteType, key)
	get(byteType, 0, 0)
	// The copy's attribute is deleted with it. A delete function that fails keeps the datatype.
	var code int32
	var deleted []uint64
	r.config.Callback = func(_ uint64, args ...uint64) uint64 {
		deleted = append(deleted, args[0], args[2])
		return uint64(code)
	}
	r.must("MPI_Type_create_keyval", dupFunction, 0x7002, out, 0)
	key = uint64(*at[int32](out))
	r.must("MPI_Type_set_attr", uint64(*at[Handle](dup)), key, 43)
	code = errOther
	r.self.handler.Store(uint64(errorsReturn))
	if got := r.call("MPI_Type_free", dup); got != errOther {
		t.Errorf("MPI_Type_free: code %d, want the function's %d", got, errOther)
	}
	h := uint64(*at[Handle](dup))
	get(h, 43, 1)
	code = errSuccess
	r.must("MPI_Type_free", dup)
	if want := []uint64{h, 43, h, 43}; !slices.Equal(deleted, want) {
		t.Errorf("the delete function got %v, want %v", deleted, want)
	}
}
