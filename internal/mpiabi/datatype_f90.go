package mpiabi

import "sync"

// Chapter "Language Bindings": datatypes of Fortran's numbers, by their precision and range.

const (
	combinerF90Real    = 113
	combinerF90Complex = 114
	combinerF90Integer = 115
)

// f90Kind is a kind of numbers that a Fortran compiler has.
type f90Kind struct {
	precision, exponent int // decimal digits; the largest power of ten
	size                int
}

// realKinds and integerKinds begin with the smallest one.
var (
	realKinds    = []f90Kind{{6, 37, 4}, {15, 307, 8}, {33, 4931, 16}}
	integerKinds = []f90Kind{{0, 2, 1}, {0, 4, 2}, {0, 9, 4}, {0, 18, 8}, {0, 38, 16}}
)

// f90Types are the datatypes that the program has asked for. Equal arguments give the same one, which is
// never freed.
type f90Types struct {
	mu     sync.Mutex
	byArgs map[[3]int]Handle // by the combiner, the precision and the range. Guarded by mu.
}

func init() {
	register("MPI_Type_create_f90_real", func(e *Env, a *arguments) error {
		return e.f90(a, combinerF90Real, typeclassReal, realKinds, 1, []int{a.Int(0), a.Int(1)})
	})
	register("MPI_Type_create_f90_complex", func(e *Env, a *arguments) error {
		return e.f90(a, combinerF90Complex, typeclassComplex, realKinds, 2, []int{a.Int(0), a.Int(1)})
	})
	register("MPI_Type_create_f90_integer", func(e *Env, a *arguments) error {
		return e.f90(a, combinerF90Integer, typeclassInteger, integerKinds, 1, []int{a.Int(0)})
	})
}

// f90 stores the handle of the smallest datatype that has the precision and range of the arguments. parts is of
// how many numbers a value consists.
func (e *Env) f90(a *arguments, combiner, class int, kinds []f90Kind, parts int, args []int) error {
	precision, exponent := undefined, args[len(args)-1]
	if len(args) == 2 {
		precision = args[0]
	}
	if precision == undefined && exponent == undefined {
		return fail(a.name(0), errArg, "it is MPI_UNDEFINED, and so is the range: give one of them")
	}
	for i, v := range args {
		if v < 0 && v != undefined {
			return fail(a.name(i), errArg, "it is %d, want 0 or more", v)
		}
	}
	out := len(args)
	for _, k := range kinds {
		if precision > k.precision || exponent > k.exponent {
			continue
		}
		return a.setHandle(out, e.f90Type([3]int{combiner, precision, exponent}, named[bySize[class][parts*k.size]], args))
	}
	return fail(a.name(0), errArg, "no number has the precision %d and the range %d", precision, exponent)
}

// f90Type is the handle of a datatype that is as another one, and knows how it was made.
func (e *Env) f90Type(key [3]int, of *datatype, args []int) Handle {
	f := &e.f90Types
	f.mu.Lock()
	defer f.mu.Unlock()
	if h, ok := f.byArgs[key]; ok {
		return h
	}
	h := e.handles.add(&datatype{
		name: of.name, d: of.d, size: of.size, extent: of.extent, trueExtent: of.trueExtent, align: of.align,
		dense: true, reduce: of.reduce, fixed: true, committed: true, made: &contents{combiner: key[0], ints: args},
	})
	if f.byArgs == nil {
		f.byArgs = map[[3]int]Handle{}
	}
	f.byArgs[key] = h
	return h
}
