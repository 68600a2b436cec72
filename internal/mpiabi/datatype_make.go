package mpiabi

import (
	"errors"
	"math"
	"strings"

	"github.com/vmmc-go/vmmc/mpi"
)

// Chapter "Datatypes": constructors.

// How a datatype was made.
const (
	combinerNamed         = 101
	combinerDup           = 102
	combinerContiguous    = 103
	combinerVector        = 104
	combinerHvector       = 105
	combinerIndexed       = 106
	combinerHindexed      = 107
	combinerIndexedBlock  = 108
	combinerHindexedBlock = 109
	combinerStruct        = 110
	combinerSubarray      = 111
	combinerDarray        = 112
	combinerResized       = 116
)

// contents are the arguments of a constructor (MPI_Type_get_contents).
type contents struct {
	combiner int
	ints     []int
	addrs    []int
	counts   []int // of the form with large counts
	types    []*datatype
	handles  []Handle // those of types that the standard has named; others get a handle when asked for
	large    bool
}

// count adds arguments that are MPI_Count in the form with large counts.
func (m *contents) count(v ...int) {
	if m.large {
		m.counts = append(m.counts, v...)
		return
	}
	m.ints = append(m.ints, v...)
}

// addr adds arguments that are MPI_Aint, or MPI_Count in the form with large counts.
func (m *contents) addr(v ...int) {
	if m.large {
		m.counts = append(m.counts, v...)
		return
	}
	m.addrs = append(m.addrs, v...)
}

// of adds a datatype.
func (m *contents) of(h Handle, t *datatype) {
	m.handles, m.types = append(m.handles, h), append(m.types, t)
}

// maxBlocks bounds how many blocks a datatype is made of.
const maxBlocks = 1 << 22

// block is n items of a datatype from a displacement on.
type block struct {
	t     *datatype
	at, n int
}

// farthest bounds displacements. Sums of some of them fit an int.
const farthest = min(1<<50, math.MaxInt/8)

func far(v int) bool { return v < -farthest || v > farthest }

// times is a*b, and whether it is no farther than displacements may be.
func times(a, b int) (int, bool) {
	if a == 0 || b == 0 {
		return 0, true
	}
	if far(a) || far(b) || max(a, -a) > farthest/max(b, -b) {
		return 0, false
	}
	return a * b, true
}

// span is the least and the greatest of some bounds.
type span struct {
	lo, hi int
	some   bool
}

func (s *span) add(lo, hi int) {
	if !s.some {
		s.lo, s.hi, s.some = lo, hi, true
		return
	}
	s.lo, s.hi = min(s.lo, lo), max(s.hi, hi)
}

// join makes a datatype of blocks, in their order. arg is the argument that says where they are.
func (a *arguments) join(arg int, blocks []block) (*datatype, error) {
	var all, set, data span
	t := &datatype{align: 1, dense: true}
	next := 0 // where the following block begins if there is no gap
	var lengths, displs []int
	var types []mpi.Datatype
	for i, b := range blocks {
		if b.n < 0 {
			return nil, fail(a.name(arg), errArg, "block %d has %d items, want 0 or more", i, b.n)
		}
		if b.n == 0 {
			continue
		}
		last, ok := times(b.n-1, b.t.extent)
		size, fits := times(b.n, b.t.size)
		if !ok || !fits || far(b.at) || far(b.t.lb) || far(b.t.trueLB) || far(t.size+size) {
			return nil, fail(a.name(arg), errArg, "block %d, of %d items at %d, is beyond the addresses of a program", i, b.n, b.at)
		}
		first, end := b.at+min(0, last), b.at+max(0, last)
		bounds := &all
		if b.t.bounded {
			bounds = &set
		}
		bounds.add(first+b.t.lb, end+b.t.lb+b.t.extent)
		t.align = max(t.align, b.t.align)
		if size == 0 {
			continue
		}
		from := b.at + b.t.trueLB
		if !b.t.dense || b.n > 1 && b.t.extent != b.t.size || data.some && from != next {
			t.dense = false
		}
		data.add(first+b.t.trueLB, end+b.t.trueLB+b.t.trueExtent)
		next = from + size
		t.size += size
		lengths, displs, types = append(lengths, b.n), append(displs, from), append(types, b.t.d)
	}
	if set.some {
		all, t.bounded = set, true
	}
	t.lb, t.extent = all.lo, all.hi-all.lo
	t.trueLB, t.trueExtent = data.lo, data.hi-data.lo
	for i := range displs {
		displs[i] -= t.trueLB
	}
	d, err := mpi.StructOf(lengths, displs, types)
	if err != nil {
		return nil, err
	}
	t.d = d
	return t, t.bound()
}

// bound has the layout's items as far apart as the extent says.
func (d *datatype) bound() (err error) {
	d.gaps = d.size > 0 && (!d.dense || d.extent != d.size)
	d.d, err = d.d.Resized(0, d.extent)
	return err
}

// pad extends a struct to its alignment, as C does. Bounds that the program has set stay.
func (d *datatype) pad() error {
	if over := d.extent % d.align; over != 0 && !d.bounded {
		d.extent += d.align - over
	}
	return d.bound()
}

// resize sets bounds.
func (d *datatype) resize(lb, extent int) error {
	d.lb, d.extent, d.bounded = lb, extent, true
	return d.bound()
}

// construct registers a constructor. old is the argument with the datatype that it is made of.
func construct(name string, old int, f func(a *arguments, t *datatype, m *contents) (*datatype, error)) {
	registerType(name, func(e *Env, a *arguments, m *contents) (*datatype, error) {
		t, err := e.datatype(a, old)
		if err != nil {
			return nil, err
		}
		made, err := f(a, t, m)
		m.of(a.Handle(old), t)
		return made, err
	})
}

// registerType registers a constructor, whose last argument is where the handle goes.
func registerType(name string, f func(e *Env, a *arguments, m *contents) (*datatype, error)) {
	register(name, func(e *Env, a *arguments) error {
		m := &contents{large: strings.HasSuffix(a.p.name, "_c")}
		t, err := f(e, a, m)
		if err != nil {
			return err
		}
		t.made = m
		last := len(a.p.params) - 1
		if err := e.addType(a, last, t); err != nil || m.combiner != combinerDup {
			return err
		}
		return e.dupType(a, last)
	})
}

// dupType gives a copy the attributes of the datatype of argument 0. If a copy function fails there is no copy.
func (e *Env) dupType(a *arguments, i int) error {
	h, err := a.handleAt(i)
	if err != nil {
		return err
	}
	if err := e.copyTypeAttributes(a.Handle(0), h); err != nil {
		err = errors.Join(err, e.removeTypeAttributes(h), a.setHandle(i, datatypeNull))
		remove[*datatype](&e.handles, h)
		return err
	}
	return nil
}

// addType stores the handle of a new datatype.
func (e *Env) addType(a *arguments, i int, t *datatype) error {
	h := e.handles.add(t)
	err := a.setHandle(i, h)
	if err != nil {
		remove[*datatype](&e.handles, h)
	}
	return err
}

func init() {
	construct("MPI_Type_contiguous", 1, func(a *arguments, t *datatype, m *contents) (*datatype, error) {
		m.combiner = combinerContiguous
		n, err := a.blocks(0)
		m.count(n)
		if err != nil {
			return nil, err
		}
		return a.join(0, []block{{t, 0, n}})
	})
	construct("MPI_Type_vector", 3, func(a *arguments, t *datatype, m *contents) (*datatype, error) {
		m.combiner = combinerVector
		m.count(a.Count(0), a.Count(1), a.Count(2))
		stride, ok := times(t.extent, a.Count(2))
		if !ok {
			return nil, fail(a.name(2), errArg, "%d items are beyond the addresses of a program", a.Count(2))
		}
		return a.vector(t, stride)
	})
	hvector := func(a *arguments, t *datatype, m *contents) (*datatype, error) {
		m.combiner = combinerHvector
		m.count(a.Count(0), a.Count(1))
		m.addr(a.Count(2))
		return a.vector(t, a.Count(2))
	}
	construct("MPI_Type_create_hvector", 3, hvector)
	construct("MPI_Type_hvector", 3, hvector)
	construct("MPI_Type_indexed", 3, func(a *arguments, t *datatype, m *contents) (*datatype, error) {
		m.combiner = combinerIndexed
		return a.indexed(t, m, t.extent, m.count)
	})
	hindexed := func(a *arguments, t *datatype, m *contents) (*datatype, error) {
		m.combiner = combinerHindexed
		return a.indexed(t, m, 1, m.addr)
	}
	construct("MPI_Type_create_hindexed", 3, hindexed)
	construct("MPI_Type_hindexed", 3, hindexed)
	construct("MPI_Type_create_indexed_block", 3, func(a *arguments, t *datatype, m *contents) (*datatype, error) {
		m.combiner = combinerIndexedBlock
		return a.indexedBlock(t, m, t.extent, m.count)
	})
	construct("MPI_Type_create_hindexed_block", 3, func(a *arguments, t *datatype, m *contents) (*datatype, error) {
		m.combiner = combinerHindexedBlock
		return a.indexedBlock(t, m, 1, m.addr)
	})
	registerType("MPI_Type_create_struct", structType)
	registerType("MPI_Type_struct", structType)
	construct("MPI_Type_create_resized", 0, func(a *arguments, t *datatype, m *contents) (*datatype, error) {
		m.combiner = combinerResized
		lb, extent := a.Count(1), a.Count(2)
		m.addr(lb, extent)
		if far(lb) || far(extent) {
			return nil, fail(a.name(2), errArg, "bounds of %d and %d bytes are beyond the addresses of a program", lb, extent)
		}
		made, err := a.join(0, []block{{t, 0, 1}})
		if err != nil {
			return nil, err
		}
		return made, made.resize(lb, extent)
	})
	construct("MPI_Type_dup", 0, func(_ *arguments, t *datatype, m *contents) (*datatype, error) {
		m.combiner = combinerDup
		t.mu.Lock()
		defer t.mu.Unlock()
		return &datatype{
			name: t.name, d: t.d, size: t.size, lb: t.lb, extent: t.extent, trueLB: t.trueLB, trueExtent: t.trueExtent,
			align: t.align, gaps: t.gaps, dense: t.dense, bounded: t.bounded, committed: t.committed,
		}, nil
	})
}

// blocks is a number of blocks, or of items of one.
func (a *arguments) blocks(i int) (int, error) {
	n := a.Count(i)
	if n < 0 {
		return 0, fail(a.name(i), errCount, "it is %d, want 0 or more", n)
	}
	return n, nil
}

// list is the number of blocks of a list.
func (a *arguments) list(i int) (int, error) {
	n, err := a.blocks(i)
	if err == nil && n > maxBlocks {
		return 0, fail(a.name(i), errCount, "it is %d, and a datatype has at most %d blocks", n, maxBlocks)
	}
	return n, err
}

// vector is MPI_Type_vector with a stride in bytes.
func (a *arguments) vector(t *datatype, stride int) (*datatype, error) {
	count, err := a.list(0)
	if err != nil {
		return nil, err
	}
	length, err := a.blocks(1)
	if err != nil {
		return nil, err
	}
	if _, ok := times(max(count-1, 0), stride); !ok {
		return nil, fail(a.name(2), errArg, "%d blocks, %d bytes apart, are beyond the addresses of a program", count, stride)
	}
	if run, ok := times(length, t.extent); ok && run == stride { // all items are one block
		if n, ok := times(count, length); ok {
			return a.join(0, []block{{t, 0, n}})
		}
	}
	blocks := make([]block, count)
	for i := range blocks {
		blocks[i] = block{t, i * stride, length}
	}
	return a.join(2, blocks)
}

// indexed is MPI_Type_indexed with displacements in units of bytes. note keeps them.
func (a *arguments) indexed(t *datatype, m *contents, unit int, note func(...int)) (*datatype, error) {
	n, err := a.list(0)
	if err != nil {
		return nil, err
	}
	lengths, err := a.ints(1, n)
	if err != nil {
		return nil, err
	}
	displs, err := a.ints(2, n)
	if err != nil {
		return nil, err
	}
	m.count(n)
	m.count(lengths...)
	note(displs...)
	return a.at(t, lengths, displs, unit)
}

// indexedBlock is indexed of blocks of one length.
func (a *arguments) indexedBlock(t *datatype, m *contents, unit int, note func(...int)) (*datatype, error) {
	n, err := a.list(0)
	if err != nil {
		return nil, err
	}
	length, err := a.blocks(1)
	if err != nil {
		return nil, err
	}
	displs, err := a.ints(2, n)
	if err != nil {
		return nil, err
	}
	m.count(n, length)
	note(displs...)
	lengths := make([]int, n)
	for i := range lengths {
		lengths[i] = length
	}
	return a.at(t, lengths, displs, unit)
}

// at makes a datatype of blocks of items at displacements in units of bytes.
func (a *arguments) at(t *datatype, lengths, displs []int, unit int) (*datatype, error) {
	blocks := make([]block, len(displs))
	for i, x := range displs {
		at, ok := times(x, unit)
		if !ok {
			return nil, fail(a.name(2), errArg, "number %d is %d, which is beyond the addresses of a program", i, x)
		}
		blocks[i] = block{t, at, lengths[i]}
	}
	return a.join(1, blocks)
}

func structType(e *Env, a *arguments, m *contents) (*datatype, error) {
	m.combiner = combinerStruct
	n, err := a.list(0)
	if err != nil {
		return nil, err
	}
	lengths, err := a.ints(1, n)
	if err != nil {
		return nil, err
	}
	displs, err := a.ints(2, n)
	if err != nil {
		return nil, err
	}
	handles, err := a.handles(3, n)
	if err != nil {
		return nil, err
	}
	m.count(n)
	m.count(lengths...)
	m.addr(displs...)
	blocks := make([]block, n)
	for i, h := range handles {
		t, err := e.datatypeOf(a.name(3), h)
		if err != nil {
			return nil, err
		}
		m.of(h, t)
		blocks[i] = block{t, displs[i], lengths[i]}
	}
	made, err := a.join(1, blocks)
	if err != nil {
		return nil, err
	}
	return made, made.pad()
}
