package mpi

// Number is what the arithmetic operations take: Go's types of numbers.
//
// Experimental: it may change in any release.
type Number interface {
	Integer | ~float32 | ~float64
}

// Integer is what the bitwise operations take.
//
// Experimental: it may change in any release.
type Integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

// Op combines values of ranks, element by element (MPI_Op). It is associative.
//
// Experimental: it may change in any release.
type Op[T any] struct {
	f        func(in, inout []T)
	commutes bool
	kind     opKind
}

// opKind says which operations remote atomics do.
type opKind int

const (
	opOther opKind = iota
	opSum
	opReplace
	opNone
)

// OpOf is an operation of the program's: f stores in op inout in inout, for all elements
// (MPI_Op_create). in is of lower ranks than inout. If commutes is false the order of ranks is
// kept.
//
// Experimental: it may change in any release.
func OpOf[T any](f func(in, inout []T), commutes bool) Op[T] {
	return Op[T]{f: f, commutes: commutes}
}

func each[T any](f func(a, b T) T) Op[T] {
	return Op[T]{f: func(in, inout []T) {
		for i, v := range in {
			inout[i] = f(v, inout[i])
		}
	}, commutes: true}
}

// Sum adds (MPI_SUM).
//
// Experimental: it may change in any release.
func Sum[T Number | ~complex64 | ~complex128]() Op[T] {
	op := each(func(a, b T) T { return a + b })
	op.kind = opSum
	return op
}

// Replace takes the place of what is there (MPI_REPLACE). It is for accumulates in windows.
//
// Experimental: it may change in any release.
func Replace[T any]() Op[T] {
	return Op[T]{f: func(in, inout []T) { copy(inout, in) }, kind: opReplace}
}

// NoOp leaves what is there (MPI_NO_OP): [Win.GetAccumulate] and [Win.FetchAndOp] read atomically
// with it.
//
// Experimental: it may change in any release.
func NoOp[T any]() Op[T] { return Op[T]{f: func(_, _ []T) {}, kind: opNone} }

// Prod multiplies (MPI_PROD).
//
// Experimental: it may change in any release.
func Prod[T Number | ~complex64 | ~complex128]() Op[T] {
	return each(func(a, b T) T { return a * b })
}

// Min is the least (MPI_MIN).
//
// Experimental: it may change in any release.
func Min[T Number]() Op[T] { return each(func(a, b T) T { return min(a, b) }) }

// Max is the greatest (MPI_MAX).
//
// Experimental: it may change in any release.
func Max[T Number]() Op[T] { return each(func(a, b T) T { return max(a, b) }) }

// BAnd is the bitwise and (MPI_BAND).
//
// Experimental: it may change in any release.
func BAnd[T Integer]() Op[T] { return each(func(a, b T) T { return a & b }) }

// BOr is the bitwise or (MPI_BOR).
//
// Experimental: it may change in any release.
func BOr[T Integer]() Op[T] { return each(func(a, b T) T { return a | b }) }

// BXor is the bitwise exclusive or (MPI_BXOR).
//
// Experimental: it may change in any release.
func BXor[T Integer]() Op[T] { return each(func(a, b T) T { return a ^ b }) }

// LAnd is 1 if all values are not 0, otherwise 0 (MPI_LAND).
//
// Experimental: it may change in any release.
func LAnd[T Integer]() Op[T] { return each(func(a, b T) T { return truth[T](a != 0 && b != 0) }) }

// LOr is 1 if any value is not 0, otherwise 0 (MPI_LOR).
//
// Experimental: it may change in any release.
func LOr[T Integer]() Op[T] { return each(func(a, b T) T { return truth[T](a != 0 || b != 0) }) }

// LXor is 1 if an odd number of values is not 0, otherwise 0 (MPI_LXOR).
//
// Experimental: it may change in any release.
func LXor[T Integer]() Op[T] { return each(func(a, b T) T { return truth[T]((a != 0) != (b != 0)) }) }

func truth[T Integer](v bool) T {
	if v {
		return 1
	}
	return 0
}
