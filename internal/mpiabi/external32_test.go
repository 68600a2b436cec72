//go:build linux

package mpiabi

import (
	"bytes"
	"encoding/hex"
	"math"
	"testing"
)

func init() {
	wrongCalls = append(wrongCalls, func(t *testing.T, r *rank) []wrongCall {
		rep, mem, page := r.text("external32"), place(r.cMemory, make([]int64, 8)...), forbidden(t)
		pos, beyond := place(r.cMemory, int64(0)), place(r.cMemory, int64(65))
		large, long := place(r.cMemory, int64(1)<<40), uint64(0x20a)
		return []wrongCall{
			{"MPI_Pack_external", Args{r.text("native"), mem, 1, typeInt, mem, 64, pos}, errDatarep},
			{"MPI_Pack_external", Args{0, mem, 1, typeInt, mem, 64, pos}, errArg},
			{"MPI_Pack_external", Args{rep, 0, 1, typeInt, mem, 64, pos}, errBuffer},
			{"MPI_Pack_external", Args{rep, mem, neg(-1), typeInt, mem, 64, pos}, errCount},
			{"MPI_Pack_external", Args{rep, mem, 1, 0, mem, 64, pos}, errType},
			{"MPI_Pack_external_c", Args{rep, mem, 1, typeInt, mem, 3, pos}, errTruncate},
			{"MPI_Pack_external", Args{rep, mem, 1, typeInt, 0, 64, pos}, errBuffer},
			{"MPI_Pack_external", Args{rep, mem, 1, typeInt, page, 64, pos}, errBuffer},
			{"MPI_Pack_external", Args{rep, mem, 1, typeInt, mem, 64, 0}, errArg},
			{"MPI_Pack_external", Args{rep, mem, 1, typeInt, mem, 64, beyond}, errArg},
			{"MPI_Pack_external", Args{rep, large, 1, long, mem, 64, pos}, errConversion},
			{"MPI_Unpack_external", Args{r.text("external33"), mem, 64, pos, mem, 1, typeInt}, errDatarep},
			{"MPI_Unpack_external", Args{rep, 0, 64, pos, mem, 1, typeInt}, errBuffer},
			{"MPI_Unpack_external", Args{rep, page, 64, pos, mem, 1, typeInt}, errBuffer},
			{"MPI_Unpack_external_c", Args{rep, mem, 3, pos, mem, 1, typeInt}, errTruncate},
			{"MPI_Unpack_external", Args{rep, mem, 64, beyond, mem, 1, typeInt}, errArg},
			{"MPI_Unpack_external", Args{rep, mem, 64, 0, mem, 1, typeInt}, errArg},
			{"MPI_Unpack_external", Args{rep, mem, 64, pos, 0, 1, typeInt}, errBuffer},
			{"MPI_Unpack_external", Args{rep, mem, 64, pos, mem, neg(-1), typeInt}, errCount},
			{"MPI_Unpack_external", Args{rep, mem, 64, pos, mem, 1, 0}, errType},
			{"MPI_Pack_external_size", Args{r.text(""), 1, typeInt, pos}, errDatarep},
			{"MPI_Pack_external_size", Args{rep, neg(-1), typeInt, pos}, errCount},
			{"MPI_Pack_external_size", Args{rep, 1, 0, pos}, errType},
			{"MPI_Pack_external_size_c", Args{rep, math.MaxInt64, typeInt, pos}, errCount},
			{"MPI_Pack_external_size", Args{rep, 1, typeInt, 0}, errArg},
		}
	})
}

// Numbers are packed as the standard says, and come back.
func TestExternal32(t *testing.T) {
	r := job(t, 1)[0]
	rep := r.text("external32")
	// A double, and two longs with a gap between.
	long := place(r.cMemory, int64(-2), int64(0), int64(3))
	pairs := r.made("MPI_Type_vector", 2, 1, 2, 0x20a)
	r.must("MPI_Type_commit", place(r.cMemory, Handle(pairs)))
	for _, c := range []struct {
		name string
		mem  uint64
		n    uint64
		typ  uint64
		want string
	}{
		{"MPI_INT", place(r.cMemory, int32(1), -2), 2, typeInt, "00000001fffffffe"},
		{"MPI_SHORT", place(r.cMemory, int16(0x102)), 1, 0x208, "0102"},
		{"MPI_DOUBLE", place(r.cMemory, 1.0), 1, 0x214, "3ff0000000000000"},
		{"MPI_LONG", long, 1, 0x20a, "fffffffe"},
		{"MPI_UNSIGNED_LONG", place(r.cMemory, uint64(0xfffffffe)), 1, 0x20e, "fffffffe"},
		{"MPI_LONG_LONG", long, 1, 0x20b, "fffffffffffffffe"},
		{"MPI_WCHAR", place(r.cMemory, int32(0x20ac)), 1, 0x23c, "20ac"},
		{"MPI_C_FLOAT_COMPLEX", place(r.cMemory, float32(1), float32(-1)), 1, 0x212, "3f800000bf800000"},
		{"MPI_DOUBLE_INT", place(r.cMemory, doubleAndInt{V: 1, I: 5}), 1, typeDoubleInt, "3ff000000000000000000005"},
		{"MPI_2INT", place(r.cMemory, int32(1), 2), 1, 0x22b, "0000000100000002"},
		{"MPI_BYTE", place(r.cMemory, []byte("abc")...), 3, 0x247, "616263"},
		{"a vector", long, 1, pairs, "fffffffe00000003"},
	} {
		want, err := hex.DecodeString(c.want)
		if err != nil {
			t.Fatal(err)
		}
		size, pos, out := place(r.cMemory, int64(0)), place(r.cMemory, int64(1)), place(r.cMemory, make([]byte, 64)...)
		r.must("MPI_Pack_external_size", rep, c.n, c.typ, size)
		if got := *at[int64](size); got != int64(len(want)) {
			t.Errorf("%s: the size is %d, want %d", c.name, got, len(want))
		}
		r.must("MPI_Pack_external", rep, c.mem, c.n, c.typ, out, 64, pos)
		if got := slice[byte](out+1, len(want)); !bytes.Equal(got, want) || *at[int64](pos) != int64(1+len(want)) {
			t.Errorf("%s: %x is packed, up to %d, want %x", c.name, got, *at[int64](pos), want)
		}
		extent := place(r.cMemory, int64(0), int64(0))
		r.must("MPI_Type_get_extent", c.typ, extent, extent+8)
		n := int(c.n) * int(*at[int64](extent + 8))
		back := place(r.cMemory, make([]byte, n)...)
		*at[int64](pos) = 1
		r.must("MPI_Unpack_external", rep, out, 64, pos, back, c.n, c.typ)
		if got, want := slice[byte](back, n), slice[byte](c.mem, n); !bytes.Equal(got, want) || *at[int64](pos) != *at[int64](size)+1 {
			t.Errorf("%s: %x comes back, up to %d, want %x", c.name, got, *at[int64](pos), want)
		}
	}
}

// A long double of the x87 and a binary128 are the same number, also where they are hardly one.
func TestExternal32LongDouble(t *testing.T) {
	for _, c := range []struct {
		name     string
		mantissa uint64
		head     uint16
		hi, lo   uint64
	}{
		{"0", 0, 0, 0, 0},
		{"-0", 0, 0x8000, 1 << 63, 0},
		{"1", 1 << 63, 16383, 0x3fff << 48, 0},
		{"-1.5", 3 << 62, 0x8000 | 16383, 0xbfff8 << 44, 0},
		{"1 and the last bit", 1<<63 | 1, 16383, 0x3fff << 48, 1 << 49},
		{"the least one", 1, 0, 0, 1 << 49},
		{"infinity", 1 << 63, 0x7fff, 0x7fff << 48, 0},
		{"no number", 3 << 62, 0x7fff, 0x7fff8 << 44, 0},
	} {
		if hi, lo := quadOf(c.mantissa, c.head); hi != c.hi || lo != c.lo {
			t.Errorf("%s: binary128 is %x %x, want %x %x", c.name, hi, lo, c.hi, c.lo)
		}
		if m, head := x87Of(c.hi, c.lo); m != c.mantissa || head != c.head {
			t.Errorf("%s: the x87 has %x %x, want %x %x", c.name, m, head, c.mantissa, c.head)
		}
	}
	for _, c := range []struct {
		name     string
		hi, lo   uint64
		mantissa uint64
		head     uint16
	}{
		{"below the half", 0x3fff << 48, 1<<48 - 1, 1 << 63, 16383},
		{"the half, to even", 0x3fff << 48, 1 << 48, 1 << 63, 16383},
		{"the half, from odd", 0x3fff << 48, 3 << 48, 1<<63 | 2, 16383},
		{"up to the next power", 0x3fff<<48 | (1<<48 - 1), math.MaxUint64, 1 << 63, 16384},
		{"up to the least normal one", 1<<48 - 1, math.MaxUint64, 1 << 63, 1},
		{"a small part of no number", 0x7fff << 48, 1, 3 << 62, 0x7fff},
	} {
		if m, head := x87Of(c.hi, c.lo); m != c.mantissa || head != c.head {
			t.Errorf("%s: the x87 has %x %x, want %x %x", c.name, m, head, c.mantissa, c.head)
		}
	}
	if hi, _ := quadOf(1<<63, 0); hi != 1<<48 {
		t.Errorf("a normal number that is written as a subnormal one: %x, want %x", hi, uint64(1)<<48)
	}
}
