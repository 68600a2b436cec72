package mpiabi

import (
	"fmt"
	"math"
	"sync"

	"github.com/vmmc-go/vmmc/mpi"
)

// Chapter "Datatypes".

// datatype is a datatype of C.
type datatype struct {
	name string
	// d is the layout of an item from its first byte on: that is at 0 there, and at trueLB in C.
	// Absolute addresses are displacements that package mpi's datatypes do not hold.
	d          mpi.Datatype
	size       int
	lb, extent int
	trueLB     int  // where the first byte of a value is
	trueExtent int  // how far the end of the last value is from there
	align      int  // that of the value with the strictest one
	gaps       bool // Items have bytes that belong to no value, or their order is another one.
	dense      bool // An item has no gaps. Those between items do not matter.
	fixed      bool // The program cannot free it.
	bounded    bool // The program has set the bounds, so that types made of it keep them.
	// reduce is an operation that the standard has named on items, or nil if it is not defined for them.
	// reduce is nil if no such operation is.
	reduce func(op Handle) reducer

	mu        sync.Mutex
	label     string    // Guarded by mu. the name that the program has set
	committed bool      // Guarded by mu.
	places    []run     // Guarded by mu. itemRuns; nil: it has not found them
	made      *contents // how it was made; nil: the standard has named it
}

// simple is a named datatype without gaps.
func simple(name string, size, align int) *datatype {
	return &datatype{
		name: name, d: bytesType(size), size: size, extent: size, trueExtent: size, align: align,
		dense: true, committed: true, label: name,
	}
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
			m[h] = simple(name, size, size)
		}
	}
	// The parts of complex numbers and of pairs say how they are aligned.
	for align, list := range map[int][]Handle{
		2:  {0x2d3},
		4:  {0x212, 0x213, 0x21b, 0x228, 0x22b, 0x230, 0x232, 0x2db},
		8:  {0x216, 0x217, 0x21d, 0x231, 0x2e3},
		16: {0x224, 0x225, 0x2eb},
	} {
		for _, h := range list {
			m[h].align = align
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
		pair := simple(v.name, v.value+4, second)
		pair.d, pair.extent, pair.trueExtent = must(d.Resized(0, v.extent)), v.extent, second+4
		pair.gaps, pair.dense = true, second == v.value
		m[h] = pair
	}
	for h, f := range reductions() {
		m[h].reduce = f
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
	return e.datatypeOf(a.name(i), a.Handle(i))
}

// datatypeOf is the datatype of a handle. arg is the argument that it comes from.
func (e *Env) datatypeOf(arg string, h Handle) (*datatype, error) {
	if d, ok := named[h]; ok {
		return d, nil
	}
	if h == datatypeNull {
		return nil, fail(arg, errType, "it is MPI_DATATYPE_NULL")
	}
	if d, ok := lookup[*datatype](&e.handles, h); ok {
		return d, nil
	}
	return nil, fail(arg, errType, "%#x is no datatype, or one that is freed", uint64(h))
}

// items is memory of the program that a call sends or receives.
type items struct {
	d     *datatype
	n     int
	bytes []byte // all memory from the first byte of the items to their last one
}

// items are what three arguments from i on say: a buffer, a number of items, and their datatype.
func (e *Env) items(a *arguments, i int) (items, error) {
	n, err := a.count(i + 1)
	if err != nil {
		return items{}, err
	}
	d, err := e.committed(a, i+2)
	if err != nil {
		return items{}, err
	}
	return a.itemsAt(i, i+1, a.Addr(i), n, d)
}

// committed is datatype of a call that needs a committed one.
func (e *Env) committed(a *arguments, i int) (*datatype, error) {
	return e.committedOf(a.name(i), a.Handle(i))
}

// committedOf is datatypeOf of a committed one.
func (e *Env) committedOf(arg string, h Handle) (*datatype, error) {
	d, err := e.datatypeOf(arg, h)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.committed {
		return nil, fail(arg, errType, "it is not committed: call MPI_Type_commit before")
	}
	return d, nil
}

// itemsAt are n items from an address on. buf and count are the arguments that say so.
func (a *arguments) itemsAt(buf, count int, addr uint64, n int, d *datatype) (items, error) {
	out := items{d: d, n: n}
	if n == 0 || d.size == 0 {
		return out, nil
	}
	stride := max(d.extent, -d.extent)
	switch {
	case addr == 0 && d.trueLB == 0:
		return items{}, fail(a.name(buf), errBuffer, "it is NULL, and there are %d items of %s", n, d.describe())
	case addr > 0 && addr <= bufferAutomatic:
		return items{}, fail(a.name(buf), errBuffer, "it is MPI_IN_PLACE or MPI_BUFFER_AUTOMATIC, which this call does not take")
	case stride > 0 && n > maxBytes/stride || n > maxBytes/d.size:
		return items{}, fail(a.name(count), errCount, "%d items of %s are more than a program has memory for", n, d.describe())
	}
	span := (n-1)*stride + d.trueExtent
	low := d.trueLB
	if d.extent < 0 {
		var err error
		if out.d, err = d.backward(n); err != nil {
			return items{}, err
		}
		low -= (n - 1) * stride
	}
	// Package mpi copies with locks held, so a wrong address must be found before.
	return out, a.access(buf, func() {
		out.bytes = slice[byte](addr+uint64(low), span)
		touch(out.bytes, a.p.params[buf].output)
	})
}

// backward is a datatype of negative extent in memory that begins with the first byte of its n-th item.
func (d *datatype) backward(n int) (*datatype, error) {
	moved, err := mpi.StructOf([]int{1}, []int{(1 - n) * d.extent}, []mpi.Datatype{d.d})
	if err != nil {
		return nil, err
	}
	if moved, err = moved.Resized(0, d.extent); err != nil {
		return nil, err
	}
	return &datatype{
		name: d.name, d: moved, size: d.size, lb: d.lb, extent: d.extent, trueLB: d.trueLB,
		trueExtent: d.trueExtent, align: d.align, gaps: true, committed: true,
	}, nil
}

// describe names a datatype for errors.
func (d *datatype) describe() string {
	if d.name != "" {
		return d.name
	}
	return fmt.Sprintf("a datatype of %d bytes", d.size)
}

// pack is a copy of the bytes of the items, one after another, or the program's memory if they are so there.
func (a *arguments) pack(buf int, it *items) ([]byte, error) {
	if it.contiguous() {
		return it.bytes, nil
	}
	b, err := []byte(nil), error(nil)
	if fault := a.access(buf, func() {
		b, err = mpi.Pack(make([]byte, 0, it.n*it.d.size), it.bytes, it.n, it.d.d)
	}); fault != nil {
		return nil, fault
	}
	return b, err
}

// store is unpack of what pack has returned. If it is the program's memory nothing is to be done.
func (a *arguments) store(buf int, it *items, b []byte) error {
	if it.contiguous() {
		return nil
	}
	return a.unpack(buf, it, b)
}

// unpack stores bytes of any number of items where they belong.
func (a *arguments) unpack(buf int, it *items, b []byte) error {
	if it.contiguous() {
		return a.access(buf, func() { copy(it.bytes, b) })
	}
	n := min(len(b)/it.d.size, it.n)
	err := error(nil)
	if fault := a.access(buf, func() { _, err = mpi.Unpack(b, it.bytes, n, it.d.d) }); fault != nil {
		return fault
	}
	return err
}

// contiguous reports whether the items follow one another without gaps.
func (it *items) contiguous() bool {
	return len(it.bytes) == 0 || !it.d.gaps || it.n == 1 && it.d.dense
}

// maxBytes bounds the memory of a call: addresses of programs have 47 bits.
const maxBytes = min(1<<47, math.MaxInt)
