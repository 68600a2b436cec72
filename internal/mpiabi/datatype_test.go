//go:build linux

package mpiabi

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// h is the handle of a constant.
func h(v Handle) uint64 { return uint64(v) }

// The named datatypes are those of constants.txt, and so are other handles and codes.
func TestConstants(t *testing.T) {
	b, err := os.ReadFile("constants.txt")
	if err != nil {
		t.Fatal(err)
	}
	values, datatypes := map[string]Handle{}, map[Handle]bool{}
	for _, line := range strings.Split(string(b), "\n") {
		f := strings.Split(line, "\t")
		if len(f) < 3 {
			continue
		}
		v, err := strconv.ParseInt(f[2], 0, 64)
		if err != nil {
			continue
		}
		values[f[0]] = Handle(v)
		if f[1] == "MPI_Datatype" && f[0] != "MPI_DATATYPE_NULL" {
			datatypes[Handle(v)] = true
		}
	}
	for h, d := range named {
		if v, ok := values[d.name]; !ok || v != h {
			t.Errorf("%s has handle %#x, constants.txt says %#x", d.name, uint64(h), uint64(v))
		}
	}
	for h, name := range opNames {
		if v, ok := values[name]; !ok || v != h {
			t.Errorf("%s is %#x, constants.txt says %#x", name, uint64(h), uint64(v))
		}
	}
	for h := range datatypes {
		if named[h] == nil {
			t.Errorf("there is no datatype for handle %#x", uint64(h))
		}
	}
	for name, v := range map[string]Handle{
		"MPI_ERRORS_ARE_FATAL": errorsAreFatal, "MPI_ERRORS_RETURN": errorsReturn, "MPI_ERRORS_ABORT": errorsAbort,
		"MPI_COMM_NULL": commNull, "MPI_COMM_WORLD": commWorld, "MPI_COMM_SELF": commSelf,
		"MPI_GROUP_NULL": groupNull, "MPI_GROUP_EMPTY": groupEmpty, "MPI_DATATYPE_NULL": datatypeNull,
		"MPI_COMBINER_NAMED": combinerNamed, "MPI_COMBINER_DUP": combinerDup, "MPI_COMBINER_CONTIGUOUS": combinerContiguous,
		"MPI_COMBINER_VECTOR": combinerVector, "MPI_COMBINER_HVECTOR": combinerHvector, "MPI_COMBINER_INDEXED": combinerIndexed,
		"MPI_COMBINER_HINDEXED": combinerHindexed, "MPI_COMBINER_INDEXED_BLOCK": combinerIndexedBlock,
		"MPI_COMBINER_HINDEXED_BLOCK": combinerHindexedBlock, "MPI_COMBINER_STRUCT": combinerStruct,
		"MPI_COMBINER_SUBARRAY": combinerSubarray, "MPI_COMBINER_DARRAY": combinerDarray, "MPI_COMBINER_RESIZED": combinerResized,
		"MPI_ORDER_C": orderC, "MPI_ORDER_FORTRAN": orderFortran, "MPI_DISTRIBUTE_NONE": distributeNone,
		"MPI_DISTRIBUTE_BLOCK": distributeBlock, "MPI_DISTRIBUTE_CYCLIC": distributeCyclic,
		"MPI_DISTRIBUTE_DFLT_DARG": distributeByDefault, "MPI_MAX_OBJECT_NAME": maxTypeName, "MPI_IN_PLACE": inPlace,
		"MPI_OP_NULL": opNull, "MPI_TYPECLASS_INTEGER": typeclassInteger, "MPI_TYPECLASS_REAL": typeclassReal,
		"MPI_TYPECLASS_COMPLEX": typeclassComplex,
	} {
		if got, ok := values[name]; !ok || got != v {
			t.Errorf("%s is %#x, constants.txt says %#x", name, uint64(v), uint64(got))
		}
	}
}

const (
	intType    = 0x209
	doubleType = 0x214
	charType   = 0x243
)

// newType calls a constructor, whose last argument is added, and commits the datatype.
func newType(r *rank, call string, args ...uint64) uint64 {
	r.t.Helper()
	out := place(r.cMemory, Handle(0))
	r.must(call, append(args, out)...)
	r.must("MPI_Type_commit", out)
	return uint64(*at[Handle](out))
}

func ints(r *rank, v ...int32) uint64  { return place(r.cMemory, v...) }
func wides(r *rank, v ...int64) uint64 { return place(r.cMemory, v...) }

// Each constructor: size, bounds, true bounds, envelope, and which ints of 0, 1, 2 ... an item packs.
func TestConstructors(t *testing.T) {
	r := job(t, 1)[0]
	pair := newType(r, "MPI_Type_contiguous", 2, intType)
	wide := newType(r, "MPI_Type_create_resized", intType, 0, 12)
	out := place(r.cMemory, make([]int64, 8)...)
	data := make([]int32, 64)
	for i := range data {
		data[i] = int32(i)
	}
	base := place(r.cMemory, data...)
	for _, c := range []struct {
		call     string
		args     Args
		size     int64
		bounds   [4]int64 // lb, extent, true lb, true extent
		envelope []int32
		want     []int32
	}{
		{"MPI_Type_contiguous", Args{3, intType}, 12, [4]int64{0, 12, 0, 12}, []int32{1, 0, 1, 103}, []int32{0, 1, 2}},
		{"MPI_Type_contiguous", Args{0, intType}, 0, [4]int64{}, []int32{1, 0, 1, 103}, nil},
		{"MPI_Type_contiguous", Args{2, wide}, 8, [4]int64{0, 24, 0, 16}, []int32{1, 0, 1, 103}, []int32{0, 3}},
		{"MPI_Type_vector", Args{2, 2, 3, intType}, 16, [4]int64{0, 20, 0, 20}, []int32{3, 0, 1, 104}, []int32{0, 1, 3, 4}},
		{"MPI_Type_vector", Args{2, 2, 2, intType}, 16, [4]int64{0, 16, 0, 16}, []int32{3, 0, 1, 104}, []int32{0, 1, 2, 3}},
		{"MPI_Type_create_hvector", Args{2, 1, 8, pair}, 16, [4]int64{0, 16, 0, 16}, []int32{2, 1, 1, 105}, []int32{0, 1, 2, 3}},
		{"MPI_Type_hvector", Args{2, 1, 12, intType}, 8, [4]int64{0, 16, 0, 16}, []int32{2, 1, 1, 105}, []int32{0, 3}},
		{"MPI_Type_indexed", Args{2, ints(r, 1, 2), ints(r, 4, 0), intType}, 12, [4]int64{0, 20, 0, 20}, []int32{5, 0, 1, 106}, []int32{4, 0, 1}},
		{"MPI_Type_indexed", Args{2, ints(r, 1, 1), ints(r, 1, 0), intType}, 8, [4]int64{0, 8, 0, 8}, []int32{5, 0, 1, 106}, []int32{1, 0}},
		{"MPI_Type_create_hindexed", Args{2, ints(r, 1, 1), wides(r, 8, 20), intType}, 8, [4]int64{8, 16, 8, 16}, []int32{3, 2, 1, 107}, []int32{2, 5}},
		{"MPI_Type_hindexed", Args{1, ints(r, 1), wides(r, 4), intType}, 4, [4]int64{4, 4, 4, 4}, []int32{2, 1, 1, 107}, []int32{1}},
		{"MPI_Type_create_indexed_block", Args{2, 2, ints(r, 0, 4), intType}, 16, [4]int64{0, 24, 0, 24}, []int32{4, 0, 1, 108}, []int32{0, 1, 4, 5}},
		{"MPI_Type_create_hindexed_block", Args{2, 1, wides(r, 4, 12), intType}, 8, [4]int64{4, 12, 4, 12}, []int32{2, 2, 1, 109}, []int32{1, 3}},
		{
			"MPI_Type_create_struct",
			Args{2, ints(r, 1, 4), wides(r, 0, 8), place(r.cMemory, Handle(doubleType), Handle(charType))},
			12,
			[4]int64{0, 16, 0, 12},
			[]int32{3, 2, 2, 110},
			[]int32{0, 1, 2},
		},
		{
			"MPI_Type_struct",
			Args{2, ints(r, 1, 1), wides(r, 0, 32), place(r.cMemory, Handle(wide), Handle(intType))},
			8,
			[4]int64{0, 12, 0, 36},
			[]int32{3, 2, 2, 110},
			[]int32{0, 8},
		},
		{"MPI_Type_create_resized", Args{intType, neg(-4), 16}, 4, [4]int64{-4, 16, 0, 4}, []int32{0, 2, 1, 116}, []int32{0}},
		{
			"MPI_Type_create_subarray",
			Args{2, ints(r, 3, 4), ints(r, 2, 2), ints(r, 1, 1), orderC, intType},
			16,
			[4]int64{0, 48, 20, 24},
			[]int32{8, 0, 1, 111},
			[]int32{5, 6, 9, 10},
		},
		{
			"MPI_Type_create_subarray",
			Args{2, ints(r, 3, 4), ints(r, 2, 2), ints(r, 1, 1), orderFortran, intType},
			16,
			[4]int64{0, 48, 16, 20},
			[]int32{8, 0, 1, 111},
			[]int32{4, 5, 7, 8},
		},
		{
			"MPI_Type_create_darray",
			Args{4, 1, 2, ints(r, 3, 5), ints(r, distributeBlock, distributeCyclic), ints(r, distributeByDefault, distributeByDefault), ints(r, 2, 2), orderC, intType},
			16,
			[4]int64{0, 60, 4, 32},
			[]int32{12, 0, 1, 112},
			[]int32{1, 3, 6, 8},
		},
		{
			"MPI_Type_create_darray",
			Args{4, 2, 2, ints(r, 3, 5), ints(r, distributeBlock, distributeCyclic), ints(r, distributeByDefault, 2), ints(r, 2, 2), orderFortran, intType},
			12,
			[4]int64{0, 60, 8, 52},
			[]int32{12, 0, 1, 112},
			[]int32{2, 5, 14},
		},
		{
			"MPI_Type_create_darray",
			Args{2, 1, 1, ints(r, 1), ints(r, distributeBlock), ints(r, distributeByDefault), ints(r, 2), orderC, intType},
			0,
			[4]int64{0, 4, 0, 0},
			[]int32{8, 0, 1, 112},
			nil,
		},
		{"MPI_Type_dup", Args{pair}, 8, [4]int64{0, 8, 0, 8}, []int32{0, 0, 1, 102}, []int32{0, 1}},
	} {
		d := newType(r, c.call, c.args...)
		r.must("MPI_Type_size_c", d, out)
		if v := *at[int64](out); v != c.size {
			t.Errorf("%s%v: size %d, want %d", c.call, c.args, v, c.size)
		}
		r.must("MPI_Type_get_extent", d, out, out+8)
		r.must("MPI_Type_get_true_extent_x", d, out+16, out+24)
		if v := slice[int64](out, 4); !slices.Equal(v, c.bounds[:]) {
			t.Errorf("%s%v: bounds %v, want %v", c.call, c.args, v, c.bounds)
		}
		r.must("MPI_Type_get_envelope", d, out, out+4, out+8, out+12)
		if v := slice[int32](out, 4); !slices.Equal(v, c.envelope) {
			t.Errorf("%s%v: envelope %v, want %v", c.call, c.args, v, c.envelope)
		}
		n := int(c.size)
		packed := place(r.cMemory, make([]int32, n/4+1)...)
		*at[int32](out) = 0
		r.must("MPI_Pack", base, 1, d, packed, uint64(n), out, uint64(commSelf))
		if v := slice[int32](packed, n/4); !slices.Equal(v, c.want) || *at[int32](out) != int32(n) {
			t.Errorf("%s%v: packs %v, to position %d, want %v, and %d", c.call, c.args, v, *at[int32](out), c.want, n)
		}
		back := place(r.cMemory, make([]int32, 64)...)
		*at[int32](out) = 0
		r.must("MPI_Unpack", packed, uint64(n), out, back, 1, d, uint64(commSelf))
		for i, v := range slice[int32](back, 64) {
			if want := slices.Contains(c.want, int32(i)); v != 0 && !want || want && v != int32(i) {
				t.Errorf("%s%v: unpacks %d at %d", c.call, c.args, v, i)
			}
		}
	}
}

// MPI_Type_get_contents gives back what the constructor got, in both forms.
func TestContents(t *testing.T) {
	r := job(t, 1)[0]
	pair := newType(r, "MPI_Type_contiguous", 2, intType)
	types := place(r.cMemory, Handle(pair), Handle(doubleType))
	narrow := newType(r, "MPI_Type_create_struct", 2, ints(r, 3, 1), wides(r, 0, 24), types)
	large := newType(r, "MPI_Type_create_struct_c", 2, wides(r, 3, 1), wides(r, 0, 24), types)
	i, a, c, d := ints(r, 0, 0, 0), wides(r, 0, 0), wides(r, 0, 0, 0, 0, 0), place(r.cMemory, Handle(0), Handle(0))
	r.must("MPI_Type_get_contents", narrow, 3, 2, 2, i, a, d)
	if v, w := slice[int32](i, 3), slice[int64](a, 2); !slices.Equal(v, []int32{2, 3, 1}) || !slices.Equal(w, []int64{0, 24}) {
		t.Errorf("the contents are %v and %v", v, w)
	}
	got := slice[Handle](d, 2)
	r.must("MPI_Type_size", uint64(got[0]), i)
	if uint64(got[0]) == pair || got[1] != doubleType || *at[int32](i) != 8 {
		t.Errorf("the types are %#x, want a new handle of 8 bytes, and MPI_DOUBLE", got)
	}
	r.must("MPI_Type_free", d)
	r.must("MPI_Type_size", pair, i) // The program's own handle is still there.
	counts := wides(r, 0, 0, 0, 0)
	r.must("MPI_Type_get_envelope_c", large, counts, counts+8, counts+16, counts+24, i)
	if v := slice[int64](counts, 4); !slices.Equal(v, []int64{0, 0, 5, 2}) || *at[int32](i) != combinerStruct {
		t.Errorf("the envelope is %v, %d", v, *at[int32](i))
	}
	r.must("MPI_Type_get_contents_c", large, 0, 0, 5, 2, i, a, c, d)
	if v := slice[int64](c, 5); !slices.Equal(v, []int64{2, 3, 1, 0, 24}) {
		t.Errorf("the large contents are %v", v)
	}
}

// Datatypes with absolute addresses describe memory from MPI_BOTTOM on, and those of negative extent
// memory before the buffer.
func TestAddresses(t *testing.T) {
	r := job(t, 1)[0]
	values, out := ints(r, 1, 2, 3, 4), ints(r, 0, 0, 0, 0)
	pos := ints(r, 0)
	d := newType(r, "MPI_Type_create_hindexed", 2, ints(r, 1, 1), wides(r, int64(values+12), int64(values)), intType)
	r.must("MPI_Pack", 0, 1, d, out, 16, pos, h(commSelf))
	if v := slice[int32](out, 2); v[0] != 4 || v[1] != 1 {
		t.Errorf("MPI_BOTTOM packs %v, want 4 and 1", v)
	}
	down := newType(r, "MPI_Type_create_resized", intType, 0, neg(-8))
	*at[int32](pos) = 0
	r.must("MPI_Pack", values+8, 2, down, out, 16, pos, h(commSelf))
	if v := slice[int32](out, 2); v[0] != 3 || v[1] != 1 {
		t.Errorf("an extent of -8 packs %v, want 3 and 1", v)
	}
	back := ints(r, 0, 0, 0, 0)
	*at[int32](pos) = 0
	r.must("MPI_Unpack", out, 8, pos, back+8, 2, down, h(commSelf))
	if v := slice[int32](back, 4); !slices.Equal(v, []int32{1, 0, 3, 0}) {
		t.Errorf("an extent of -8 unpacks %v, want 1 0 3 0", v)
	}
}

func TestTypeNames(t *testing.T) {
	r := job(t, 1)[0]
	name, n := place(r.cMemory, make([]byte, 128)...), ints(r, 0)
	get := func(d uint64) string {
		r.must("MPI_Type_get_name", d, name, n)
		k := int(*at[int32](n))
		if b := *at[byte](name + uint64(k)); b != 0 {
			t.Errorf("the name ends with byte %d, want 0", b)
		}
		return string(slice[byte](name, k))
	}
	d := newType(r, "MPI_Type_dup", doubleType)
	if s := get(doubleType); s != "MPI_DOUBLE" {
		t.Errorf("the name is %q, want MPI_DOUBLE", s)
	}
	if s := get(d); s != "" {
		t.Errorf("a new datatype is called %q, want no name", s)
	}
	r.must("MPI_Type_set_name", d, place(r.cMemory, []byte("row\x00")...))
	if s := get(d); s != "row" {
		t.Errorf("the name is %q, want row", s)
	}
}

// A derived datatype travels as bytes: the receiver may take them as another one.
func TestDerivedMessages(t *testing.T) {
	rs := job(t, 2)
	each(rs, func(i int, r *rank) {
		column := newType(r, "MPI_Type_vector", 3, 1, 3, intType)
		if i == 0 {
			matrix := ints(r, 0, 1, 2, 3, 4, 5, 6, 7, 8)
			r.must("MPI_Send", matrix+4, 1, column, 1, 0, h(commWorld))
			r.must("MPI_Send", matrix, 3, intType, 1, 1, h(commWorld))
			return
		}
		row, matrix := ints(r, 0, 0, 0), ints(r, 9, 9, 9, 9, 9, 9, 9, 9, 9)
		r.must("MPI_Recv", row, 3, intType, 0, 0, h(commWorld), 0)
		if v := slice[int32](row, 3); !slices.Equal(v, []int32{1, 4, 7}) {
			t.Errorf("a column comes as %v, want 1 4 7", v)
		}
		r.must("MPI_Recv", matrix, 1, column, 0, 1, h(commWorld), 0)
		if v := slice[int32](matrix, 9); !slices.Equal(v, []int32{0, 9, 9, 1, 9, 9, 2, 9, 9}) {
			t.Errorf("a row is received as column in %v", v)
		}
	})
}

func init() {
	wrongCalls = append(wrongCalls, func(t *testing.T, r *rank) []wrongCall {
		out := place(r.cMemory, make([]int64, 8)...)
		page := forbidden(t)
		null := h(datatypeNull)
		one, two, big := ints(r, 1), ints(r, 2), wides(r, 1<<60)
		zero, minus := ints(r, 0), ints(r, -1)
		fresh := place(r.cMemory, Handle(0))
		r.must("MPI_Type_contiguous", 2, intType, fresh)
		raw := uint64(*at[Handle](fresh)) // not committed
		large := newType(r, "MPI_Type_contiguous_c", 2, intType)
		buf := ints(r, 1, 2, 3, 4)
		pos := ints(r, 0)
		block, dflt := ints(r, distributeBlock), ints(r, distributeByDefault)
		self := h(commSelf)
		return []wrongCall{
			{"MPI_Type_contiguous", Args{neg(-1), intType, out}, errCount},
			{"MPI_Type_contiguous", Args{1, null, out}, errType},
			{"MPI_Type_contiguous", Args{1, intType, 0}, errArg},
			{"MPI_Type_contiguous", Args{1, intType, page}, errBuffer},
			{"MPI_Type_contiguous_c", Args{1 << 62, intType, out}, errArg},
			{"MPI_Type_contiguous_c", Args{1 << 40, intType, out}, errArg},
			{"MPI_Type_vector", Args{neg(-1), 1, 1, intType, out}, errCount},
			{"MPI_Type_vector", Args{1, neg(-1), 1, intType, out}, errCount},
			{"MPI_Type_vector", Args{1, 1, 1, 7, out}, errType},
			{"MPI_Type_vector_c", Args{2, 1, 1 << 60, intType, out}, errArg},
			{"MPI_Type_create_hvector", Args{3, 1, 1 << 50, intType, out}, errArg},
			{"MPI_Type_hvector", Args{1, neg(-1), 1, intType, out}, errCount},
			{"MPI_Type_indexed", Args{neg(-1), one, one, intType, out}, errCount},
			{"MPI_Type_indexed", Args{1, 0, one, intType, out}, errArg},
			{"MPI_Type_indexed", Args{1, one, page, intType, out}, errBuffer},
			{"MPI_Type_indexed", Args{1, minus, one, intType, out}, errArg},
			{"MPI_Type_indexed", Args{maxBlocks + 1, one, one, intType, out}, errCount},
			{"MPI_Type_create_hindexed", Args{1, one, big, intType, out}, errArg},
			{"MPI_Type_hindexed", Args{1, one, 0, intType, out}, errArg},
			{"MPI_Type_create_indexed_block", Args{1, neg(-1), one, intType, out}, errCount},
			{"MPI_Type_create_hindexed_block", Args{1, 1, 0, intType, out}, errArg},
			{"MPI_Type_create_struct", Args{1, one, big, 0, out}, errArg},
			{"MPI_Type_create_struct", Args{1, one, wides(r, 0), place(r.cMemory, datatypeNull), out}, errType},
			{"MPI_Type_struct", Args{neg(-1), one, big, 0, out}, errCount},
			{"MPI_Type_create_resized", Args{null, 0, 4, out}, errType},
			{"MPI_Type_create_resized", Args{intType, 0, 1 << 60, out}, errArg},
			{"MPI_Type_create_subarray", Args{0, one, one, one, orderC, intType, out}, errArg},
			{"MPI_Type_create_subarray", Args{1, zero, one, zero, orderC, intType, out}, errArg},
			{"MPI_Type_create_subarray", Args{1, one, two, zero, orderC, intType, out}, errArg},
			{"MPI_Type_create_subarray", Args{1, two, one, two, orderC, intType, out}, errArg},
			{"MPI_Type_create_subarray", Args{1, two, one, zero, 7, intType, out}, errArg},
			{"MPI_Type_create_subarray", Args{1, 0, one, zero, orderC, intType, out}, errArg},
			{"MPI_Type_create_darray", Args{1, 0, 0, two, block, dflt, one, orderC, intType, out}, errArg},
			{"MPI_Type_create_darray", Args{1, 1, 1, two, block, dflt, one, orderC, intType, out}, errArg},
			{"MPI_Type_create_darray", Args{2, 0, 1, two, block, dflt, one, orderC, intType, out}, errArg},
			{"MPI_Type_create_darray", Args{1, 0, 1, two, block, dflt, zero, orderC, intType, out}, errArg},
			{"MPI_Type_create_darray", Args{1, 0, 1, zero, block, dflt, one, orderC, intType, out}, errArg},
			{"MPI_Type_create_darray", Args{1, 0, 1, two, one, dflt, one, orderC, intType, out}, errArg},
			{"MPI_Type_create_darray", Args{1, 0, 1, two, block, one, one, orderC, intType, out}, errArg},
			{"MPI_Type_create_darray", Args{1, 0, 1, two, block, zero, one, orderC, intType, out}, errArg},
			{"MPI_Type_create_darray", Args{2, 0, 1, two, ints(r, distributeNone), dflt, two, orderC, intType, out}, errArg},
			{"MPI_Type_create_darray", Args{1, 0, 1, two, block, dflt, one, 7, intType, out}, errArg},
			{"MPI_Type_dup", Args{null, out}, errType},
			{"MPI_Type_commit", Args{0}, errArg},
			{"MPI_Type_commit", Args{place(r.cMemory, datatypeNull)}, errType},
			{"MPI_Type_free", Args{0}, errArg},
			{"MPI_Type_free", Args{place(r.cMemory, Handle(intType))}, errType},
			{"MPI_Type_free", Args{place(r.cMemory, datatypeNull)}, errType},
			{"MPI_Type_size", Args{null, out}, errType},
			{"MPI_Type_size", Args{intType, 0}, errArg},
			{"MPI_Type_size_x", Args{intType, page}, errBuffer},
			{"MPI_Type_get_extent", Args{null, out, out}, errType},
			{"MPI_Type_get_extent", Args{intType, out, 0}, errArg},
			{"MPI_Type_get_extent_x", Args{intType, 0, out}, errArg},
			{"MPI_Type_get_true_extent", Args{null, out, out}, errType},
			{"MPI_Type_get_true_extent_x", Args{intType, out, 0}, errArg},
			{"MPI_Type_extent", Args{null, out}, errType},
			{"MPI_Type_lb", Args{intType, 0}, errArg},
			{"MPI_Type_ub", Args{intType, page}, errBuffer},
			{"MPI_Type_get_envelope", Args{null, out, out, out, out}, errType},
			{"MPI_Type_get_envelope", Args{large, out, out, out, out}, errType},
			{"MPI_Type_get_envelope", Args{intType, out, out, out, 0}, errArg},
			{"MPI_Type_get_contents", Args{intType, 1, 1, 1, out, out, out}, errType},
			{"MPI_Type_get_contents", Args{large, 1, 1, 1, out, out, out}, errType},
			{"MPI_Type_get_contents", Args{raw, 0, 0, 1, out, out, out}, errArg},
			{"MPI_Type_get_contents", Args{raw, 1, 0, 0, out, out, out}, errArg},
			{"MPI_Type_get_contents", Args{raw, 1, 0, 1, 0, out, out}, errArg},
			{"MPI_Type_get_contents", Args{raw, 1, 0, 1, out, out, page}, errBuffer},
			{"MPI_Type_set_name", Args{null, buf}, errType},
			{"MPI_Type_set_name", Args{raw, 0}, errArg},
			{"MPI_Type_set_name", Args{raw, page}, errBuffer},
			{"MPI_Type_get_name", Args{raw, 0, out}, errArg},
			{"MPI_Type_get_name", Args{raw, out, 0}, errArg},
			{"MPI_Send", Args{buf, 1, raw, 0, 0, self}, errType},
			{"MPI_Pack", Args{buf, 1, raw, out, 8, pos, self}, errType},
			{"MPI_Pack", Args{buf, 3, intType, out, 8, pos, self}, errTruncate},
			{"MPI_Pack", Args{buf, 1, intType, out, 8, 0, self}, errArg},
			{"MPI_Pack", Args{buf, 1, intType, out, 8, minus, self}, errArg},
			{"MPI_Pack", Args{buf, 1, intType, page, 8, pos, self}, errBuffer},
			{"MPI_Pack", Args{buf, 1, intType, out, 8, pos, h(commNull)}, errComm},
			{"MPI_Unpack", Args{buf, 8, pos, out, 3, intType, self}, errTruncate},
			{"MPI_Unpack", Args{page, 8, pos, out, 1, intType, self}, errBuffer},
			{"MPI_Unpack", Args{buf, neg(-1), pos, out, 1, intType, self}, errArg},
			{"MPI_Unpack", Args{buf, 8, pos, 0, 1, intType, self}, errBuffer},
			{"MPI_Pack_size", Args{neg(-1), intType, self, out}, errCount},
			{"MPI_Pack_size", Args{1, null, self, out}, errType},
			{"MPI_Pack_size", Args{1, intType, self, 0}, errArg},
		}
	})
}
