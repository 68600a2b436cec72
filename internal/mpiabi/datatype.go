package mpiabi

import (
	"math"

	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/mpi"
)

// Chapter "Datatypes".

// datatype is a datatype of C.
type datatype struct {
	name   string
	d      mpi.Datatype
	size   int
	extent int
	gaps   bool // Items have bytes that belong to no value.
}

// named are the datatypes that the standard has named, on a machine of 64 bits.
var named = namedDatatypes()

func namedDatatypes() map[Handle]*datatype {
	m := map[Handle]*datatype{}
	for size, list := range map[int]map[Handle]string{
		1: {
			0x207: "MPI_PACKED", 0x238: "MPI_C_BOOL", 0x239: "MPI_CXX_BOOL", 0x240: "MPI_INT8_T",
			0x241: "MPI_UINT8_T", 0x243: "MPI_CHAR", 0x244: "MPI_SIGNED_CHAR", 0x245: "MPI_UNSIGNED_CHAR",
			0x247: "MPI_BYTE", 0x2c0: "MPI_LOGICAL1", 0x2c1: "MPI_INTEGER1", 0x21e: "MPI_CHARACTER",
		},
		2: {
			0x208: "MPI_SHORT", 0x20c: "MPI_UNSIGNED_SHORT", 0x248: "MPI_INT16_T", 0x249: "MPI_UINT16_T",
			0x2c8: "MPI_LOGICAL2", 0x2c9: "MPI_INTEGER2", 0x2ca: "MPI_REAL2",
		},
		4: {
			0x209: "MPI_INT", 0x20d: "MPI_UNSIGNED", 0x210: "MPI_FLOAT", 0x218: "MPI_LOGICAL",
			0x219: "MPI_INTEGER", 0x21a: "MPI_REAL", 0x23c: "MPI_WCHAR", 0x250: "MPI_INT32_T",
			0x251: "MPI_UINT32_T", 0x2d0: "MPI_LOGICAL4", 0x2d1: "MPI_INTEGER4", 0x2d2: "MPI_REAL4",
			0x2d3: "MPI_COMPLEX4",
		},
		8: {
			0x201: "MPI_AINT", 0x202: "MPI_COUNT", 0x203: "MPI_OFFSET", 0x20a: "MPI_LONG",
			0x20b: "MPI_LONG_LONG", 0x20e: "MPI_UNSIGNED_LONG", 0x20f: "MPI_UNSIGNED_LONG_LONG",
			0x212: "MPI_C_FLOAT_COMPLEX", 0x213: "MPI_CXX_FLOAT_COMPLEX", 0x214: "MPI_DOUBLE",
			0x21b: "MPI_COMPLEX", 0x21c: "MPI_DOUBLE_PRECISION", 0x228: "MPI_FLOAT_INT", 0x22b: "MPI_2INT",
			0x230: "MPI_2REAL", 0x232: "MPI_2INTEGER", 0x258: "MPI_INT64_T", 0x259: "MPI_UINT64_T",
			0x2d8: "MPI_LOGICAL8", 0x2d9: "MPI_INTEGER8", 0x2da: "MPI_REAL8", 0x2db: "MPI_COMPLEX8",
		},
		16: {
			0x216: "MPI_C_DOUBLE_COMPLEX", 0x217: "MPI_CXX_DOUBLE_COMPLEX", 0x21d: "MPI_DOUBLE_COMPLEX",
			0x220: "MPI_LONG_DOUBLE", 0x231: "MPI_2DOUBLE_PRECISION", 0x2e0: "MPI_LOGICAL16",
			0x2e1: "MPI_INTEGER16", 0x2e2: "MPI_REAL16", 0x2e3: "MPI_COMPLEX16",
		},
		32: {
			0x224: "MPI_C_LONG_DOUBLE_COMPLEX", 0x225: "MPI_CXX_LONG_DOUBLE_COMPLEX", 0x2eb: "MPI_COMPLEX32",
		},
	} {
		for h, name := range list {
			m[h] = &datatype{name: name, d: bytesType(size), size: size, extent: size}
		}
	}
	// A value and an int, as C lays out their struct.
	for h, v := range map[Handle]struct {
		name          string
		value, extent int
	}{
		0x229: {"MPI_DOUBLE_INT", 8, 16},
		0x22a: {"MPI_LONG_INT", 8, 16},
		0x22c: {"MPI_SHORT_INT", 2, 8},
		0x22d: {"MPI_LONG_DOUBLE_INT", 16, 32},
	} {
		second := max(v.value, 4)
		d := must(mpi.StructOf([]int{v.value, 4}, []int{0, second}, []mpi.Datatype{bytesType(1), bytesType(1)}))
		m[h] = &datatype{name: v.name, d: must(d.Resized(0, v.extent)), size: v.value + 4, extent: v.extent, gaps: true}
	}
	return m
}

func bytesType(n int) mpi.Datatype { return must(must(mpi.TypeOf[byte]()).Contiguous(n)) }

// must is for the named datatypes, which do not depend on the program.
func must(d mpi.Datatype, err error) mpi.Datatype {
	if err != nil {
		panic(err)
	}
	return d
}

// datatype is the datatype that an argument is the handle of.
func (e *Env) datatype(a *arguments, i int) (*datatype, error) {
	h := a.Handle(i)
	if d, ok := named[h]; ok {
		return d, nil
	}
	if h == datatypeNull {
		return nil, fail(a.name(i), errType, "it is MPI_DATATYPE_NULL")
	}
	if d, ok := lookup[*datatype](&e.handles, h); ok {
		return d, nil
	}
	return nil, fail(a.name(i), errType, "%#x is no datatype, or one that is freed", uint64(h))
}

// items is memory of the program that a call sends or receives.
type items struct {
	d     *datatype
	n     int
	bytes []byte // all memory from the first item's beginning to the last one's end
}

// items are what three arguments from i on say: a buffer, a number of items, and their datatype.
func (e *Env) items(a *arguments, i int) (items, error) {
	n, err := a.count(i + 1)
	if err != nil {
		return items{}, err
	}
	d, err := e.datatype(a, i+2)
	if err != nil {
		return items{}, err
	}
	out := items{d: d, n: n}
	if n == 0 {
		return out, nil
	}
	switch addr := a.Addr(i); {
	case addr == 0:
		return items{}, fail(a.name(i), errBuffer, "it is NULL, and there are %d items of %s", n, d.name)
	case addr <= bufferAutomatic:
		return items{}, fail(a.name(i), errBuffer, "it is MPI_IN_PLACE or MPI_BUFFER_AUTOMATIC, which this call does not take")
	case n > maxBytes/d.extent:
		return items{}, fail(a.name(i+1), errCount, "%d items of %s are more than a program has memory for", n, d.name)
	default:
		out.bytes = slice[byte](addr, n*d.extent)
	}
	// Package mpi copies with locks held, so a wrong address must be found before.
	return out, a.access(i, func() {
		shm.Touch(out.bytes[:1])
		shm.Touch(out.bytes[len(out.bytes)-1:])
	})
}

// maxBytes bounds the memory of a call: addresses of programs have 47 bits.
const maxBytes = min(1<<47, math.MaxInt)
