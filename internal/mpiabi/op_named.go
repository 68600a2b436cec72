package mpiabi

import (
	"cmp"
	"encoding/binary"
	"math"
	"runtime"

	"github.com/vmmc-go/vmmc/mpi"
)

// Chapter "Collective Communication": the standard's operations on its datatypes.

// reductions are the operations on the named datatypes, which the standard defines for them.
func reductions() map[Handle]func(op Handle) reducer {
	m := map[Handle]func(op Handle) reducer{
		0x247: bitwise[uint8], // MPI_BYTE
		// Complex numbers.
		0x212: complexes[complex64], 0x213: complexes[complex64], 0x21b: complexes[complex64], 0x2db: complexes[complex64],
		0x216: complexes[complex128], 0x217: complexes[complex128], 0x21d: complexes[complex128], 0x2e3: complexes[complex128],
		// Pairs of a value and an index.
		0x228: pairs(func(p struct {
			v float32
			i int32
		},
		) (float32, int32) {
			return p.v, p.i
		}),
		0x229: pairs(func(p [12]byte) (float64, int32) {
			return math.Float64frombits(binary.NativeEndian.Uint64(p[:])), int32(binary.NativeEndian.Uint32(p[8:]))
		}),
		0x22a: pairs(func(p [12]byte) (int64, int32) {
			return int64(binary.NativeEndian.Uint64(p[:])), int32(binary.NativeEndian.Uint32(p[8:]))
		}),
		0x22c: pairs(func(p [6]byte) (int16, int32) {
			return int16(binary.NativeEndian.Uint16(p[:])), int32(binary.NativeEndian.Uint32(p[2:]))
		}),
		0x22b: pairs(func(p [2]int32) (int32, int32) { return p[0], p[1] }),
		0x230: pairs(func(p [2]float32) (float32, float32) { return p[0], p[1] }),
		0x231: pairs(func(p [2]float64) (float64, float64) { return p[0], p[1] }),
		0x232: pairs(func(p [2]int32) (int32, int32) { return p[0], p[1] }),
	}
	addSoftFloats(m)
	add := func(f func(op Handle) reducer, list ...Handle) {
		for _, h := range list {
			m[h] = f
		}
	}
	add(integers[int8], 0x244, 0x240, 0x2c1)
	add(integers[uint8], 0x245, 0x241)
	add(integers[int16], 0x208, 0x248, 0x2c9)
	add(integers[uint16], 0x20c, 0x249)
	add(integers[int32], 0x209, 0x219, 0x250, 0x2d1)
	add(integers[uint32], 0x20d, 0x251)
	add(integers[int64], 0x201, 0x202, 0x203, 0x20a, 0x20b, 0x258, 0x2d9)
	add(integers[uint64], 0x20e, 0x20f, 0x259)
	add(floats[float32], 0x210, 0x21a, 0x2d2)
	add(floats[float64], 0x214, 0x21c, 0x2da)
	add(logical[uint8], 0x238, 0x239, 0x2c0)
	add(logical[int16], 0x2c8)
	add(logical[int32], 0x218, 0x2d0)
	add(logical[int64], 0x2d8)
	// The standard has no operations on MPI_CHAR. Programs apply them, as other libraries have them.
	if runtime.GOARCH == "amd64" || runtime.GOARCH == "386" {
		add(integers[int8], 0x243)
	} else {
		add(integers[uint8], 0x243)
	}
	return m
}

// arithmetic are the sum, the product, the least and the greatest.
func arithmetic[T mpi.Number](op Handle) reducer {
	switch op {
	case opSum:
		return oneByOne(func(a, b T) T { return a + b })
	case opProd:
		return oneByOne(func(a, b T) T { return a * b })
	case opMin:
		return oneByOne(func(a, b T) T { return min(a, b) })
	case opMax:
		return oneByOne(func(a, b T) T { return max(a, b) })
	}
	return nil
}

func floats[T float32 | float64](op Handle) reducer { return arithmetic[T](op) }

func complexes[T complex64 | complex128](op Handle) reducer {
	switch op {
	case opSum:
		return oneByOne(func(a, b T) T { return a + b })
	case opProd:
		return oneByOne(func(a, b T) T { return a * b })
	}
	return nil
}

func integers[T mpi.Integer](op Handle) reducer {
	for _, f := range []func(Handle) reducer{arithmetic[T], bitwise[T], logical[T]} {
		if r := f(op); r != nil {
			return r
		}
	}
	return nil
}

func bitwise[T mpi.Integer](op Handle) reducer {
	switch op {
	case opBAnd:
		return oneByOne(func(a, b T) T { return a & b })
	case opBOr:
		return oneByOne(func(a, b T) T { return a | b })
	case opBXor:
		return oneByOne(func(a, b T) T { return a ^ b })
	}
	return nil
}

// logical takes all values but 0 for true, and gives 1 for true.
func logical[T mpi.Integer](op Handle) reducer {
	truth := func(f func(a, b bool) bool) reducer {
		return oneByOne(func(a, b T) T {
			if f(a != 0, b != 0) {
				return 1
			}
			return 0
		})
	}
	switch op {
	case opLAnd:
		return truth(func(a, b bool) bool { return a && b })
	case opLOr:
		return truth(func(a, b bool) bool { return a || b })
	case opLXor:
		return truth(func(a, b bool) bool { return a != b })
	}
	return nil
}

// pairs are the least and the greatest value with its index. Of equal values it is the least index.
func pairs[T any, V, I cmp.Ordered](split func(pair T) (V, I)) func(op Handle) reducer {
	return func(op Handle) reducer {
		sign := 1
		switch op {
		case opMinLoc:
		case opMaxLoc:
			sign = -1
		default:
			return nil
		}
		return oneByOne(func(a, b T) T {
			va, ia := split(a)
			vb, ib := split(b)
			if c := sign * cmp.Compare(va, vb); c < 0 || c == 0 && ia < ib {
				return a
			}
			return b
		})
	}
}
