package mpiabi

import (
	"os"
	"strconv"
	"sync"
)

// Chapters "MPI Environmental Management" and "Application Binary Interface": what the library and the
// machine are.

func init() {
	register("MPI_Get_processor_name", func(_ *Env, a *arguments) error {
		name, err := os.Hostname()
		if err != nil {
			return fail("", errOther, "get the machine's name: %w", err)
		}
		name = name[:min(len(name), maxProcessorName-1)]
		if err := a.setCString(0, name); err != nil {
			return err
		}
		return a.setInt(1, len(name))
	})
	registerAlways("MPI_Abi_get_info", func(e *Env, a *arguments) error {
		in := &info{}
		for _, name := range []string{"aint", "count", "offset"} {
			in.set("mpi_"+name+"_size", "8")
		}
		return e.addInfo(a, 0, in)
	})
	registerAlways("MPI_Abi_get_fortran_info", func(e *Env, a *arguments) error { return e.addInfo(a, 0, fortranInfo()) })
	registerAlways("MPI_Abi_set_fortran_info", setFortranInfo)
	registerAlways("MPI_Abi_get_fortran_booleans", getBooleans)
	registerAlways("MPI_Abi_set_fortran_booleans", setBooleans)
}

// maxProcessorName is MPI_MAX_PROCESSOR_NAME.
const maxProcessorName = 256

// fortran has the values of .TRUE. and .FALSE. that the program has set.
type fortran struct {
	mu       sync.Mutex
	booleans map[int][2][]byte // by the size of LOGICAL: true, false. Guarded by mu.
}

// fortranTypes are the keys of the Fortran types, and the datatypes whose sizes they have.
var fortranTypes = map[string]Handle{
	"mpi_logical_size": 0x218, "mpi_integer_size": 0x219, "mpi_real_size": 0x21a, "mpi_double_precision_size": 0x21c,
}

// optionalTypes are the keys of the Fortran types that a compiler need not have.
var optionalTypes = []string{
	"logical1", "logical2", "logical4", "logical8", "logical16",
	"integer1", "integer2", "integer4", "integer8", "integer16",
	"real2", "real4", "real8", "real16", "complex4", "complex8", "complex16", "complex32", "double_complex",
}

// fortranInfo says how large this library's Fortran datatypes are, and that it has all of them.
func fortranInfo() *info {
	in := &info{}
	for _, key := range []string{"mpi_logical_size", "mpi_integer_size", "mpi_real_size", "mpi_double_precision_size"} {
		in.set(key, strconv.Itoa(named[fortranTypes[key]].size))
	}
	for _, name := range optionalTypes {
		in.set("mpi_"+name+"_supported", "true")
	}
	return in
}

// setFortranInfo checks that a Fortran compiler has the sizes of the library. Types that only the
// library has do no harm.
func setFortranInfo(e *Env, a *arguments) error {
	in, err := e.info(a, 0)
	if err != nil {
		return err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for key, h := range fortranTypes {
		if value, ok := in.values[key]; ok && value != strconv.Itoa(named[h].size) {
			return fail(a.name(0), errABI, "%s is %q, and this library has %d bytes for %s", key, value, named[h].size, named[h].name)
		}
	}
	return nil
}

// logicalSize is the size of LOGICAL of argument 0.
func logicalSize(a *arguments) (int, error) {
	switch n := a.Int(0); n {
	case 1, 2, 4, 8, 16:
		return n, nil
	default:
		return 0, fail(a.name(0), errArg, "it is %d, want 1, 2, 4, 8 or 16", n)
	}
}

func setBooleans(e *Env, a *arguments) error {
	n, err := logicalSize(a)
	if err != nil {
		return err
	}
	var values [2][]byte
	for k := range values {
		addr := a.Addr(k + 1)
		if addr == 0 {
			return fail(a.name(k+1), errArg, "it is NULL, want the address of a LOGICAL")
		}
		values[k] = make([]byte, n)
		if err := a.access(k+1, func() { copy(values[k], slice[byte](addr, n)) }); err != nil {
			return err
		}
	}
	f := &e.fortran
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.booleans[n]; ok {
		return fail("", errABI, "the values of LOGICAL of %d bytes are set already", n)
	}
	if f.booleans == nil {
		f.booleans = map[int][2][]byte{}
	}
	f.booleans[n] = values
	return nil
}

func getBooleans(e *Env, a *arguments) error {
	n, err := logicalSize(a)
	if err != nil {
		return err
	}
	e.fortran.mu.Lock()
	values, ok := e.fortran.booleans[n]
	e.fortran.mu.Unlock()
	if err := a.setFlag(3, ok); err != nil || !ok {
		return err
	}
	for k, v := range values {
		addr := a.Addr(k + 1)
		if addr == 0 {
			return fail(a.name(k+1), errArg, "it is NULL, want where to store a LOGICAL")
		}
		if err := a.access(k+1, func() { copy(slice[byte](addr, n), v) }); err != nil {
			return err
		}
	}
	return nil
}
