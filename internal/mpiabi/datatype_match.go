package mpiabi

// Chapter "Datatypes" and "Language Bindings": named datatypes that are found by what they are.

// The classes of MPI_Type_match_size.
const (
	typeclassInteger = 192
	typeclassReal    = 193
	typeclassComplex = 194
)

// bySize are the datatypes of a class by their sizes.
var bySize = map[int]map[int]Handle{
	typeclassInteger: {1: 0x2c1, 2: 0x2c9, 4: 0x2d1, 8: 0x2d9, 16: 0x2e1},
	typeclassReal:    {2: 0x2ca, 4: 0x2d2, 8: 0x2da, 16: 0x2e2},
	typeclassComplex: {4: 0x2d3, 8: 0x2db, 16: 0x2e3, 32: 0x2eb},
}

// byValueAndIndex are the pairs of MPI_MINLOC and MPI_MAXLOC by the datatypes of their two parts.
var byValueAndIndex = map[[2]Handle]Handle{
	{0x210, 0x209}: 0x228, {0x214, 0x209}: 0x229, {0x20a, 0x209}: 0x22a, {0x209, 0x209}: 0x22b,
	{0x208, 0x209}: 0x22c, {0x220, 0x209}: 0x22d,
	{0x21a, 0x21a}: 0x230, {0x21c, 0x21c}: 0x231, {0x219, 0x219}: 0x232,
}

func init() {
	register("MPI_Type_match_size", func(_ *Env, a *arguments) error {
		class, ok := bySize[a.Int(0)]
		if !ok {
			return fail(a.name(0), errArg, "it is %d, want MPI_TYPECLASS_INTEGER, REAL or COMPLEX", a.Int(0))
		}
		h, ok := class[a.Int(1)]
		if !ok {
			return fail(a.name(1), errArg, "it is %d, and no datatype of the class has so many bytes", a.Int(1))
		}
		return a.setHandle(2, h)
	})
	register("MPI_Type_get_value_index", func(e *Env, a *arguments) error {
		for i := range 2 {
			if _, err := e.datatype(a, i); err != nil {
				return err
			}
		}
		h, ok := byValueAndIndex[[2]Handle{a.Handle(0), a.Handle(1)}]
		if !ok {
			h = datatypeNull // as the standard has it for pairs without a datatype
		}
		return a.setHandle(2, h)
	})
}
